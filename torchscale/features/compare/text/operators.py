"""Rows and sentences of compared recordings, shared by all formats."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torchscale.features.compare.analysis.operators import (
    OperatorChange,
    OperatorFate,
    RecordingComparison,
)
from torchscale.features.compare.text.why_rows import TimeUnit
from torchscale.report.values import shortened
from torchscale.util.units import format_change, format_percent

ONE_RECORDING = (
    "One recording a side, with the profiler at work: how much recordings differ from each other is "
    "not known, so none of this is called clear. Matched by name, operators of torch.profiler also by "
    "the shapes of their inputs."
)
"""Below every table of operators; :func:`about_recordings` says what it cannot."""
_MAX_COLLECTIVES = 6
_MAX_NAME = 90
_OF_BACKWARD = "autograd::engine::evaluate_function: "
"""What autograd's names begin with; the functions end in ``Backward0``, which says as much."""


def about_recordings(compared: RecordingComparison) -> str:
    """What to know of a table of operators."""
    if not compared.other_ranks:
        return ONE_RECORDING
    return (
        f"Other numbers of ranks: {compared.other_ranks}. Communication differs by that alone, and "
        f"a rank waits in it for those that are not here. {ONE_RECORDING}"
    )


@dataclass(frozen=True)
class OperatorRow:
    """A row; times in the unit of the table, rounded such that rows sum. ``fate`` is empty for the
    lines that are no operator."""

    label: str
    before: float
    after: float
    calls: str
    share: float
    fate: OperatorFate | None = None

    @property
    def difference(self) -> float:
        """How much longer it takes on the other side."""
        return self.after - self.before


def operator_rows(compared: RecordingComparison, limit: int) -> tuple[TimeUnit, list[OperatorRow]]:
    """The ``limit`` operators that changed most, all others together, exposed collectives, the rest,
    and the step as the last row."""
    before, after = compared.before, compared.after
    unit = TimeUnit.of(max(before.seconds, after.seconds))
    shown, others = compared.operators[:limit], compared.operators[limit:]
    rows = [_row(change, unit, before.seconds) for change in shown]
    rows += _others(others, "other operators", unit, before.seconds)
    shown, others = compared.collectives[:_MAX_COLLECTIVES], compared.collectives[_MAX_COLLECTIVES:]
    rows += [_row(change, unit, before.seconds, "exposed ") for change in shown]
    rows += _others(others, "other exposed collectives", unit, before.seconds)
    total = _line("recorded step", before.seconds, after.seconds, unit, before.seconds)
    rest = OperatorRow(
        "rest: gaps, less overlap",
        round(total.before - math.fsum(row.before for row in rows), unit.digits),
        round(total.after - math.fsum(row.after for row in rows), unit.digits),
        "",
        (after.rest - before.rest) / before.seconds,
    )
    return unit, [*rows, rest, total]


def _others(
    changes: Sequence[OperatorChange], what: str, unit: TimeUnit, step: float
) -> list[OperatorRow]:
    """A row for all of these together; none where there are none."""
    if not changes:
        return []
    before = math.fsum(one.before.seconds for one in changes)
    after = math.fsum(one.after.seconds for one in changes)
    return [_line(f"{len(changes):,} {what}", before, after, unit, step)]


def _row(change: OperatorChange, unit: TimeUnit, step: float, prefix: str = "") -> OperatorRow:
    return OperatorRow(
        shortened(prefix + change.name.removeprefix(_OF_BACKWARD), _MAX_NAME),
        unit.rounded(change.before.seconds),
        unit.rounded(change.after.seconds),
        _calls(change),
        change.seconds / step,
        change.fate,
    )


def _line(label: str, before: float, after: float, unit: TimeUnit, step: float) -> OperatorRow:
    return OperatorRow(
        label, unit.rounded(before), unit.rounded(after), "", (after - before) / step
    )


def _calls(change: OperatorChange) -> str:
    """``4``, or ``4 | 0`` where the sides differ."""
    counts = [f"{use.count:,.4g}" for use in (change.before, change.after)]
    return counts[0] if counts[0] == counts[1] else " | ".join(counts)


def recording_headline(label: str, compared: RecordingComparison) -> str:
    """``tiny decoder …: the recorded step takes 12.3 ms longer (+16.0 %; 19 and 19 steps).``"""
    before, after = compared.before, compared.after
    unit = TimeUnit.of(max(before.seconds, after.seconds))
    change = unit.rounded(after.seconds) - unit.rounded(before.seconds)
    longer = "longer"
    if change < 0:
        longer = "less"
    share = format_change(after.seconds / before.seconds - 1)
    return (
        f"{shortened(label)}: the recorded step takes {unit.text(abs(change))} {unit.name} {longer} "
        f"({share}; {before.steps} and {after.steps} steps)."
    )


def operator_share(row: OperatorRow) -> str:
    """The difference as a share of the reference's recorded step."""
    sign = "+" if round(row.share * 100, 1) > 0 else ""
    return f"{sign}{format_percent(row.share)}"
