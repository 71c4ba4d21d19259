"""How fast the machine itself was on each side, by the fixed work that every launch on CPUs does
between its batches.

A host's clock follows its temperature and its other guests, from minute to minute and for all
launches of a side alike, so that the spread of these launches does not show it. Work that is always
the same does.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from torchscale.schema.run.result_set import LaunchFigures

SLOWED = "slowed"
"""The condition under which a side was measured where its machine was slower."""
LEAST_GAP = 0.02
"""Share by which the fixed work took longer on one side: above the default threshold of a change it
could make one. Its mean over three undisturbed launches scatters by 0.002 to 0.01 where the clock
is steady (docs/tested-on.md)."""


@dataclass(frozen=True)
class SpeedGap:
    """Time of the fixed work on the second side ÷ the first, as logarithms: its matrix products,
    its copy."""

    products: float
    copies: float

    @property
    def slower_before(self) -> float:
        """Logarithm of the ratio by which the first side's machine was slower, at most; 0 where it
        was not."""
        return max(0.0, -self.products, -self.copies)

    @property
    def slower_after(self) -> float:
        """Logarithm of the ratio by which the second side's machine was slower, at most; 0 where it
        was not."""
        return max(0.0, self.products, self.copies)

    @property
    def shares(self) -> tuple[float, float]:
        """Shares by which the fixed work took longer on the first and on the second side."""
        return math.expm1(self.slower_before), math.expm1(self.slower_after)

    @property
    def is_unequal(self) -> bool:
        """Whether the gap alone could make a change."""
        return max(self.shares) > LEAST_GAP

    def limited(self, products: float, copies: float) -> SpeedGap:
        """The gap, limited to ratios of at most ``products`` and ``copies`` in either direction."""
        return SpeedGap(
            _within(self.products, math.log(products)), _within(self.copies, math.log(copies))
        )


def speed_gap(before: Sequence[LaunchFigures], after: Sequence[LaunchFigures]) -> SpeedGap | None:
    """The gap between two sides on processors of one kind; ``None`` unless all of their launches
    did the fixed work."""
    sides = [
        [launch.fixed_work for launch in side if launch.fixed_work is not None]
        for side in (before, after)
    ]
    if not all(sides) or len(sides[0]) < len(before) or len(sides[1]) < len(after):
        return None
    products, copies = (
        [statistics.fmean(math.log(work[part]) for work in side) for side in sides]
        for part in (0, 1)
    )
    return SpeedGap(products[1] - products[0], copies[1] - copies[0])


def _within(value: float, limit: float) -> float:
    return max(-limit, min(limit, value))
