"""Commits of the user's code, checked out below the cache."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.repositories import commits, everything, git
from torchscale.errors import MachineError, UsageError
from torchscale.features.bisect.question import ask
from torchscale.features.bisect.trees import repository_of
from torchscale.util.processes.description import is_running

pytestmark = pytest.mark.slow


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
    place = found.checked_out(found.commit("v2"), tmp_path / "cache").directory
    assert (place / "train.py").read_text() == "print(2)\n"
    assert place.name == "job"
    assert place.is_relative_to(tmp_path / "cache")
    assert found.checked_out(found.commit("v2"), tmp_path / "cache").directory == place
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


def bisect_line(tmp_path: Path) -> list[str]:
    """The real command, from v1 to v4: what it writes is beside the repository."""
    return [
        sys.executable, "-m", "torchscale", "bisect", "git:v1", "git:main", "--metric", "wall",
        "--max-launches", "6", f"--cache={tmp_path / 'cache'}", f"--output-dir={tmp_path / 'out'}",
        "--", "python3", "train.py",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "variables",
    [
        {"GIT_DIR": "{root}/.git"},
        {"GIT_DIR": ".git", "GIT_INDEX_FILE": "{root}/.git/index"},
        {"GIT_DIR": "{root}/.git", "GIT_WORK_TREE": "{root}"},
        {"GIT_OBJECT_DIRECTORY": "{root}/.git/objects"},
        {
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "core.worktree",
            "GIT_CONFIG_VALUE_0": "{root}",
        },
        {"GIT_CONFIG_PARAMETERS": "'core.bare'='true'"},
    ],
    ids="+".join,
)
def test_the_users_repository_is_as_it_was_whatever_variables_name_it(
    repository: Path, tmp_path: Path, variables: dict[str, str]
) -> None:
    """By the real command, with changes that are staged, changes that are not, and a stash."""
    train = repository / "job" / "train.py"
    train.write_text("stashed\n")
    git(repository, "stash")
    train.write_text("staged\n")
    git(repository, "add", ".")
    train.write_text("changed\n")
    before = everything(repository)
    named = {name: value.format(root=repository) for name, value in variables.items()}
    done = subprocess.run(
        bisect_line(tmp_path), cwd=repository / "job", env={**os.environ, **named},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode in (0, 3), done.stderr
    assert (tmp_path / "out" / "launches" / "launch-000.log").read_text() in ("1\n", "4\n")
    assert everything(repository) == before


@pytest.mark.parametrize("how", ["hook", "rebase --exec"])
def test_from_what_git_itself_starts(repository: Path, tmp_path: Path, how: str) -> None:
    script = tmp_path / "script"
    words = " ".join(f"'{word}'" for word in bisect_line(tmp_path))
    said = tmp_path / "said"
    script.write_text(
        f"#!/bin/sh\ncd job && {words} > {said} 2>&1\necho $? $(git status --porcelain) > {said}.end\n"
    )
    script.chmod(0o755)
    if how == "hook":
        shutil.copy(script, repository / ".git" / "hooks" / "post-commit")
        git(repository, "commit", "--quiet", "--allow-empty", "-m", "Number 5")
    else:
        git(repository, "rebase", "--quiet", "--force-rebase", f"--exec={script}", "HEAD~1")
    assert (tmp_path / "said.end").read_text().split() in (["0"], ["3"]), said.read_text()
    assert git(repository, "symbolic-ref", "HEAD") == "refs/heads/main"
    assert git(repository, "status", "--porcelain") == ""
    assert "moving from" not in git(repository, "reflog", "-1")


def linked(repository: Path, tmp_path: Path) -> Path:
    git(repository, "worktree", "add", "--quiet", str(tmp_path / "linked"), "v2")
    return tmp_path / "linked"


def submodule(repository: Path, tmp_path: Path) -> Path:
    above = tmp_path / "above"
    commits(above, "print(0)\n")
    git(above, "submodule", "--quiet", "add", str(repository), "sub")
    return above / "sub"


@pytest.mark.parametrize("make", [linked, submodule])
def test_in_other_kinds_of_working_trees(
    repository: Path, tmp_path: Path, make: Callable[[Path, Path], Path]
) -> None:
    place = make(repository, tmp_path)
    before = everything(place), everything(repository)
    found = repository_of(place / "job")
    tree = found.checked_out(found.commit("v1"), tmp_path / "cache")
    assert (tree.directory / "train.py").read_text() == "print(1)\n"
    assert (everything(place), everything(repository)) == before


@pytest.mark.parametrize("inside", ["", "refs"])
def test_a_bare_repository_is_named(repository: Path, tmp_path: Path, inside: str) -> None:
    bare = tmp_path / "bare.git"
    git(tmp_path, "clone", "--quiet", "--bare", str(repository), str(bare))
    with pytest.raises(UsageError, match="is a bare repository"):
        repository_of(bare / inside)


def test_the_inside_of_a_repository_is_named(repository: Path) -> None:
    with pytest.raises(UsageError, match="is the inside of a repository"):
        repository_of(repository / ".git")


@pytest.mark.parametrize("setting", ["core.hooksPath", "init.templateDir", "core.fsmonitor"])
def test_no_hook_of_the_users_runs_in_a_checkout(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    ran, hooks = tmp_path / "ran", tmp_path / "own" / "hooks"
    hooks.mkdir(parents=True)
    for name in ("post-checkout", "post-merge", "post-index-change", "reference-transaction"):
        (hooks / name).write_text(f"#!/bin/sh\necho {name} >> {ran}\n")
        (hooks / name).chmod(0o755)
    value = {
        "core.hooksPath": hooks,
        "init.templateDir": hooks.parent,
        "core.fsmonitor": hooks / "post-checkout",
    }[setting]
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "config"))
    git(tmp_path, "config", "--file", str(tmp_path / "config"), setting, str(value))
    found = repository_of(repository)
    tree = found.checked_out(found.commit("v2"), tmp_path / "cache").directory
    assert found.checked_out(found.commit("v2"), tmp_path / "cache").note == ""
    assert not ran.exists()
    assert not (tree / ".git" / "hooks" / "post-checkout").exists()


def test_filters_of_the_users_make_the_files(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Git LFS does."""
    (tmp_path / "attributes").write_text("*.py filter=loud\n")
    (tmp_path / "config").write_text(
        f"[core]\nattributesFile = {tmp_path / 'attributes'}\n"
        '[filter "loud"]\nsmudge = tr p P\nclean = tr P p\n'
    )
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "config"))
    found = repository_of(repository / "job")
    tree = found.checked_out(found.commit("v2"), tmp_path / "cache")
    assert (tree.directory / "train.py").read_text() == "Print(2)\n"
    assert found.checked_out(found.commit("v2"), tmp_path / "cache").note == ""


