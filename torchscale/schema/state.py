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
    """Fewer rank records than ranks, and no error that explains it."""
    NODE_LOST = "node_lost"
    """A node of the launch ended, left or could not be reached any more; runs again on resume."""
    PARTIAL = "partial"
    """State of a cell: some of its launches are done, all of them ``ok``, and the others are still
    to run. Its figures are of those that are done."""
    WAITING = "waiting"
    """State of a cell: nothing of it has run yet."""
    INTERRUPTED = "interrupted"
    """Ended by Ctrl-C or a termination signal to torchscale; runs again on resume."""
    INVALID = "invalid"
    """It ran, but its figures cannot be trusted: a loss that is not finite, ranks that hold
    different parameters."""
    SKIPPED = "skipped"
    """Not run, for a reason known beforehand."""

    @property
    def has_figures(self) -> bool:
        """Whether a cell in this state has figures: of all its launches, or of those that are
        done."""
        return self in (State.OK, State.PARTIAL)

    @property
    def has_failed(self) -> bool:
        """Whether something broke: ``--rerun failed`` measures it again. What was interrupted, or
        lost a node, runs again by itself."""
        return self in _FAILED

    @property
    def is_pending(self) -> bool:
        """Whether a cell in this state has launches still to run, and nothing went wrong with
        it."""
        return self in (State.PARTIAL, State.WAITING)


_FAILED = frozenset(
    {
        State.CRASHED,
        State.KILLED,
        State.OOM,
        State.TIMEOUT,
        State.INVALID,
        State.INCOMPLETE,
        State.NODE_LOST,
    }
)
