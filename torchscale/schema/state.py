"""How launches and cells end."""

from __future__ import annotations

from enum import Enum


class State(str, Enum):
    """How a launch, or a cell, ended. Exactly one."""

    OK = "ok"
    OOM = "oom"
    """Out of memory: the allocator said so, or the kernel ended a rank for it."""
    TIMEOUT = "timeout"
    """Our bound on the launch or on the time without progress was reached."""
    CRASHED = "crashed"
    """A rank raised, or died of a fault."""
    KILLED = "killed"
    """A rank was ended by a signal that was not ours."""
    INCOMPLETE = "incomplete"
    """Fewer rank records than ranks, and no error that explains it; or not run yet."""
    INTERRUPTED = "interrupted"
    """Ended by Ctrl-C or a termination signal to torchscale; runs again on resume."""
    INVALID = "invalid"
    """It ran, but its figures cannot be trusted: a loss that is not finite, ranks that hold different parameters."""
    SKIPPED = "skipped"
    """Not run, for a reason known beforehand."""
