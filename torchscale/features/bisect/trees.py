"""Commits of the user's code, each checked out once below the cache. The user's own repository is
only read."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from torchscale.errors import MachineError, OutputError, UsageError
from torchscale.features.bisect.disk import Disk
from torchscale.schema.ident import content_hash
from torchscale.store.lock import locked_folder
from torchscale.util.files import atomic_write_text, make_directory, read_bounded, remove_tree
from torchscale.util.git import problem_of, run_git
from torchscale.util.text import one_line

CHECKOUT_SECONDS = 1800.0
"""Of a checkout by default, as of a build: Git LFS fetches what it must."""
_GIT_SECONDS = 600.0
_SHORT = 10
"""Characters of a commit's name that people are shown."""
_TITLE_CHARACTERS = 200
_STATUS = Path(".git") / "torchscale-status"
"""In a tree of ours: what git said of it when it was whole. Written last."""
_MOST_STATUS_BYTES = 16 << 20


@dataclass(frozen=True)
class Tree:
    """A commit that is checked out.

    Attributes:
        directory: What corresponds to the user's directory.
        note: What became of an earlier one; empty for nothing worth a line.
    """

    directory: Path
    note: str = ""


@dataclass(frozen=True)
class Repository:
    """The repository around a directory.

    Attributes:
        root: Its working tree.
        inside: The directory, below the root.
    """

    root: Path
    inside: Path

    def commit(self, revision: str) -> str:
        """The full name of a commit.

        Raises:
            UsageError: there is none of this name.
        """
        found = self._git(
            "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}"
        )
        if found is None:
            raise UsageError(f"git:{revision}: {self.root} has no such commit")
        return found.strip()

    def commits(self, good: str, bad: str) -> tuple[str, ...]:
        """Commits from ``good`` to ``bad``, both included, along first parents.

        Raises:
            UsageError: ``good`` is no ancestor of ``bad``.
        """
        if self._git("merge-base", "--is-ancestor", good, bad) is None:
            raise UsageError(
                f"git:{good[:_SHORT]} is no ancestor of git:{bad[:_SHORT]}",
                hint="name a good commit from which the bad one was made",
            )
        listed = self._git("rev-list", "--first-parent", "--reverse", f"{good}..{bad}") or ""
        return (good, *listed.split())

    def title(self, commit: str) -> str:
        """``1a2b3c4d5e Faster loader``."""
        line = self._git("log", "-1", "--no-show-signature", "--format=%s", commit) or ""
        return f"{commit[:_SHORT]} {one_line(line.strip())[:_TITLE_CHARACTERS]}".strip()

    def checked_out(
        self,
        commit: str,
        cache: Path,
        cancelled: Callable[[], bool] = lambda: False,
        *,
        timeout_seconds: float = CHECKOUT_SECONDS,
    ) -> Tree:
        """The directory that corresponds to :attr:`inside`, at a commit: from the cache, unless
        files of the commit are changed there.

        Raises:
            MachineError: it cannot be checked out.
            StoreError: another process does it.
            OutputError: the cache cannot be written, or its disk is full.
        """
        directory = (
            cache.absolute() / "trees" / f"{content_hash({'root': str(self.root)})}-{commit[:16]}"
        )
        make_directory(directory.parent)
        note = ""
        with locked_folder(directory.with_suffix(".lock")):
            if os.path.lexists(directory) and not _is_whole(directory, commit):
                note = "files in its cached checkout are not those of the commit: checked out again"
                remove_tree(directory)
            if not directory.is_dir():
                fresh = directory.with_suffix(".new")
                remove_tree(fresh)
                try:
                    self._check_out(commit, fresh, cancelled, timeout_seconds)
                    fresh.rename(directory)
                except OSError as error:
                    raise OutputError(f"cannot write {directory}: {error.strerror}") from error
                finally:
                    remove_tree(fresh)
        place = directory / self.inside
        if not place.is_dir():
            raise MachineError(f"{commit[:_SHORT]} has no directory {self.inside}")
        return Tree(place, note)

    def _check_out(
        self, commit: str, fresh: Path, cancelled: Callable[[], bool], timeout_seconds: float
    ) -> None:
        # An empty template: that of the user's configuration may bring hooks.
        clone = ("clone", "--quiet", "--shared", "--no-checkout", "--template=")
        steps = (
            (fresh.parent, (*clone, "--", str(self.root), str(fresh))),
            (fresh, ("checkout", "--quiet", "--detach", commit)),
        )
        disk = Disk(fresh.parent)
        seconds = 0.0
        for directory, step in steps:
            done = run_git(
                directory,
                *step,
                timeout_seconds=timeout_seconds - seconds,
                cancelled=disk.watched(cancelled),
            )
            seconds += done.seconds
            problem = problem_of(done)
            if not cancelled():
                disk.check(f"check out {commit[:_SHORT]}", problem)
            if done.timed_out:
                problem += (
                    " (--build-timeout); a filter of git, such as Git LFS, may wait for a network"
                )
            if problem:
                raise MachineError(f"git {step[0]}: {problem}")
        atomic_write_text(fresh / _STATUS, _status(fresh))

    def _git(self, *arguments: str) -> str | None:
        """What git prints; ``None`` where it says no.

        Raises:
            MachineError: it does not end.
        """
        done = run_git(self.root, *arguments, timeout_seconds=_GIT_SECONDS)
        if done.timed_out:
            raise MachineError(f"git {arguments[0]} in {self.root}: {problem_of(done)}")
        return done.stdout if done.returncode == 0 else None


def repository_of(directory: Path) -> Repository:
    """The repository around a directory.

    Raises:
        UsageError: there is none, or it has no working tree there.
        MachineError: git is not installed.
    """
    where = ("--is-bare-repository", "--is-inside-work-tree", "--show-cdup")
    done = run_git(directory, "rev-parse", *where, timeout_seconds=_GIT_SECONDS)
    problem = problem_of(done)
    if problem:
        raise UsageError(
            f"git:REV: {directory.absolute()} is in no git repository that can be read: {problem}",
            hint="start it in the working tree of your code; GIT_DIR and GIT_WORK_TREE are not read",
        )
    is_bare, is_inside, *up = done.stdout.splitlines()
    if is_inside != "true":
        what = "a bare repository" if is_bare == "true" else "the inside of a repository"
        raise UsageError(
            f"git:REV: {directory.absolute()} is {what}, without the files of a commit",
            hint="start it in a working tree, such as a clone: the command runs in the same "
            "directory of each commit",
        )
    here = directory.resolve()
    top = (here / "".join(up)).resolve()
    return Repository(top, here.relative_to(top))


def _status(tree: Path) -> str:
    """Which commit a tree has, and which of its files differ; empty where git cannot say."""
    arguments = (
        "status",
        "--porcelain=v2",
        "--branch",
        "--no-ahead-behind",
        "--untracked-files=no",
    )
    done = run_git(tree, *arguments, timeout_seconds=_GIT_SECONDS)
    return done.stdout if done.returncode == 0 else ""


def _is_whole(tree: Path, commit: str) -> bool:
    """Whether a tree has the files that it was made with. What launches added counts for nothing."""
    with suppress(OSError):
        before = read_bounded(tree / _STATUS, _MOST_STATUS_BYTES).decode(errors="replace")
        return not tree.is_symlink() and commit in before and _status(tree) == before
    return False
