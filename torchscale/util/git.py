"""git, always started in one way: it finds the repository from a directory alone, changes nothing in
passing, and runs no hooks."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from torchscale.util.processes.bounded import Finished, run_bounded
from torchscale.util.processes.subprocesses import inherited_environment

OF_ONE_REPOSITORY = frozenset(
    (
        # `git rev-parse --local-env-vars` of git 2.25 to 2.50 (`local_repo_env` of its environment.c).
        "GIT_ALTERNATE_OBJECT_DIRECTORIES",
        "GIT_COMMON_DIR",
        "GIT_CONFIG",
        "GIT_CONFIG_COUNT",
        "GIT_CONFIG_PARAMETERS",
        "GIT_DIR",
        "GIT_GRAFT_FILE",
        "GIT_IMPLICIT_WORK_TREE",
        "GIT_INDEX_FILE",
        "GIT_INTERNAL_SUPER_PREFIX",
        "GIT_NO_REPLACE_OBJECTS",
        "GIT_OBJECT_DIRECTORY",
        "GIT_PREFIX",
        "GIT_REPLACE_REF_BASE",
        "GIT_SHALLOW_FILE",
        "GIT_WORK_TREE",
        # Of a push that its hooks still judge: git then refuses new references everywhere.
        "GIT_QUARANTINE_PATH",
        # Of references that a server shows of one repository.
        "GIT_NAMESPACE",
    )
)
"""Variables that hooks and ``git rebase --exec`` set, and that lead git to the user's repository from
any directory. Those that say where git may look (``GIT_CEILING_DIRECTORIES``), or which configuration
is the user's (``GIT_CONFIG_GLOBAL``), are none of them."""
_SETTINGS = (
    # Hooks are for what the user does: a clone of ours is none of that.
    f"core.hooksPath={os.devnull}",
    # It starts a daemon, or a program of the user's, for every working tree that is looked at.
    "core.fsmonitor=false",
)
"""Filters (Git LFS), line endings and all else of the user's configuration stay: they decide what
the files of a commit are."""
_MESSAGE_CHARACTERS = 300


def without_repository(variables: Mapping[str, str]) -> dict[str, str]:
    """``variables`` without those that lead git to one repository from any directory."""
    return {name: value for name, value in variables.items() if name not in OF_ONE_REPOSITORY}


def run_git(
    directory: Path,
    *arguments: str,
    timeout_seconds: float,
    cancelled: Callable[[], bool] = lambda: False,
) -> Finished:
    """Run git in a directory, to its end or to ``timeout_seconds``. The repository is the one around
    the directory, whatever variables say. A non-zero exit is not an error.

    Raises:
        MachineError: git is not installed, or there is no place for temporary files.
    """
    settings = [word for setting in _SETTINGS for word in ("-c", setting)]
    variables = {**without_repository(inherited_environment()), "GIT_OPTIONAL_LOCKS": "0"}
    return run_bounded(
        ["git", "-C", str(directory), *settings, *arguments],
        timeout_seconds=timeout_seconds,
        env=variables,
        cancelled=cancelled,
    )


def problem_of(done: Finished) -> str:
    """What git said was wrong; empty where it succeeded."""
    if done.returncode == 0:
        return ""
    if done.timed_out:
        return f"it had not ended after {done.seconds:.0f} s"
    said = done.stderr.strip().removeprefix("fatal: ")[-_MESSAGE_CHARACTERS:]
    return said or f"exit code {done.returncode}"
