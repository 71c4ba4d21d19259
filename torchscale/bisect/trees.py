"""Commits of the user's code, each checked out once below the cache. The user's own repository is
only read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from torchscale.errors import MachineError, UsageError
from torchscale.schema.ident import content_hash
from torchscale.store.lock import locked_folder
from torchscale.util.files import make_directory, remove_tree
from torchscale.util.processes.subprocesses import run_bounded

_GIT_SECONDS = 600.0
_SHORT = 10
"""Characters of a commit's name that people are shown."""


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
        line = (self._git("log", "-1", "--format=%s", commit) or "").strip()
        return f"{commit[:_SHORT]} {line}".strip()

    def checked_out(
        self, commit: str, cache: Path, cancelled: Callable[[], bool] = lambda: False
    ) -> Path:
        """The directory that corresponds to :attr:`inside`, at a commit.

        Raises:
            MachineError: it cannot be checked out.
            StoreError: another process does it.
            OutputError: the cache cannot be written.
        """
        directory = (
            cache.absolute() / "trees" / f"{content_hash({'root': str(self.root)})}-{commit[:16]}"
        )
        make_directory(directory.parent)
        with locked_folder(directory.with_suffix(".lock")):
            if not directory.is_dir():
                fresh = directory.with_suffix(".new")
                remove_tree(fresh)
                self._check_out(commit, fresh, cancelled)
                fresh.rename(directory)
        place = directory / self.inside
        if not place.is_dir():
            raise MachineError(f"{commit[:_SHORT]} has no directory {self.inside}")
        return place

    def _check_out(self, commit: str, fresh: Path, cancelled: Callable[[], bool]) -> None:
        steps = (
            ("clone", "--quiet", "--shared", "--no-checkout", str(self.root), str(fresh)),
            ("-C", str(fresh), "checkout", "--quiet", "--detach", commit),
        )
        for step in steps:
            done = run_bounded(["git", *step], timeout_seconds=_GIT_SECONDS, cancelled=cancelled)
            if done.returncode != 0:
                remove_tree(fresh)
                raise MachineError(f"git {step[0]}: {done.stderr.strip()[-300:]}")

    def _git(self, *arguments: str) -> str | None:
        return _git(self.root, *arguments)


def repository_of(directory: Path) -> Repository:
    """The repository around a directory.

    Raises:
        UsageError: there is none.
        MachineError: git is not installed.
    """
    root = _git(directory, "rev-parse", "--show-toplevel")
    if root is None:
        raise UsageError(f"git:REV: {directory.absolute()} is in no git repository")
    top = Path(root.strip())
    return Repository(top, directory.resolve().relative_to(top.resolve()))


def _git(directory: Path, *arguments: str) -> str | None:
    """What git prints; ``None`` where it fails."""
    done = run_bounded(["git", "-C", str(directory), *arguments], timeout_seconds=_GIT_SECONDS)
    return done.stdout if done.returncode == 0 else None
