"""What NCCL's watchdogs say of a rank: which collective timed out or failed, and how many it enqueued
and completed."""

from __future__ import annotations

from dataclasses import dataclass, field

from torchscale.schema.launch.hang import StackFrame

DEFAULT_GROUP = "0"
"""Name of the group that ``init_process_group`` makes."""
UNNAMED_GROUP = "?"
"""In place of the name of another one, where lines have none."""
UNNAMED_LIKE_DEFAULT = "??"
"""The same of a second one, in which the rank is the rank of all."""
UNNAMED = frozenset({UNNAMED_GROUP, UNNAMED_LIKE_DEFAULT})


@dataclass(frozen=True)
class FailedWork:
    """A collective that timed out, or whose communicator failed.

    Attributes:
        number: Of the collective in its group.
        operation: As NCCL's watchdog calls it: ``ALLREDUCE``.
        elements: Of its input; ``None`` where the line does not say.
        group_rank: Rank within the group; ``None`` where the line does not say.
        limit_ms: Its timeout; ``None`` where it did not time out.
        error: What the communicator said; empty for a timeout.
        called: When it was called, in seconds since the year began; ``None`` where unknown.
    """

    number: int
    operation: str
    elements: int | None
    group_rank: int | None = None
    limit_ms: int | None = None
    error: str = ""
    called: float | None = None


@dataclass
class GroupStatus:
    """What a rank's watchdog says of one process group: numbers of collectives, of which the last
    that its device has started is -1 where that is not measured. ``None`` where it says none. It
    ``is_assumed`` where lines do not name the group, and nothing proves which one it is."""

    description: str = ""
    group_rank: int | None = None
    enqueued: int | None = None
    completed: int | None = None
    started: int = -1
    failed: FailedWork | None = None
    is_assumed: bool = False


@dataclass
class RankWatchdog:
    """What the watchdogs of one rank say.

    Attributes:
        rank: Its global rank, where its lines say that.
        groups: By name.
        unplaced: What failed in a group that its line does not name, by number.
        frames: Where the failed collective was called, outermost first.
        failed_at: When the first of its collectives failed, in seconds since the year began.
        exited_at: When its process ended in order without leaving the group.
        is_ended: Whether the watchdog ended its process.
    """

    rank: int | None = None
    groups: dict[str, GroupStatus] = field(default_factory=dict)
    unplaced: dict[int, FailedWork] = field(default_factory=dict)
    frames: tuple[StackFrame, ...] = ()
    failed_at: float | None = None
    exited_at: float | None = None
    is_ended: bool = False
