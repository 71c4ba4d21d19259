"""The clock of a job: the wall clock as it was when the job began, and from then on one that nobody
can set. The processes of a host share it."""

from __future__ import annotations

import os
import re
from pathlib import Path
from time import monotonic_ns, time_ns

VARIABLE = "TORCHSCALE_WATCH_CLOCK"
"""What the command tells the ranks: which clock, and when it stood at 0, in nanoseconds since the
epoch."""
_TRIES, _AT_ONCE_NS = 5, 50_000
"""Both clocks are read at once, unless another process takes the core meanwhile."""


class _Clock:
    """What the monotonic clock is counted from.

    Attributes:
        start_ns: When it stood at 0, in nanoseconds since the epoch.
    """

    start_ns = 0


def begin() -> None:
    """Go by the wall clock as it is now."""
    _Clock.start_ns = time_ns() - monotonic_ns()


def now_ns() -> int:
    """Nanoseconds since the epoch."""
    return at_ns(monotonic_ns())


def at_ns(monotonic: int) -> int:
    """Nanoseconds since the epoch at a reading of ``monotonic_ns``."""
    return _Clock.start_ns + monotonic


def now() -> float:
    """Seconds since the epoch."""
    return now_ns() * 1e-9


def set_by_ns() -> int:
    """By how much the wall clock has been set since the job began, in nanoseconds."""
    for _ in range(_TRIES):
        before, wall, after = now_ns(), time_ns(), now_ns()
        if after - before < _AT_ONCE_NS:
            break
    return wall - (before + after) // 2


def told() -> str:
    """For :data:`VARIABLE`."""
    return f"{_monotonic()} {_Clock.start_ns}"


def _begin_as_told() -> None:
    """Go by the clock of the command, where its monotonic clock is this one."""
    begin()
    which, _, start = os.environ.get(VARIABLE, "").rpartition(" ")
    is_number = re.fullmatch(r"-?[0-9]{1,19}", start) is not None
    if which and is_number and which == _monotonic():
        _Clock.start_ns = int(start)


def _monotonic() -> str:
    """Which clock it is: containers of a host may have several."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/time').readlink()}"
    except (OSError, ValueError):
        return ""


_begin_as_told()