def test_a_checkout_that_hangs_is_ended_and_named(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "attributes").write_text("*.py filter=slow\n")
    pid = tmp_path / "pid"
    (tmp_path / "config").write_text(
        f"[core]\nattributesFile = {tmp_path / 'attributes'}\n"
        f'[filter "slow"]\nsmudge = "echo $$ > {pid}; exec sleep 600"\nrequired = true\n'
    )
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "config"))
    found = repository_of(repository / "job")
    with pytest.raises(
        MachineError, match=r"git (clone|checkout): .*not ended.*--build-timeout.*LFS"
    ):
        found.checked_out(found.commit("v2"), tmp_path / "cache", timeout_seconds=2)
    assert [path.suffix for path in (tmp_path / "cache" / "trees").iterdir()] == [".lock"]
    if pid.exists() and psutil.pid_exists(number := int(pid.read_text())):
        assert not is_running(psutil.Process(number))


def edited(tree: Path) -> None:
    (tree / "job" / "train.py").write_text("print(9)\n")


def edited_unseen(tree: Path) -> None:
    """With the size and the time of before."""
    path = tree / "job" / "train.py"
    status = path.stat()
    path.write_text("print(9)\n")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def deleted(tree: Path) -> None:
    (tree / "job" / "train.py").unlink()


def committed(tree: Path) -> None:
    edited(tree)
    git(tree, "commit", "--quiet", "-am", "Mine")


def at_another_commit(tree: Path) -> None:
    git(tree, "checkout", "--quiet", "v1")


def without_git(tree: Path) -> None:
    shutil.rmtree(tree / ".git")


def a_link(tree: Path) -> None:
    tree.rename(tree.with_name("elsewhere"))
    tree.symlink_to("elsewhere")


def a_file(tree: Path) -> None:
    shutil.rmtree(tree)
    tree.touch()


@pytest.mark.parametrize(
    "change",
    [edited, edited_unseen, deleted, committed, at_another_commit, without_git, a_link, a_file],
)
def test_a_checkout_that_was_changed_is_made_again(
    repository: Path, tmp_path: Path, change: Callable[[Path], None]
) -> None:
    found = repository_of(repository / "job")
    git(repository, "tag", "--force", "v1", "v1")
    made = found.checked_out(found.commit("v2"), tmp_path / "cache").directory
    git(made, "fetch", "--quiet", "--tags")
    assert found.checked_out(found.commit("v2"), tmp_path / "cache").note == ""
    change(made.parent)
    again = found.checked_out(found.commit("v2"), tmp_path / "cache")
    assert "checked out again" in again.note
    assert (again.directory / "train.py").read_text() == "print(2)\n"
    assert found.checked_out(found.commit("v2"), tmp_path / "cache").note == ""


def test_what_launches_add_to_a_checkout_stays(repository: Path, tmp_path: Path) -> None:
    found = repository_of(repository / "job")
    made = found.checked_out(found.commit("v2"), tmp_path / "cache").directory
    (made / "model.pt").touch()
    assert found.checked_out(found.commit("v2"), tmp_path / "cache").note == ""
    assert (made / "model.pt").exists()


def test_a_long_title_is_cut(repository: Path) -> None:
    git(repository, "commit", "--quiet", "--allow-empty", "-m", "x" * 5000)
    found = repository_of(repository)
    assert len(found.title(found.commit("main"))) < 300
