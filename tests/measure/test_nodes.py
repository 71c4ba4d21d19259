"""When the feature for several nodes is asked, and what it is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.factories import experiment
from torchscale.config.experiment import Experiment
from torchscale.errors import UsageError
from torchscale.measure import nodes
from torchscale.measure.nodes import COUNT_VARIABLES, ClusterNode, NodeOptions, join_nodes
from torchscale.observer import Observer


class Asked:
    """Stands for the feature: counts the questions and gives another experiment."""

    def __init__(self) -> None:
        self.questions: list[NodeOptions] = []
        self.answer = experiment(launch={"nodes": 3})

    def __getitem__(self, name: str) -> nodes.JoinCluster:
        assert name == "cluster"

        def join(
            experiment: Experiment, options: NodeOptions, observer: Observer
        ) -> tuple[Experiment, ClusterNode | None]:
            self.questions.append(options)
            return self.answer, None

        return join


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """The feature, in an environment that says nothing of nodes."""
    for name in COUNT_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    feature = Asked()
    monkeypatch.setattr(nodes, "_NODES", feature)
    return feature


def test_one_node_asks_nobody(asked: Asked) -> None:
    config = experiment()
    assert join_nodes(config, NodeOptions()) == (config, None)
    assert not asked.questions


@pytest.mark.parametrize(
    "options",
    [
        NodeOptions(nodes=1),
        NodeOptions(node_rank=0),
        NodeOptions(master="n0"),
        NodeOptions(token_file=Path("token")),
    ],
)
def test_every_option_of_nodes_asks(asked: Asked, options: NodeOptions) -> None:
    """Also those that are wrong by themselves: the feature says so."""
    assert join_nodes(experiment(), options) == (asked.answer, None)
    assert asked.questions == [options]


def test_a_config_that_names_its_nodes_asks(asked: Asked) -> None:
    assert join_nodes(experiment(launch={"nodes": 1}), NodeOptions()) == (asked.answer, None)


@pytest.mark.parametrize("name", COUNT_VARIABLES)
def test_whoever_starts_on_several_nodes_is_heard(
    asked: Asked, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "2")
    assert join_nodes(experiment(), NodeOptions()) == (asked.answer, None)


def test_the_feature_answers_through_the_door() -> None:
    with pytest.raises(UsageError, match="--master n0 is for several nodes"):
        join_nodes(experiment(), NodeOptions(nodes=1, master="n0"))
