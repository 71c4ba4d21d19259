"""Commits of the user's code, checked out below the cache."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from torchscale.bisect.question import ask
from torchscale.bisect.trees import repository_of
from torchscale.errors import MachineError, UsageError

pytestmark = pytest.mark.slow


def git(directory: Path, *arguments: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    done = subprocess.run(
        ["git", "-C", str(directory), *who, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Four commits of ``job/train.py``; the third is a merge of another branch."""
    root = tmp_path / "code"
    (root / "job").mkdir(parents=True)
    git(root, "init", "--quiet", "--initial-branch=main")
    for number in (1, 2):
        (root / "job" / "train.py").write_text(f"print({number})\n")
        git(root, "add", ".")
        git(root, "commit", "--quiet", "-m", f"Number {number}")
        git(root, "tag", f"v{number}")
    git(root, "checkout", "--quiet", "-b", "side", "v1")
    git(root, "commit", "--quiet", "--allow-empty", "-m", "On the side")
    git(root, "checkout", "--quiet", "main")
    git(root, "merge", "--quiet", "--no-ff", "-m", "Merge the side", "side")
    (root / "job" / "train.py").write_text("print(4)\n")
    git(root, "commit", "--quiet", "-am", "Number 4")
    return root


def test_commits_along_first_parents_with_their_titles(repository: Path) -> None:
    question = ask("git:v1", "git:main", directory=repository / "job")
    titles = [candidate.label.partition(" ")[2] for candidate in question.candidates]
    assert titles == ["Number 1", "Number 2", "Merge the side", "Number 4"]


def test_a_commit_is_checked_out_beside_the_users_files(repository: Path, tmp_path: Path) -> None:
    (repository / "job" / "train.py").write_text("changed\n")
    before = git(repository, "status", "--porcelain"), git(repository, "worktree", "list")
    found = repository_of(repository / "job")
    place = found.checked_out(found.commit("v2"), tmp_path / "cache")
    assert (place / "train.py").read_text() == "print(2)\n"
    assert place.name == "job"
    assert place.is_relative_to(tmp_path / "cache")
    assert found.checked_out(found.commit("v2"), tmp_path / "cache") == place
    assert (git(repository, "status", "--porcelain"), git(repository, "worktree", "list")) == before


def test_what_is_no_question(repository: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such commit"):
        ask("git:v9", "git:main", directory=repository)
    with pytest.raises(UsageError, match="no ancestor"):
        ask("git:main", "git:v1", directory=repository)
    with pytest.raises(UsageError, match="the same commit"):
        ask("git:v2", "git:v2", directory=repository)
    with pytest.raises(UsageError, match="no git repository"):
        ask("git:v1", "git:v2", directory=tmp_path)


def test_a_commit_without_the_directory_is_named(repository: Path, tmp_path: Path) -> None:
    git(repository, "mv", "job", "work")
    git(repository, "commit", "--quiet", "-m", "Moved")
    found = repository_of(repository / "work")
    with pytest.raises(MachineError, match="has no directory work"):
        found.checked_out(found.commit("v1"), tmp_path / "cache")
