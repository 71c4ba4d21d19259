"""What is asked of a profiler."""

from __future__ import annotations

from torchscale.config.choices import ProfileTarget, Tool
from torchscale.schema.base import (
    Count,
    Frozen,
    Seconds,
)


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
    target: ProfileTarget
    directory: str
    seconds: Seconds
    max_steps: Count
    skip_steps: Count = 5
