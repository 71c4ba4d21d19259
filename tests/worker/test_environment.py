from __future__ import annotations

import platform
import subprocess
from pathlib import Path

import pytest
import torch

from torchscale.schema.node.environment import REDACTED, Environment
from torchscale.worker.environment import collect_environment


def git(directory: Path, *arguments: str) -> str:
    command = ["git", "-c", "user.name=someone", "-c", "user.email=someone@example.com", *arguments]
    return subprocess.run(command, cwd=directory, check=True, capture_output=True, text=True).stdout.strip()


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


def test_the_commit_of_the_directory_it_was_started_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
