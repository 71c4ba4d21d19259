"""Labels, figures and sentences of explained differences, shared by all formats."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from torchscale.features.compare.analysis.explanation import ExplainedCell
from torchscale.features.compare.analysis.likely_cause import CauseBasis, LikelyCause
from torchscale.features.compare.analysis.pair import MIN_LAUNCHES
from torchscale.features.compare.analysis.why import CellWhy, Clarity, PartChange
from torchscale.features.compare.text.comparison import comparison_label
from torchscale.report.values import shortened
from torchscale.schema.run.step_parts import OutsidePart, StepPart
from torchscale.util.interval_text import format_ends
from torchscale.util.units import format_change, format_percent
from torchscale.util.words import listed

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
_OF_STEPS = (OutsidePart.WARM_UP, OutsidePart.PROBES)
_MAX_RANKS = 4
"""Ranks listed below the part that they make up; JSON has all."""
_LISTED_SHARE = 0.02
"""Of the step: a rank that changed by less is not listed."""
_MAX_CANDIDATES = 6
_MAX_VALUE = 60
_Name = TypeVar("_Name")


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
    parts: Sequence[PartChange[_Name]],
    whole: PartChange[None],
    unit: TimeUnit,
    label: Callable[[_Name], str],
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
    part: PartChange[_Name],
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


def why_headline(cell: ExplainedCell) -> str:
    """``tiny decoder, batch 2, 2 devices: the mean step takes 5.10 ms longer (+6.4 %; 95 % interval
    +4.90 to +5.30 ms).``"""
    why = cell.why
    unit, rows = step_rows(why)
    total = rows[-1]
    if total.difference == 0:
        change = "takes equally long"
    else:
        longer = "longer"
        if total.difference < 0:
            longer = "less"
        change = f"takes {unit.text(abs(total.difference))} {unit.name} {longer}"
    interval = ""
    if total.interval != "–":
        interval = f"; 95 % interval {total.interval} {unit.name}"
    return (
        f"{comparison_label(why.cell)}: the mean step {change} "
        f"({format_change(total.share)}{interval})."
    )


def cause_sentences(cell: ExplainedCell) -> list[str]:
    """A sentence for each part that is clear, or why none of the step is; then those outside the
    steps."""
    why = cell.why
    unit = TimeUnit.of(max(why.step.difference.before, why.step.difference.after))
    sentences = [_cause_sentence(cause, unit) for cause in cell.causes] or [_nothing_clear(why)]
    return [*sentences, *_outside_sentences(why)]


def _outside_sentences(why: CellWhy) -> list[str]:
    """What each launch takes longer or less outside its measured steps; of what consists of steps
    nothing where these differ."""
    clear = [
        part
        for part in why.outside_parts
        if part.is_clear and not (why.clear and part.name in _OF_STEPS)
    ]
    if not clear:
        return []
    unit = TimeUnit.of(1.0)
    changes = [f"{OUTSIDE_LABELS[part.name]} {_change(part, unit)} {unit.name}" for part in clear]
    return [f"Each launch, outside its steps: {listed(changes)}."]


def _cause_sentence(cause: LikelyCause, unit: TimeUnit) -> str:
    part = f"{PART_LABELS[cause.part.name].capitalize()} {_change(cause.part, unit)} {unit.name}"
    names = _names(cause.candidates)
    if cause.basis is CauseBasis.MEASURED:
        beside = ""
        if names:
            beside = f" Changed as well: {names}."
        return shortened(f"{part}. Likeliest cause: {cause.text}.{beside} {cause.advice}")
    if cause.basis is CauseBasis.ONLY_CHANGE:
        return shortened(f"{part}. Likeliest cause: {cause.text}. {cause.advice}")
    if names:
        return shortened(f"{part}: clear, but {cause.text}: {names}. {cause.advice}")
    return shortened(f"{part}: clear, but {cause.text}. {cause.advice}")


def _names(candidates: Sequence[str]) -> str:
    shown = list(candidates[:_MAX_CANDIDATES])
    more = len(candidates) - len(shown)
    if more:
        shown.append(f"{more} more")
    return listed([shortened(name, _MAX_VALUE) for name in shown])


def _nothing_clear(why: CellWhy) -> str:
    if not why.enough_launches:
        before, after = why.launches
        return (
            f"No part is clear: {before} and {after} launches, and {MIN_LAUNCHES} a side are "
            f"needed (benchmark.repeats: 5; an attempt of a watched job is one). {_largest(why)}"
        )
    if all(part.clarity is Clarity.SMALL for part in why.parts):
        return "No part differs by more than the threshold."
    if why.disturbance.conditions:
        flags = " and ".join(why.disturbance.conditions)
        return (
            f"No part is clear: one side was {flags}, which may have made as much; measure again on "
            f"a quiet machine, or pass --accept flags. {_largest(why)}"
        )
    return (
        "No part is clear: each could be noise between launches, or is below the threshold; more "
        f"launches narrow the intervals (benchmark.repeats: 5). {_largest(why)}"
    )


def _largest(why: CellWhy) -> str:
    """Where to look first, although it is not clear."""
    unit = TimeUnit.of(max(why.step.difference.before, why.step.difference.after))
    part = max(why.parts, key=lambda one: abs(one.seconds))
    if not part.seconds:
        return "All parts take equally long."
    return f"Largest difference: {PART_LABELS[part.name]} {_change(part, unit)} {unit.name}."


def _change(part: PartChange[_Name], unit: TimeUnit) -> str:
    """The difference as the table has it: of the rounded times."""
    return unit.change(unit.rounded(part.difference.after) - unit.rounded(part.difference.before))


def share_text(row: WhyRow) -> str:
    """The difference as a share of the reference's whole: ``+6.4 %``."""
    if abs(row.share) < 10:
        sign = "+" if round(row.share * 100, 1) > 0 else ""
        return f"{sign}{format_percent(row.share)}"
    return format_change(row.share)
