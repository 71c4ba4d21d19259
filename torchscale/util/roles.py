"""Roles of programs that are one job: their names, and where each is watched."""

from __future__ import annotations

import os
import re
from pathlib import Path

from torchscale.errors import UsageError

VARIABLE = "TORCHSCALE_WATCH_ROLE"
MARKER = "roles.json"
"""In the folder of a job whose programs have roles: each has a folder of its own in it."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")


def chosen_role(named: str | None) -> str:
    """The role that was named, else that of the variable; empty for none.

    Raises:
        UsageError: it is no name of a folder.
    """
    role = os.environ.get(VARIABLE, "") if named is None else named
    if role and not _NAME.fullmatch(role):
        raise UsageError(
            f"the role {role!r} is no name: expected letters, digits, - and _, at most 40",
            hint="trainer, rollout, reward",
        )
    return role


def role_folder(directory: Path, role: str) -> Path:
    """Where a program of this role is watched; the folder of the job is made.

    Raises:
        OSError: it cannot be made.
    """
    if not role:
        return directory
    directory.mkdir(parents=True, exist_ok=True)
    (directory / MARKER).write_text('{"kind": "watch-roles"}\n')  # the same by whoever writes it
    return directory / role
