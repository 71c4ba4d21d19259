"""Which node of a sweep this is. What nodes do together: tests/integration/test_nodes.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.factories import experiment
from torchscale.features.cluster.sweep import join_cluster
from torchscale.measure.nodes import COUNT_VARIABLES, NodeOptions
from torchscale.observer import SILENT, SilentObserver

TOKEN = "5d41402abc4b2a76b9719d911017c592"  # noqa: S105 - of nobody


@pytest.fixture
def token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with the secret, in an environment that says nothing of nodes."""
    for name in COUNT_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    path = tmp_path / "token"
    path.write_text(TOKEN)
    path.chmod(0o600)
    return path


@pytest.mark.parametrize(("node_rank", "is_leader"), [(0, True), (1, False)])
def test_the_experiment_has_the_number_of_its_nodes(
    token: Path, node_rank: int, is_leader: bool
) -> None:
    options = NodeOptions(3, node_rank, "10.0.0.1", token)
    joined, node = join_cluster(experiment(), options, SILENT)
    assert node is not None
    assert (joined.launch.nodes, node.is_leader) == (3, is_leader)
    assert TOKEN not in repr(node)


def test_the_config_may_say_how_many_there_are(token: Path) -> None:
    options = NodeOptions(node_rank=1, master="10.0.0.1", token_file=token)
    joined, node = join_cluster(experiment(launch={"nodes": 2}), options, SILENT)
    assert node is not None
    assert joined.launch.nodes == 2


def test_one_node_needs_no_secret(token: Path) -> None:
    config = experiment(launch={"nodes": 4})
    assert join_cluster(config, NodeOptions(nodes=1), SILENT) == (config, None)


def test_who_else_can_read_the_secret_is_said(token: Path) -> None:
    said: list[str] = []

    class Noting(SilentObserver):
        def note(self, text: str) -> None:
            said.append(text)

    token.chmod(0o644)
    join_cluster(experiment(), NodeOptions(2, 0, "10.0.0.1", token), Noting())
    (text,) = said
    assert text.startswith("warning: --token-file ")
    assert "all users of this machine can read it" in text
