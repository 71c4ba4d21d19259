"""What is asked of a profiler."""

from __future__ import annotations

from enum import Enum

from torchscale.schema.base import Frozen


class Tool(str, Enum):
    """Who records."""

    NSYS = "nsys"
    KINETO = "kineto"


class Target(str, Enum):
    """What the recording is for: decides what is recorded beside the spans, and what is told first."""

    SYNC_STALLS = "sync_stalls"
    KERNELS = "kernels"
    MEMORY = "memory"
    INPUT = "input"
    ALL = "all"

    @property
    def memory(self) -> bool:
        """Whether allocations are recorded."""
        return self in (Target.MEMORY, Target.ALL)


class RecordRequest(Frozen):
    """What to record.

    Attributes:
        tool: Who records.
        target: What for.
        directory: Where each rank writes, absolute.
        seconds: Record for this long, in whole steps.
        max_steps: But no more steps than this.
        skip_steps: Steps before recording starts, so that it sees a warm program.
    """

    tool: Tool
    target: Target
    directory: str
    seconds: float
    max_steps: int
    skip_steps: int = 5
