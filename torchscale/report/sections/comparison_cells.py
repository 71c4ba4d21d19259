"""The change of each cell, and the cells that could not be compared."""

from __future__ import annotations

from collections.abc import Sequence

from torchscale.analysis.comparison.compare import CellComparison, Change, Outcome, Pair, Verdict
from torchscale.report.document import (
    Block,
    Bullets,
    Column,
    Section,
    Table,
    TableValue,
    Tone,
    optional_value,
    shortened,
)
from torchscale.report.text.comparison import (
    format_interval,
    format_level,
    format_outcome,
    format_ratio_change,
    metric_label,
    result_label,
)

_TONES = {Verdict.BETTER: Tone.GOOD, Verdict.WORSE: Tone.BAD, Verdict.SAME: Tone.PLAIN}


def compared_cells_section(pairs: Sequence[Pair]) -> Section:
    """A table of changes and one of cells that were not compared, for each pair; then the meaning of the verdicts."""
    blocks: list[Block] = []
    for pair in pairs:
        names = (shortened(pair.reference.name), shortened(pair.other.name))
        columns = (
            Column("cell", prose=True),
            Column("metric"),
            Column(names[0], True),
            Column(names[1], True),
            Column("change", True),
            Column("95 % interval", True),
            Column("p, corrected", True),
            Column("launches", True),
            Column("verdict"),
            Column("warnings"),
        )
        rows = tuple(_row(cell, change) for cell in pair.cells for change in cell.changes)
        if rows:
            blocks.append(Table(f"{names[1]} against {names[0]}", columns, rows, searchable=True))
        others = [cell for cell in pair.cells if cell.outcome is not Outcome.COMPARED]
        if others:
            blocks.append(_others_table(others, names))
        blocks += [Bullets(tuple(f"{note}." for note in pair.notes))] if pair.notes else []
        problems = (*pair.reference.problems, *pair.other.problems)
        blocks += [Bullets(tuple(shortened(f"Skipped: {problem}") for problem in problems))] if problems else []
    used = dict.fromkeys(change.verdict for pair in pairs for cell in pair.cells for change in cell.changes)
    if used:
        blocks.append(
            Bullets(tuple(f"{verdict.value}: {verdict.explanation}." for verdict in Verdict if verdict in used))
        )
    return Section("Cells", "cells", tuple(blocks))


def _row(cell: CellComparison, change: Change) -> tuple[TableValue, ...]:
    return (
        TableValue(result_label(cell.cell)),
        TableValue(metric_label(change.metric, change.detail)),
        TableValue(format_level(change.metric, change.before), change.before),
        TableValue(format_level(change.metric, change.after), change.after),
        TableValue(format_ratio_change(change.ratio), change.ratio.value - 1),
        TableValue(format_interval(change.ratio)),
        optional_value(change.adjusted_p, lambda p: f"{p:.3f}" if p >= 0.001 else "< 0.001"),
        TableValue(f"{change.launches[0]}, {change.launches[1]}", min(change.launches)),
        verdict_value(change.verdict),
        TableValue(", ".join(cell.flags), None, Tone.CAUTION if cell.flags else Tone.PLAIN),
    )


def verdict_value(verdict: Verdict) -> TableValue:
    """A verdict as a table value, coloured by its meaning."""
    return TableValue(verdict.value, verdict.value, _TONES.get(verdict, Tone.CAUTION))


def _others_table(cells: Sequence[CellComparison], names: tuple[str, str]) -> Table:
    tones = {Outcome.LOST: Tone.BAD, Outcome.GAINED: Tone.GOOD}
    rows = tuple(
        (
            TableValue(result_label(cell.cell)),
            TableValue(cell.outcome.value, cell.outcome.value, tones.get(cell.outcome, Tone.DIM)),
            TableValue(format_outcome(cell, names)),
        )
        for cell in cells
    )
    columns = (Column("cell", prose=True), Column("outcome"), Column("why", prose=True))
    return Table(f"Cells without a comparison, {names[1]} against {names[0]}", columns, rows, searchable=True)
