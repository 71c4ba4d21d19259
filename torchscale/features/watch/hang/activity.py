"""What the processor time of a rank says: one that waits for others in gloo sleeps, one that
computes does not."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

_BUSY_RUNS = 0.8
"""Share of looks at which the main thread ran or waited for a core. Python that computes is so at
every look, also where others take its core; what reads files is not."""
_IDLE_RUNS = 0.1
_IDLE_CPU = 0.1
"""Processor time of all threads over wall time: the heartbeats of a rank that waits take less than
0.01."""


class Activity(str, Enum):
    """What a rank's process does."""

    BUSY = "busy"
    """Its main thread computes."""
    IDLE = "idle"
    """All of its threads sleep."""


def activity_of(runs: float, cpu: float) -> Activity | None:
    """What a rank does; ``None`` between the two.

    Args:
        runs: Share of looks at which its main thread could run.
        cpu: Processor time of the process over wall time.
    """
    if runs >= _BUSY_RUNS:
        return Activity.BUSY
    if runs <= _IDLE_RUNS and cpu <= _IDLE_CPU:
        return Activity.IDLE
    return None


def busy_among_idle(activities: Mapping[int, Activity | None]) -> tuple[int, ...]:
    """The ranks that compute while all others sleep; empty where that of one is not clear, and
    where those that compute are more than the others."""
    busy = tuple(sorted(rank for rank, activity in activities.items() if activity is Activity.BUSY))
    idle = [rank for rank, activity in activities.items() if activity is Activity.IDLE]
    clear = len(busy) + len(idle) == len(activities)
    if not clear or len(busy) > len(idle):
        return ()
    return busy
