"""Headline and sentences of explained differences, shared by all formats."""

from __future__ import annotations

from collections.abc import Sequence

from torchscale.features.compare.analysis.cell_why import CellWhy, Clarity, PartChange
from torchscale.features.compare.analysis.change import MIN_LAUNCHES
from torchscale.features.compare.analysis.explanation import ExplainedCell
from torchscale.features.compare.analysis.likely_cause import CauseBasis, LikelyCause
from torchscale.features.compare.text.comparison import comparison_label
from torchscale.features.compare.text.why_rows import (
    OUTSIDE_LABELS,
    PART_LABELS,
    PartName,
    TimeUnit,
    step_rows,
)
from torchscale.report.values import shortened
from torchscale.schema.run.step_parts import OutsidePart
from torchscale.util.units import format_change
from torchscale.util.words import listed

_OF_STEPS = (OutsidePart.WARM_UP, OutsidePart.PROBES)
_MAX_CANDIDATES = 6
_MAX_VALUE = 60


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
            f"No part is clear: launches were {flags}, which may have made as much; measure again "
            f"on a quiet machine, or pass --accept flags. {_largest(why)}"
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


def _change(part: PartChange[PartName], unit: TimeUnit) -> str:
    """The difference as the table has it: of the rounded times."""
    return unit.change(unit.rounded(part.difference.after) - unit.rounded(part.difference.before))
