"""Where the nodes' secret is read from, and which are refused."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import pytest

from torchscale.errors import UsageError
from torchscale.features.cluster.token import read_token
from torchscale.util import redaction
from torchscale.util.redaction import redact_text

TOKEN = "5d41402abc4b2a76b9719d911017c592"  # noqa: S105 - of nobody


@pytest.fixture(autouse=True)
def _nothing_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "_noted", set())


@pytest.mark.parametrize(("nodes", "begin"), [("1", "write the"), ("2", "leave out srun")])
def test_a_command_that_srun_started_on_many_nodes_needs_no_srun(
    nodes: str, begin: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TORCHSCALE_TOKEN", raising=False)
    monkeypatch.setenv("SLURM_STEP_NUM_NODES", nodes)
    with pytest.raises(UsageError) as caught:
        read_token(None)
    assert caught.value.hint is not None
    assert caught.value.hint.startswith(begin)


def test_the_token_is_read_and_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHSCALE_TOKEN", "0c9e4b7f13a8d265")
    assert read_token(None) == b"0c9e4b7f13a8d265"
    with pytest.raises(
        UsageError, match="TORCHSCALE_TOKEN is not set"
    ):  # it has left the environment
        read_token(None)
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n")
    assert read_token(path) == TOKEN.encode()
    assert TOKEN not in redact_text(f"refused {TOKEN}")


@pytest.mark.parametrize("content", [b"short", b"\xff" * 20, b"z" * 5000])
def test_a_bad_token_file_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "token"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="--token-file"):
        read_token(path)
    with pytest.raises(UsageError, match="No such file"):
        read_token(tmp_path / "none")


@pytest.mark.parametrize(
    "text",
    ["x" * 24, "abcdefghijklmnop", "0123456789abcdef", "passwordpassword", "abcabcabcabcabcabc",
     "zyxwvutsrqponmlk", "aaaaaaaabbbbbbbb", "0101101001110101", "password12345678"],
)  # fmt: skip
def test_a_token_that_is_easily_guessed_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "token"
    path.write_text(text)
    with pytest.raises(UsageError, match="easily guessed"):
        read_token(path)


@pytest.mark.parametrize("text", ["abc", "0" * 32])
def test_why_a_token_is_refused_is_not_taken_for_its_value(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("TORCHSCALE_TOKEN", text)
    with pytest.raises(UsageError) as raised:
        read_token(None)
    assert redact_text(raised.value.message) == raised.value.message


def test_random_tokens_are_taken(tmp_path: Path) -> None:
    path = tmp_path / "token"
    for text in ["3be1a07f94c2d856", "correct-horse-battery", *(secrets.token_hex(16),) * 50]:
        path.write_text(text)
        assert read_token(path) == text.encode()


@pytest.mark.parametrize("mode", [0o666, 0o660, 0o620, 0o602, 0o622, 0o777])
def test_a_token_that_others_can_write_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "token"
    path.write_text(TOKEN)
    path.chmod(mode)
    with pytest.raises(UsageError, match=f"mode {mode:04o} lets others write it"):
        read_token(path)


@pytest.mark.parametrize(
    ("mode", "warned"), [(0o600, 0), (0o400, 0), (0o440, 0), (0o644, 1), (0o444, 1)]
)
def test_one_that_all_can_read_is_taken_with_a_warning(
    tmp_path: Path, mode: int, warned: int
) -> None:
    path = tmp_path / "token"
    path.write_text(TOKEN)
    path.chmod(mode)
    said: list[str] = []
    if os.access(path, os.R_OK):
        assert read_token(path, said.append) == TOKEN.encode()
    assert len(said) == warned
    assert all(f"mode {mode:04o}" in text for text in said)


def test_a_secret_of_kubernetes_is_taken_through_its_links(tmp_path: Path) -> None:
    """The kubelet mounts a folder of mode 1777 with links to one of mode 0755."""
    tmp_path.chmod(0o1777)
    (tmp_path / "..2026").mkdir(mode=0o755)
    (tmp_path / "..2026" / "token").write_text(TOKEN)
    (tmp_path / "..2026" / "token").chmod(0o440)
    (tmp_path / "..data").symlink_to("..2026")
    (tmp_path / "token").symlink_to("..data/token")
    said: list[str] = []
    assert read_token(tmp_path / "token", said.append) == TOKEN.encode()
    assert not said


def test_a_token_in_a_folder_where_all_can_exchange_it_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "open" / "token"
    path.parent.mkdir()
    path.write_text(TOKEN)
    path.chmod(0o600)
    path.parent.chmod(0o777)
    with pytest.raises(UsageError, match="everybody can exchange"):
        read_token(path)
    path.parent.chmod(0o1777)
    assert read_token(path) == TOKEN.encode()
