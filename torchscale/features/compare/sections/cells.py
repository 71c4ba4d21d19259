"""The change of each cell, and the cells that could not be compared."""

from __future__ import annotations

from collections.abc import Sequence

from torchscale.config.choices import Metric
from torchscale.features.compare.analysis.pair import (
    CellComparison,
    Change,
    Outcome,
    Overall,
    Pair,
    Verdict,
)
from torchscale.features.compare.text.comparison import (
    change_ends,
    comparison_label,
    format_level,
    format_outcome,
    format_p,
    format_ratio_change,
    format_verdict,
    metric_label,
    result_label,
)
from torchscale.report.document import (
    Block,
    Bullets,
    Column,
    Paragraph,
    Section,
    Table,
    TableValue,
    Tone,
    caution_where,
    optional_value,
    shortened,
)
from torchscale.report.text.words import plural

_MAX_BRIEF_ROWS = 15
"""Maximum number of rows: with headline, statuses and differences at most 60 lines: a screen of a
pull request."""
_TONES = {Verdict.BETTER: Tone.GOOD, Verdict.WORSE: Tone.BAD, Verdict.SAME: Tone.PLAIN}


def compared_cells_section(pairs: Sequence[Pair]) -> Section:
    """A table of changes and one of cells that were not compared, for each pair; then the meaning
    of the verdicts."""
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
        if pair.notes:
            blocks.append(Bullets(tuple(f"{note}." for note in pair.notes)))
        problems = (*pair.reference.problems, *pair.other.problems)
        if problems:
            blocks.append(Bullets(tuple(shortened(f"Skipped: {problem}") for problem in problems)))
    used = dict.fromkeys(
        change.verdict for pair in pairs for cell in pair.cells for change in cell.changes
    )
    if used:
        blocks.append(
            Bullets(
                tuple(
                    f"{verdict.value}: {verdict.explanation}."
                    for verdict in Verdict
                    if verdict in used
                )
            )
        )
    return Section("Cells", "cells", tuple(blocks))


def deciding_cells_section(
    pairs: Sequence[Pair], metrics: Sequence[Metric], *, with_cost: bool
) -> Section:
    """A short table of what decides, regressions first, for each pair; and the cells that were not
    compared."""
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
            Column("verdict"),
        )
        changes = shown_changes(pair, metrics, with_cost=with_cost)
        changes.sort(key=lambda found: found[1].verdict is not Verdict.WORSE)
        rows = tuple(_brief_row(cell, change) for cell, change in changes[:_MAX_BRIEF_ROWS])
        if rows:
            blocks.append(Table(f"{names[1]} against {names[0]}", columns, rows))
        others = [cell for cell in pair.cells if cell.outcome is not Outcome.COMPARED]
        if others:
            blocks.append(_others_table(others[:_MAX_BRIEF_ROWS], names))
        more = max(0, len(changes) - _MAX_BRIEF_ROWS) + max(0, len(others) - _MAX_BRIEF_ROWS)
        if more:
            blocks.append(Paragraph(f"And {plural(more, 'more row')}; HTML and JSON have all."))
        if pair.notes:
            blocks.append(Bullets(tuple(f"{note}." for note in pair.notes)))
    return Section("Cells", "cells", tuple(blocks))


def shown_changes(
    pair: Pair, metrics: Sequence[Metric], *, with_cost: bool
) -> list[tuple[CellComparison, Change]]:
    """What decides; the cost too where prices were given, although it decides nothing by itself."""
    changes = pair.decided_by(metrics)
    if with_cost and Metric.COST not in metrics:
        changes += pair.decided_by([Metric.COST])
    return changes


def _brief_row(cell: CellComparison, change: Change) -> tuple[TableValue, ...]:
    return (
        TableValue(comparison_label(cell)),
        TableValue(metric_label(change.metric, change.detail)),
        TableValue(format_level(change.metric, change.before), change.before),
        TableValue(format_level(change.metric, change.after), change.after),
        TableValue(format_ratio_change(change.ratio), change.ratio.value - 1),
        TableValue(change_ends(change)),
        verdict_value(change),
    )


def _row(cell: CellComparison, change: Change) -> tuple[TableValue, ...]:
    *brief, verdict = _brief_row(cell, change)
    return (
        *brief,
        optional_value(change.adjusted_p, format_p),
        TableValue(_launches(change), min(change.launches)),
        verdict,
        TableValue(", ".join(cell.flags), None, caution_where(cell.flags)),
    )


def _launches(change: Change) -> str:
    """``3, 3``, or ``6 in 2 sessions, 3``."""
    sides = zip(change.launches, change.sessions, strict=True)
    return ", ".join(
        f"{launches} in {sessions} sessions" if sessions > 1 else str(launches)
        for launches, sessions in sides
    )


def verdict_value(one: Change | Overall) -> TableValue:
    """A verdict as a table value, coloured by its meaning."""
    return TableValue(format_verdict(one), one.verdict.value, _TONES.get(one.verdict, Tone.CAUTION))


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
    return Table(
        f"Cells without a comparison, {names[1]} against {names[0]}", columns, rows, searchable=True
    )
