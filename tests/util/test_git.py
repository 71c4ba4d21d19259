"""git, whatever variables and configuration say."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.repositories import commits, everything, git
from torchscale.errors import MachineError
from torchscale.util.git import OF_ONE_REPOSITORY, problem_of, run_git, without_repository

pytestmark = pytest.mark.slow

SECONDS = 60.0
LISTED = subprocess.run(
    ["git", "rev-parse", "--local-env-vars"], capture_output=True, text=True, check=True, timeout=60
).stdout.split()
"""The variables that this git calls those of one repository."""


@pytest.fixture
def repositories(tmp_path: Path) -> tuple[Path, Path]:
    """The user's, and another one."""
    mine, other = tmp_path / "mine", tmp_path / "other"
    commits(mine, "print(1)\n")
    commits(other, "print(2)\n", "print(3)\n")
    return mine, other


def test_all_that_git_itself_calls_variables_of_one_repository_are_known() -> None:
    assert set(LISTED) <= OF_ONE_REPOSITORY


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("GIT_DIR", "{mine}/.git"),
        ("GIT_WORK_TREE", "{mine}"),
        ("GIT_INDEX_FILE", "{mine}/.git/index"),
        ("GIT_OBJECT_DIRECTORY", "{mine}/.git/objects"),
        ("GIT_COMMON_DIR", "{mine}/.git"),
        ("GIT_CONFIG_PARAMETERS", "'core.bare'='true'"),
        ("GIT_CONFIG_COUNT", "many"),
        ("GIT_PREFIX", "job/"),
        ("GIT_SHALLOW_FILE", "{mine}/.git/HEAD"),
        ("GIT_QUARANTINE_PATH", "{mine}/.git/objects/incoming"),
        ("GIT_NAMESPACE", "nobody"),
    ],
)
def test_the_repository_is_that_of_the_directory(
    repositories: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    mine, other = repositories
    before = everything(mine)
    monkeypatch.setenv(name, value.format(mine=mine))
    found = run_git(other, "rev-parse", "--show-toplevel", "HEAD", timeout_seconds=SECONDS)
    assert found.stdout.split() == [str(other.resolve()), git(other, "rev-parse", "v2")]
    assert run_git(other, "checkout", "-q", "v1", timeout_seconds=SECONDS).returncode == 0
    assert run_git(other, "tag", "made", timeout_seconds=SECONDS).returncode == 0
    assert (other / "job" / "train.py").read_text() == "print(2)\n"
    assert everything(mine) == before


def test_where_git_may_look_stays_and_so_does_the_users_configuration() -> None:
    kept = {"GIT_CEILING_DIRECTORIES": "/a", "GIT_CONFIG_GLOBAL": "/b", "PATH": "/c"}
    dropped = dict.fromkeys(LISTED, "x")
    assert without_repository({**kept, **dropped}) == kept


@pytest.mark.parametrize("setting", ["hooksPath", "fsmonitor", "hooks"])
def test_no_hook_runs(
    repositories: tuple[Path, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    setting: str,
) -> None:
    _, other = repositories
    ran = tmp_path / "ran"
    hooks = other / ".git" / "hooks" if setting == "hooks" else tmp_path / "hooks"
    hooks.mkdir(exist_ok=True)
    for name in ("post-checkout", "post-index-change", "reference-transaction", "monitor"):
        (hooks / name).write_text(f"#!/bin/sh\necho {name} >> {ran}\n")
        (hooks / name).chmod(0o755)
    config = tmp_path / "config"
    value = hooks / "monitor" if setting == "fsmonitor" else hooks
    if setting != "hooks":
        config.write_text(f"[core]\n{setting} = {value}\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    for words in (("status",), ("checkout", "-q", "v1"), ("update-ref", "refs/heads/x", "HEAD")):
        assert run_git(other, *words, timeout_seconds=SECONDS).returncode == 0
    assert not ran.exists()


def test_to_look_at_a_repository_writes_nothing_in_it(repositories: tuple[Path, Path]) -> None:
    mine, _ = repositories
    os.utime(mine / "job" / "train.py", (1, 1))  # git would note the new time in the index
    before = everything(mine)
    assert run_git(mine, "status", timeout_seconds=SECONDS).returncode == 0
    assert everything(mine) == before


def test_why_it_failed(tmp_path: Path, repositories: tuple[Path, Path]) -> None:
    mine, _ = repositories
    assert problem_of(run_git(mine, "status", timeout_seconds=SECONDS)) == ""
    assert "revision" in problem_of(run_git(mine, "log", "nothing", timeout_seconds=SECONDS))
    assert "exit code 1" in problem_of(
        run_git(mine, "rev-parse", "-q", "--verify", "x", timeout_seconds=SECONDS)
    )
    slow = run_git(mine, "-c", "alias.wait=!sleep 600", "wait", timeout_seconds=0.3)
    assert "had not ended" in problem_of(slow)


def test_no_git_is_an_error_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MachineError, match="cannot start git"):
        run_git(tmp_path, "status", timeout_seconds=SECONDS)
