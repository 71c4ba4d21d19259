"""Where a launch's mean step went, as parts that add up to it, and what the launch took outside its
steps."""

from __future__ import annotations

import math
from enum import Enum
from typing import Annotated

from pydantic import Field

from torchscale.schema.base import MOST_SECONDS, Count, Frozen

Seconds = Annotated[float, Field(ge=-MOST_SECONDS, le=MOST_SECONDS, strict=True)]
"""A part may be below 0: a rank that is faster than the typical one."""
StepSeconds = Annotated[float, Field(ge=1e-12, le=MOST_SECONDS, strict=True)]
"""Nothing that is trained takes less than a cycle of a clock."""


class StepPart(str, Enum):
    """A part of a step; values are what files have."""

    DATA_WAIT = "data_wait"
    FORWARD = "forward"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"
    COMPUTE = "compute"
    """Passes and optimizer of a user's script, which are not told apart."""
    BUBBLE = "bubble"
    COMMUNICATION = "communication"
    """Exposed, once all ranks had come."""
    EXCHANGE = "exchange"
    """Communication and waiting for other ranks, where they are not told apart."""
    SLOWER_RANKS = "slower_ranks"
    """What ranks take longer than the typical rank, and the others' waiting for them."""
    REST = "rest"


class OutsidePart(str, Enum):
    """A part of a launch outside its measured steps; values are what files have."""

    IMPORTS = "imports"
    PROCESS_GROUP = "process_group"
    BUILD = "build"
    FIRST_STEP = "first_step"
    WARM_UP = "warm_up"
    PROBES = "probes"
    """Steps without gradient synchronization, which the diagnosis needs."""
    REST = "rest"


class StepParts(Frozen):
    """One launch; seconds. Definitions: ``docs/method.md``, *Parts of a difference*.

    Attributes:
        step: The group's mean step.
        parts: What the typical rank takes; without what follows from the others (``SLOWER_RANKS``
            and ``REST``).
        by_rank: By rank: its share of ``SLOWER_RANKS``; empty where waiting is not known.
        later_in: By phase: what ranks take longer in it than the typical rank, mean over ranks.
        waiting: Waiting for slower ranks, mean over ranks.
        outside_seconds: The launch without its measured steps.
        outside: Known parts of it, mean over ranks.
        gradient_bytes: What the ranks exchange in a step.
        buckets: In how many buckets.
        link_seconds: All-reduce of them in large buckets, with nothing else running.
    """

    step: StepSeconds
    parts: dict[StepPart, Seconds]
    by_rank: tuple[Seconds, ...] = ()
    later_in: dict[StepPart, Seconds] = Field(default_factory=dict)
    waiting: Seconds = 0.0
    outside_seconds: StepSeconds | None = None
    outside: dict[OutsidePart, Seconds] = Field(default_factory=dict)
    gradient_bytes: Count | None = None
    buckets: Count | None = None
    link_seconds: Seconds | None = None

    @property
    def whole(self) -> dict[StepPart, float]:
        """Every part; they sum to :attr:`step`."""
        parts = dict(self.parts)
        if self.by_rank:
            parts[StepPart.SLOWER_RANKS] = math.fsum(self.by_rank)
        parts[StepPart.REST] = self.step - math.fsum(parts.values())
        return {part: parts[part] for part in StepPart if part in parts}

    @property
    def coarse(self) -> StepParts:
        """The same step without ``SLOWER_RANKS``, to be compared with a launch of which waiting is
        not known: phases are means over ranks, and communication holds the waiting."""
        if not self.by_rank:
            return self
        parts = {
            part: seconds + self.later_in.get(part, 0.0) for part, seconds in self.parts.items()
        }
        parts[StepPart.EXCHANGE] = parts.pop(StepPart.COMMUNICATION, 0.0) + self.waiting
        return self.model_copy(update={"parts": parts, "by_rank": (), "later_in": {}})

    @property
    def whole_outside(self) -> dict[OutsidePart, float]:
        """Every part outside the steps; they sum to :attr:`outside_seconds`, without which there is
        none."""
        if self.outside_seconds is None:
            return {}
        rest = self.outside_seconds - math.fsum(self.outside.values())
        return {**self.outside, OutsidePart.REST: rest}
