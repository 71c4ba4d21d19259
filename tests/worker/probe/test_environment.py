from __future__ import annotations

import os
import platform
import subprocess
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest
import torch

from tests.repositories import commits, everything
from torchscale.schema.node.environment import Environment
from torchscale.util.git import run_git
from torchscale.util.processes.bounded import Finished
from torchscale.util.secret_names import REDACTED
from torchscale.worker.probe import environment
from torchscale.worker.probe.environment import (
    collect_environment,
    cpu_only_torch,
    relevant_variables,
)


def git(directory: Path, *arguments: str) -> str:
    command = ["git", "-c", "user.name=someone", "-c", "user.email=someone@example.com", *arguments]
    return subprocess.run(
        command, cwd=directory, check=True, capture_output=True, text=True
    ).stdout.strip()


def test_the_machine_as_torch_sees_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_AUTH", "s3cret-value")
    monkeypatch.setenv("UNRELATED", "s3cret-value")
    found = collect_environment()
    assert found.hostname == platform.node()
    assert found.versions.torch == str(torch.__version__)
    assert (found.versions.cuda is None) == (not torch.cuda.is_available())
    assert len(found.devices) == torch.cuda.device_count()
    assert found.env["NCCL_AUTH"] == REDACTED
    assert "s3cret-value" not in found.model_dump_json()
    assert Environment.model_validate_json(found.model_dump_json()) == found


def test_the_commit_of_the_directory_it_was_started_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    monkeypatch.chdir(tmp_path)
    assert collect_environment().git_commit is None
    git(tmp_path, "init", "-q")
    (tmp_path / "file").write_text("one")
    git(tmp_path, "add", "file")
    git(tmp_path, "commit", "-q", "-m", "first")
    commit = git(tmp_path, "rev-parse", "HEAD")
    assert collect_environment().git_commit == commit
    (tmp_path / "file").write_text("two")
    assert collect_environment().git_commit == f"{commit}-dirty"


def test_the_branch_of_the_directory_or_the_one_that_ci_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    for name in (
        "GITHUB_HEAD_REF",
        "GITHUB_REF_NAME",
        "CI_COMMIT_BRANCH",
        "CI_MERGE_REQUEST_SOURCE_BRANCH_NAME",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    assert collect_environment().git_branch is None
    git(tmp_path, "init", "-q", "-b", "faster-loader")
    assert collect_environment().git_branch == "faster-loader"  # before the first commit too
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "first")
    assert collect_environment().git_branch == "faster-loader"
    git(tmp_path, "checkout", "-q", "--detach")
    assert collect_environment().git_branch is None
    monkeypatch.setenv("GITHUB_HEAD_REF", "")
    monkeypatch.setenv("GITHUB_REF_NAME", "main")
    assert collect_environment().git_branch == "main"
    monkeypatch.chdir("/")
    assert collect_environment().git_branch is None


def test_the_checkout_is_that_of_the_directory_and_its_index_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a hook, variables name the user's repository, which may be another one."""
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    commits(tmp_path / "here", "print(1)\n", "print(2)\n")
    commits(tmp_path / "other", "print(3)\n")
    monkeypatch.chdir(tmp_path / "here" / "job")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "other" / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "other" / ".git" / "index"))
    os.utime("train.py", (1, 1))  # git would note it in the index
    before = everything(tmp_path)
    found = collect_environment()
    assert (found.git_commit, found.git_branch) == (
        git(tmp_path / "here", "--git-dir=.git", "rev-parse", "HEAD"),
        "main",
    )
    assert everything(tmp_path) == before


def test_a_checkout_that_takes_too_long_to_look_at_has_a_branch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits(tmp_path, "print(1)\n")
    monkeypatch.chdir(tmp_path)

    def status_hangs(directory: Path, *words: str, timeout_seconds: float) -> Finished:
        if words[0] == "status":
            return Finished(-15, "", "", timed_out=True, seconds=timeout_seconds)
        return run_git(directory, *words, timeout_seconds=60)

    monkeypatch.setattr(environment, "run_git", status_hangs)
    found = collect_environment()
    assert (found.git_commit, found.git_branch) == (None, "main")


@pytest.mark.parametrize(
    ("version_file", "expected"),
    [
        (
            "__version__ = '2.13.0+cpu'\ncuda: str | None = None\nhip = None\nxpu = None\n",
            "2.13.0+cpu",
        ),
        ("__version__ = '2.13.0+cu130'\ncuda = '13.0'\nhip = None\nxpu = None\n", None),
        ("__version__ = '2.9.0+rocm6.4'\ncuda = None\nhip = '6.4'\nxpu = None\n", None),
        ("__version__ = '1.0'\n", None),
        ("__version__ = \n", None),
        (None, None),
    ],
)
def test_a_build_of_torch_for_cpus_alone_is_known_from_its_version_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version_file: str | None, expected: str | None
) -> None:
    if version_file is not None:
        (tmp_path / "version.py").write_text(version_file)
    spec = ModuleSpec("torch", None, origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr(environment, "find_spec", lambda _: spec)
    monkeypatch.setattr(sys, "platform", "linux")
    assert cpu_only_torch.__wrapped__() == expected


@pytest.mark.skipif(
    cpu_only_torch() is None, reason="this torch may see devices, so that it must be imported"
)
def test_a_build_for_cpus_alone_is_not_imported() -> None:
    code = (
        "import sys\nfrom torchscale.worker.probe.environment import collect_environment as "
        "collect\ncollect()"
    )
    code += "\nprint('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "False"


def test_only_variables_that_can_change_a_figure_are_kept() -> None:
    found = relevant_variables(
        {
            "NCCL_DEBUG": "INFO",
            "HOME": "/root",
            "TORCHSCALE_LAUNCHER_PID": "3",
            "TORCH_NCCL_KEY": "x",
            "OMP_PLACES": "cores",
        }
    )
    assert found == {"NCCL_DEBUG": "INFO", "OMP_PLACES": "cores", "TORCH_NCCL_KEY": REDACTED}


def test_bytes_that_are_no_text_in_a_variable_are_shown_as_escapes() -> None:
    assert relevant_variables({"NCCL_X": "a\udcffb"}) == {"NCCL_X": "a\\xffb"}
