"""Labels and rows of the table of an explained difference, shared by all formats."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from torchscale.features.compare.analysis.cell_why import CellWhy, Clarity, PartChange
from torchscale.schema.run.step_parts import OutsidePart, StepPart
from torchscale.util.interval_text import format_ends
from torchscale.util.units import format_change, format_percent

PART_LABELS = {
    StepPart.DATA_WAIT: "data wait",
    StepPart.FORWARD: "forward",
    StepPart.BACKWARD: "backward",
    StepPart.OPTIMIZER: "optimizer",
    StepPart.COMPUTE: "compute",
    StepPart.BUBBLE: "pipeline bubble",
    StepPart.COMMUNICATION: "exposed communication",
    StepPart.EXCHANGE: "communication, waiting",
    StepPart.SLOWER_RANKS: "slower ranks",
    StepPart.REST: "rest",
}
OUTSIDE_LABELS = {
    OutsidePart.IMPORTS: "imports",
    OutsidePart.PROCESS_GROUP: "process group",
    OutsidePart.BUILD: "building the model",
    OutsidePart.FIRST_STEP: "first step",
    OutsidePart.WARM_UP: "warm-up",
    OutsidePart.PROBES: "unsynchronized steps",
    OutsidePart.REST: "rest",
}
_MAX_RANKS = 4
"""Ranks listed below the part that they make up; JSON has all."""
_LISTED_SHARE = 0.02
"""Of the step: a rank that changed by less is not listed."""
PartName = TypeVar("PartName")


@dataclass(frozen=True)
class WhyRow:
    """A row of the table of parts; times in :attr:`TimeUnit.name`, rounded such that rows sum.

    Attributes:
        label: The part.
        before, after: Its time on both sides.
        interval: Ends of the interval of the difference, as text.
        share: The difference as a share of the reference's whole.
        clarity: What can be said; ``None`` where that is said of others.
        indent: Whether it is a part of the row above.
    """

    label: str
    before: float
    after: float
    interval: str
    share: float
    clarity: Clarity | None
    indent: bool = False

    @property
    def difference(self) -> float:
        """How much longer it takes on the other side."""
        return self.after - self.before


@dataclass(frozen=True)
class TimeUnit:
    """The unit of a table's times: seconds × ``scale``, shown with ``digits`` decimals."""

    name: str
    scale: float
    digits: int

    @classmethod
    def of(cls, seconds: float) -> TimeUnit:
        """The unit in which a whole of so many seconds is read best."""
        if seconds >= 1:
            return cls("s", 1.0, 3)
        if seconds >= 1e-3:
            return cls("ms", 1e3, 2)
        return cls("µs", 1e6, 2)

    def rounded(self, seconds: float) -> float:
        """Seconds in this unit, with its decimals."""
        return round(seconds * self.scale, self.digits)

    def text(self, value: float) -> str:
        """A value in this unit."""
        return format(value + 0.0, f",.{self.digits}f")

    def change(self, value: float) -> str:
        """``+1.20``; what rounds to zero has no sign."""
        rounded = round(value, self.digits)
        if rounded == 0:
            return self.text(0.0)
        return format(rounded, f"+,.{self.digits}f")


def step_rows(why: CellWhy) -> tuple[TimeUnit, list[WhyRow]]:
    """The parts of the step, ranks below theirs, and the step as the last row."""
    unit = TimeUnit.of(max(why.step.difference.before, why.step.difference.after))
    rows = _summing(why.parts, why.step, unit, lambda name: PART_LABELS[name])
    place = next(
        (number for number, part in enumerate(why.parts, 1) if part.name is StepPart.SLOWER_RANKS),
        None,
    )
    if place is not None:
        rows[place:place] = [
            _row(f"rank {rank.name}", rank, why.step, unit, indent=True)
            for rank in listed_ranks(why)
        ]
    return unit, rows


def listed_ranks(why: CellWhy) -> list[PartChange[int]]:
    """The ranks whose share of the step changed most."""
    least = _LISTED_SHARE * why.step.difference.before
    ranks = [rank for rank in why.ranks if rank.is_clear or abs(rank.seconds) > least]
    return sorted(ranks, key=lambda rank: -abs(rank.seconds))[:_MAX_RANKS]


def outside_rows(why: CellWhy) -> tuple[TimeUnit, list[WhyRow]]:
    """What a launch takes outside its steps, and all of it as the last row; none where it is not
    known."""
    if why.outside is None:
        return TimeUnit.of(1.0), []
    unit = TimeUnit.of(max(why.outside.difference.before, why.outside.difference.after, 1.0))
    rows = _summing(why.outside_parts, why.outside, unit, lambda name: OUTSIDE_LABELS[name])
    return unit, [*rows[:-1], _named(rows[-1], "all outside the steps")]


def _named(row: WhyRow, label: str) -> WhyRow:
    return WhyRow(label, row.before, row.after, row.interval, row.share, row.clarity)


def _summing(
    parts: Sequence[PartChange[PartName]],
    whole: PartChange[None],
    unit: TimeUnit,
    label: Callable[[PartName], str],
) -> list[WhyRow]:
    """A row for each part and one for the whole. Rounded figures do not sum by themselves: the last
    part, which is the rest, is what is left of the whole."""
    rows = [_row(label(part.name), part, whole, unit) for part in parts]
    total = _row("mean step", whole, whole, unit)
    last = rows[-1]
    before = total.before - math.fsum(row.before for row in rows[:-1])
    after = total.after - math.fsum(row.after for row in rows[:-1])
    rows[-1] = WhyRow(
        last.label,
        round(before, unit.digits),
        round(after, unit.digits),
        last.interval,
        last.share,
        last.clarity,
    )
    return [*rows, total]


def _row(
    label: str,
    part: PartChange[PartName],
    whole: PartChange[None],
    unit: TimeUnit,
    *,
    indent: bool = False,
) -> WhyRow:
    interval = "–"
    if part.difference.interval is not None:
        ends = (unit.change(unit.rounded(end)) for end in part.difference.interval)
        interval = format_ends(*ends)
    return WhyRow(
        label,
        unit.rounded(part.difference.before),
        unit.rounded(part.difference.after),
        interval,
        part.seconds / whole.difference.before,
        part.clarity,
        indent,
    )


def clarity_text(row: WhyRow, why: CellWhy) -> str:
    """``clear``, or ``unclear (launches)``, ``unclear (contended)``."""
    if row.clarity is None:
        return ""
    word: str = row.clarity.value
    if row.clarity is not Clarity.UNCLEAR:
        return word
    if not why.enough_launches:
        return f"{word} (launches)"
    if why.disturbance.conditions:
        return f"{word} ({', '.join(why.disturbance.conditions)})"
    return word


def share_text(row: WhyRow) -> str:
    """The difference as a share of the reference's whole: ``+6.4 %``."""
    if abs(row.share) < 10:
        sign = "+" if round(row.share * 100, 1) > 0 else ""
        return f"{sign}{format_percent(row.share)}"
    return format_change(row.share)
