"""What the threads of a rank do when a signal of a fault ends it: ``faulthandler`` writes their
Python stacks into a file of the job. The signal ends the process as it would have.

A program that uses ``faulthandler`` itself has it as if nothing had been here before.
"""

from __future__ import annotations

import contextlib
import faulthandler
import fcntl
import json
import os
from pathlib import Path
from typing import Any

from . import clock, ends

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
_LEAST_DESCRIPTOR = 700
"""A program that closes what it did not open gets the lowest numbers for its own files next: none
of them may be the one that a crash writes to. The usual limit is 1,024."""


class _Handler:
    """Of this process.

    Attributes:
        is_ours: Whether stacks go to the file of the job.
    """

    is_ours = False


def watch_crash(folder: str) -> None:
    """Have the stacks written from now on, unless the program has them written somewhere.

    Raises:
        OSError: the file cannot be made.
    """
    if faulthandler.is_enabled():
        return
    ends_folder = Path(folder) / ends.FOLDER
    ends_folder.mkdir(exist_ok=True)
    path = ends_folder / f"crash-{os.getpid()}-{clock.now_ns()}.txt"
    descriptor = os.open(path, _NEW, 0o666)
    facts = {"format": ends.FORMAT, "kind": "crash", "time": clock.now(), **ends.of_process()}
    os.write(descriptor, f"{json.dumps(facts)}\n".encode())
    with contextlib.suppress(OSError):  # the limit may be lower
        higher = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _LEAST_DESCRIPTOR)
        os.close(descriptor)
        descriptor = higher
    _leave_to_program()
    _ORIGINAL["enable"](descriptor)
    _Handler.is_ours = True


def end_in_child() -> None:
    """A process that was forked is another one: its stacks are not this rank's."""
    if _Handler.is_ours:
        _Handler.is_ours = False
        _ORIGINAL["disable"]()


_ORIGINAL: dict[str, Any] = {
    name: getattr(faulthandler, name) for name in ("enable", "disable", "is_enabled")
}


def _leave_to_program() -> None:
    """Have the functions of ``faulthandler`` do for the program what they would have done."""

    def enable(*args: Any, **options: Any) -> Any:  # noqa: ANN401 - as the original's
        result = _ORIGINAL["enable"](*args, **options)
        _Handler.is_ours = False
        return result

    def disable() -> Any:  # noqa: ANN401 - as the original's
        return False if _Handler.is_ours else _ORIGINAL["disable"]()

    def is_enabled() -> Any:  # noqa: ANN401 - as the original's
        return False if _Handler.is_ours else _ORIGINAL["is_enabled"]()

    for function in (enable, disable, is_enabled):
        setattr(faulthandler, function.__name__, function)
