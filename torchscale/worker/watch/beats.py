"""When ranks do what takes time from their programs: all at the same moments of the wall clock.

Ranks wait for each other many times a step, so that what delays one delays all. Delays at different
moments add up over the ranks; at the same moment they pass at once. The clocks of a job's hosts
agree to some milliseconds where they are synchronised; where they are not, the ranks of each host
still agree.
"""

from __future__ import annotations

from time import time

_LEAST_SHARE = 0.1
"""Of an interval. Whoever wakes up a little before its end, as the wall clock is adjusted, waits for
the end of the next one."""


def beat(seconds: float) -> int:
    """Which interval of this length it is, counted from the epoch: the same on all ranks."""
    return int(time() // seconds)


def until_next(seconds: float) -> float:
    """Seconds to wait for the next interval of this length; at least a tenth of it."""
    left = seconds - time() % seconds
    return left if left >= _LEAST_SHARE * seconds else left + seconds
