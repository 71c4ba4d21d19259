"""What rank 0 says while it works: lines of ``progress.jsonl``, read by the live view and by the
stall bound."""

from __future__ import annotations

from typing import Literal

from torchscale.schema.base import (
    Count,
    Frozen,
    Real,
)

Phase = Literal[
    "starting", "building", "preparing data", "warming up", "measuring", "recording", "finishing"
]


class Progress(Frozen):
    """One line. ``samples_per_second`` is of the group, so far, once there is one; ``detail`` says
    what just runs."""

    phase: Phase
    steps: Count = 0
    samples_per_second: Real | None = None
    half_width: Real | None = None
    detail: str = ""
