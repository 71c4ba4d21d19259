"""The change of each cell, and the cells that could not be compared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torchscale.analysis.stats.ratios import LogRatio
from torchscale.config.choices import Metric
from torchscale.features.compare.analysis.change import ChangeVerdict, MetricChange
from torchscale.features.compare.analysis.pair import CellComparison, CellOutcome, Overall, Pair
from torchscale.features.compare.text.comparison import (
    UNDISTURBED,
    comparison_label,
    format_interval,
    format_outcome,
    format_p,
    format_ratio_change,
    format_undisturbed,
    format_verdict,
    table_names,
)
from torchscale.features.compare.text.result import format_level, metric_label, result_label
from torchscale.report.document import Block, Bullets, Paragraph, Section
from torchscale.report.table import ColumnOf, Table, table_of
from torchscale.report.values import TableValue, Tone, caution_where, shortened
from torchscale.util.words import plural

MAX_BRIEF_ROWS = 15
"""Maximum number of rows: with headline, statuses and differences at most 60 lines: a screen of a
pull request."""
_TONES = {
    ChangeVerdict.BETTER: Tone.GOOD,
    ChangeVerdict.WORSE: Tone.BAD,
    ChangeVerdict.SAME: Tone.PLAIN,
}


def compared_cells_section(pairs: Sequence[Pair]) -> Section:
    """A table of changes and one of cells that were not compared, for each pair; then the meaning
    of the verdicts."""
    blocks: list[Block] = []
    for pair, names in _with_names(pairs):
        rows = [(cell, change) for cell in pair.cells for change in cell.changes]
        if rows:
            caption = f"{names[1]} against {names[0]}"
            blocks.append(table_of(caption, _columns(names, rows), rows, searchable=True))
        others = [cell for cell in pair.cells if cell.outcome is not CellOutcome.COMPARED]
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
                    for verdict in ChangeVerdict
                    if verdict in used
                )
            )
        )
    return Section("Cells", "cells", tuple(blocks))


def deciding_cells_section(
    pairs: Sequence[Pair],
    metrics: Sequence[Metric],
    *,
    with_cost: bool,
    limit: int = MAX_BRIEF_ROWS,
    warnings: bool = False,
) -> Section:
    """A table of what decides, regressions first, for each pair, and the cells that were not
    compared; ``limit`` rows of each at most. With ``warnings`` each row has those of its cell."""
    blocks: list[Block] = []
    for pair, names in _with_names(pairs):
        changes = shown_changes(pair, metrics, with_cost=with_cost)
        changes.sort(key=lambda found: found[1].verdict is not ChangeVerdict.WORSE)
        if changes:
            rows = changes[:limit]
            columns = _columns(names, rows, brief=True, warnings=warnings)
            blocks.append(table_of(f"{names[1]} against {names[0]}", columns, rows))
        others = [cell for cell in pair.cells if cell.outcome is not CellOutcome.COMPARED]
        if others:
            blocks.append(_others_table(others[:limit], names))
        more = max(0, len(changes) - limit) + max(0, len(others) - limit)
        if more:
            blocks.append(Paragraph(f"And {plural(more, 'more row')}; HTML and JSON have all."))
        if pair.notes:
            blocks.append(Bullets(tuple(f"{note}." for note in pair.notes)))
    return Section("Cells", "cells", tuple(blocks))


def _with_names(pairs: Sequence[Pair]) -> Iterator[tuple[Pair, tuple[str, str]]]:
    """Each pair with the names of its sides in tables."""
    if pairs:
        reference, *others = table_names(
            [pairs[0].reference.name, *(pair.other.name for pair in pairs)]
        )
        yield from ((pair, (reference, other)) for pair, other in zip(pairs, others, strict=True))


def shown_changes(
    pair: Pair, metrics: Sequence[Metric], *, with_cost: bool
) -> list[tuple[CellComparison, MetricChange]]:
    """What decides; the cost too where prices were given, although it decides nothing by itself."""
    changes = pair.decided_by(metrics)
    if with_cost and Metric.COST not in metrics:
        changes += pair.decided_by([Metric.COST])
    return changes


def _columns(
    names: tuple[str, str],
    rows: Sequence[tuple[CellComparison, MetricChange]],
    *,
    brief: bool = False,
    warnings: bool = True,
) -> tuple[ColumnOf[tuple[CellComparison, MetricChange]], ...]:
    disturbed = any(change.conditions for _, change in rows)
    return (
        ColumnOf("cell", lambda row: comparison_label(row[0]), prose=True),
        ColumnOf("metric", lambda row: metric_label(row[1].metric, row[1].detail)),
        ColumnOf(names[0], lambda row: _level(row[1].metric, row[1].before), numeric=True),
        ColumnOf(names[1], lambda row: _level(row[1].metric, row[1].after), numeric=True),
        ColumnOf("change", lambda row: ratio_value(row[1].ratio), numeric=True),
        ColumnOf("95 % interval", lambda row: format_interval(row[1].ratio), numeric=True),
        ColumnOf(
            UNDISTURBED, lambda row: format_undisturbed(row[1]), numeric=True, shown=disturbed
        ),
        ColumnOf("p, corrected", lambda row: row[1].adjusted_p, format_p, shown=not brief),
        ColumnOf("launches", lambda row: _launches(row[1]), numeric=True, shown=not brief),
        ColumnOf("verdict", lambda row: verdict_value(row[1])),
        ColumnOf("warnings", lambda row: _warnings(row[0]), shown=warnings),
    )


def _level(metric: Metric, value: float) -> TableValue:
    return TableValue(format_level(metric, value), value)


def ratio_value(ratio: LogRatio) -> TableValue:
    """A ratio as a change."""
    return TableValue(format_ratio_change(ratio), ratio.value - 1)


def _warnings(cell: CellComparison) -> TableValue:
    return TableValue(", ".join(cell.flags), None, caution_where(cell.flags))


def _launches(change: MetricChange) -> TableValue:
    """``3, 3``, or ``6 in 2 sessions, 3``."""
    sides = zip(change.launches, change.sessions, strict=True)
    text = ", ".join(
        f"{launches} in {sessions} sessions" if sessions > 1 else str(launches)
        for launches, sessions in sides
    )
    return TableValue(text, min(change.launches))


def verdict_value(one: MetricChange | Overall) -> TableValue:
    """A verdict as a table value, coloured by its meaning."""
    return TableValue(format_verdict(one), one.verdict.value, _TONES.get(one.verdict, Tone.CAUTION))


def _others_table(cells: Sequence[CellComparison], names: tuple[str, str]) -> Table:
    columns: tuple[ColumnOf[CellComparison], ...] = (
        ColumnOf("cell", lambda one: result_label(one.cell), prose=True),
        ColumnOf("outcome", lambda one: _outcome(one.outcome)),
        ColumnOf("why", lambda one: format_outcome(one, names), prose=True),
    )
    caption = f"Cells without a comparison, {names[1]} against {names[0]}"
    return table_of(caption, columns, cells, searchable=True)


def _outcome(outcome: CellOutcome) -> TableValue:
    tones = {CellOutcome.LOST: Tone.BAD, CellOutcome.GAINED: Tone.GOOD}
    return TableValue(outcome.value, outcome.value, tones.get(outcome, Tone.DIM))
