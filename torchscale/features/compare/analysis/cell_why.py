"""The difference of a cell's mean step, in parts that add up to it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

from torchscale.analysis.stats.mean_differences import MeanDifference
from torchscale.features.compare.analysis.change import MIN_LAUNCHES
from torchscale.features.compare.analysis.pair import CellComparison
from torchscale.schema.run.step_parts import OutsidePart, StepPart
from torchscale.util.interval_text import finite
from torchscale.util.optional import optional

PartName = TypeVar("PartName")


class Clarity(str, Enum):
    """What can be said of a part's difference; values are what files and tables show."""

    CLEAR = "clear"
    """Beyond noise, and by more than the threshold."""
    SMALL = "small"
    """Any difference lies within the threshold."""
    UNCLEAR = "unclear"


@dataclass(frozen=True)
class DisturbedSeconds:
    """Seconds of the difference that other processes, lowered clocks or a slower host may have made,
    at least and at most; infinite where nothing bounds it."""

    conditions: tuple[str, ...] = ()
    least: float = 0.0
    most: float = 0.0

    @property
    def ends(self) -> tuple[float | None, float | None]:
        """Both, as files have them: ``None`` where nothing bounds it."""
        return finite(self.least), finite(self.most)


@dataclass(frozen=True)
class PartChange(Generic[PartName]):
    """One part on both sides; seconds.

    Attributes:
        name: Which.
        difference: Means over launches and their difference.
        adjusted_p: Holm's, over the parts that add up with this one; ``None`` where nothing was
            tested.
        clarity: What can be said.
    """

    name: PartName
    difference: MeanDifference
    adjusted_p: float | None = None
    clarity: Clarity = Clarity.UNCLEAR

    @property
    def seconds(self) -> float:
        """How much longer the part takes on the other side."""
        return self.difference.value

    @property
    def is_clear(self) -> bool:
        """Whether it differs beyond noise and threshold."""
        return self.clarity is Clarity.CLEAR


@dataclass(frozen=True)
class Probe:
    """What launches noticed of the exchange of gradients, mean of each side; ``None`` where a launch
    did not.

    Attributes:
        gradient_bytes: What is exchanged in a step.
        buckets: In how many pieces.
        link: All-reduce of it alone, in large buckets.
    """

    gradient_bytes: tuple[float, float] | None = None
    buckets: tuple[float, float] | None = None
    link: MeanDifference | None = None

    @property
    def link_seconds(self) -> tuple[float, float] | None:
        """``link`` on each side."""
        return optional(lambda one: (one.before, one.after), self.link)


@dataclass(frozen=True)
class CellWhy:
    """The difference of one cell, in parts.

    Attributes:
        cell: Both sides.
        launches: How many on each side.
        step: The mean step.
        parts: What it consists of; their differences sum to that of ``step``.
        ranks: ``SLOWER_RANKS`` by rank, where both sides have the same ranks.
        later_in: By phase: how much longer ranks take than the typical rank, mean over ranks.
        outside: A launch without its measured steps; ``None`` where it is not known.
        outside_parts: What that consists of.
        disturbance: What unequal conditions may have made of the difference.
        probe: What was noticed of the exchange of gradients.
    """

    cell: CellComparison
    launches: tuple[int, int]
    step: PartChange[None]
    parts: tuple[PartChange[StepPart], ...]
    ranks: tuple[PartChange[int], ...] = ()
    later_in: tuple[PartChange[StepPart], ...] = ()
    outside: PartChange[None] | None = None
    outside_parts: tuple[PartChange[OutsidePart], ...] = ()
    disturbance: DisturbedSeconds = DisturbedSeconds()
    probe: Probe = Probe()

    @property
    def clear(self) -> tuple[PartChange[StepPart], ...]:
        """Parts that differ, the largest difference first."""
        return tuple(
            sorted(
                (part for part in self.parts if part.is_clear), key=lambda part: -abs(part.seconds)
            )
        )

    @property
    def enough_launches(self) -> bool:
        """Whether a part may be called clear."""
        return min(self.launches) >= MIN_LAUNCHES

    def part(self, name: StepPart) -> PartChange[StepPart] | None:
        """One part; ``None`` where neither side has it."""
        return next((part for part in self.parts if part.name is name), None)
