"""The secret that all nodes of a sweep share."""

from __future__ import annotations

import itertools
import os
import shlex
import stat
from collections.abc import Callable
from pathlib import Path

from torchscale.errors import UsageError
from torchscale.util.files import read_bounded
from torchscale.util.redaction import note_values

TOKEN_VARIABLE = "TORCHSCALE_TOKEN"  # noqa: S105 - the name of the variable
"""Environment variable with the secret that all nodes of a sweep share."""
_MIN_TOKEN_CHARACTERS = 16
"""Who records a handshake can try tokens offline: 16 random characters of 6 bits are beyond
that."""
_MIN_SURPRISES = 12
"""Characters that do not follow from those before: one of 16 random hexadecimal digits in sixty
does, so that fewer than 12 never happen; ``xxxx…``, ``abcdefgh…`` and ``passwordpassword`` have 2
to 10."""
_MAX_TOKEN_BYTES = 4096


def read_token(path: Path | None, warn: Callable[[str], None] = lambda _: None) -> bytes:
    """The secret that all nodes share: the content of ``path``, else of the variable
    :data:`TOKEN_VARIABLE`, which is removed from this process's environment, so that no process of
    a launch has it.

    Args:
        path: The file.
        warn: Called with a text if all users of this machine can read the file. That is no error:
            Kubernetes mounts Secrets so.

    Raises:
        UsageError: there is none, it cannot be read, it is too short or easily guessed, or others
            can write the file.
    """
    variable = os.environ.pop(TOKEN_VARIABLE, "")
    hint = (
        "write the same secret on every node: `(umask 077; openssl rand -hex 32 > token)`, then "
        f"--token-file token or {TOKEN_VARIABLE}=$(cat token)"
    )
    if os.environ.get("SLURM_STEP_NUM_NODES", "1") not in ("", "1"):
        hint = (
            f"leave out srun: in a job, the command starts a step on each node itself; else {hint}"
        )
    if path is None:
        text, origin = variable.strip(), TOKEN_VARIABLE
        if not text:
            raise UsageError(
                f"{TOKEN_VARIABLE} is not set and --token-file is not given", hint=hint
            )
    else:
        origin = f"--token-file {path}"
        try:
            _check_access(path, origin, warn)
            text = read_bounded(path, _MAX_TOKEN_BYTES).decode().strip()
        except (OSError, UnicodeDecodeError) as error:
            reason: str | None = "not text"
            if isinstance(error, OSError):
                reason = error.strerror
            raise UsageError(f"{origin}: {reason or error}", hint=hint) from error
    if len(text) < _MIN_TOKEN_CHARACTERS:
        raise UsageError(
            f"{origin} has {len(text)} characters; a token has at least {_MIN_TOKEN_CHARACTERS}, "
            "chosen at random",
            hint=hint,
        )
    if _surprises(text) < _MIN_SURPRISES:
        raise UsageError(f"{origin} is easily guessed; a token is chosen at random", hint=hint)
    note_values([text])
    return text.encode()


def _check_access(path: Path, origin: str, warn: Callable[[str], None]) -> None:
    """Who else can use the file of a token. Who can write it chooses the secret, so this is an
    error, as it is to sshd. Who can read it, can join the sweep: group members are let, and of all
    users there is a warning, unless the file was mounted to be read alone, as Secrets are.

    Raises:
        UsageError: others can write the file or exchange it.
        OSError: it cannot be looked at.
    """
    mode = path.stat().st_mode
    name = shlex.quote(str(path))
    if not stat.S_ISREG(mode):
        return
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise UsageError(
            f"{origin}: mode {stat.S_IMODE(mode):04o} lets others write it",
            hint=f"chmod 600 {name}, and make a new token if others use this machine",
        )
    directory = path.resolve().parent
    above = directory.stat().st_mode
    if above & stat.S_IWOTH and not above & stat.S_ISVTX:
        raise UsageError(
            f"{origin}: everybody can exchange files of {directory} (mode "
            f"{stat.S_IMODE(above):04o})",
            hint=f"chmod o-w {shlex.quote(str(directory))}, or keep the token elsewhere",
        )
    if mode & stat.S_IROTH and not os.statvfs(path).f_flag & os.ST_RDONLY:
        warn(
            f"{origin}: all users of this machine can read it (mode {stat.S_IMODE(mode):04o}); "
            f"chmod 600 {name}"
        )


def _surprises(text: str) -> int:
    """Characters that neither go on as those before (``aaa``, ``abc``, ``321``) nor end three that
    were there already."""
    codes = [ord(char) for char in text.lower()]
    steps = [after - before for before, after in itertools.pairwise(codes)]
    found, seen = min(2, len(codes)), set[tuple[int, ...]]()
    for place in range(2, len(codes)):
        three = tuple(codes[place - 2 : place + 1])
        goes_on = steps[place - 1] == steps[place - 2] and abs(steps[place - 1]) <= 1
        found += not goes_on and three not in seen
        seen.add(three)
    return found
