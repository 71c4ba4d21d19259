"""A comparison as tables on the terminal."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from torchscale.features.compare.analysis.pair import CellComparison, Change, Outcome, Pair, Verdict
from torchscale.features.compare.sections.cells import shown_changes
from torchscale.features.compare.sections.document import ComparisonReport
from torchscale.features.compare.sections.ranking import best_sentence, ranking_table
from torchscale.features.compare.terminal.why import print_why
from torchscale.features.compare.text.comparison import (
    BRACKETS,
    both_values,
    change_ends,
    format_level,
    format_outcome,
    format_ratio_change,
    format_scores,
    format_state,
    format_verdict,
    measured_days,
    metric_label,
    result_label,
)
from torchscale.features.compare.text.verdict import format_session_noise, pair_verdict
from torchscale.report.document import only_if, shortened
from torchscale.report.text.labels import short_batch, short_title
from torchscale.report.text.words import and_others, plural
from torchscale.schema.cells.kinds import AnyCell, training_workload
from torchscale.schema.run.metric_key import MetricKey
from torchscale.schema.run.result_set import ResultCell, ResultSet
from torchscale.util.units import format_percent

_STYLES = {Verdict.BETTER: "green", Verdict.WORSE: "bold red", Verdict.SAME: "default"}
_MAX_ROWS = 60
"""About two screens; JSON and HTML hold every row."""
_MAX_DIFFERENCES = 12
"""Half a screen; JSON and HTML hold all."""
_MAX_PROBLEMS = 5
"""Damaged files: the first ones tell what is wrong; ``report`` of the run lists all."""


def print_comparison(comparison: ComparisonReport, console: Console) -> None:
    """The change of each cell, the verdict, and what differs between the sides; this first where
    cells that differ were asked to be compared."""
    if comparison.matched_by_name:
        _print_differences(comparison, console)
        console.print()
    if comparison.ranking:
        _print_ranking(comparison, console)
    for pair in comparison.pairs:
        _print_pair(pair, comparison, console)
    for explained in comparison.why:
        print_why(explained, console)
    for sentence in comparison.left_out:
        console.print(shortened(sentence), markup=False, soft_wrap=True)
    _print_problems(comparison, console)
    if not comparison.matched_by_name:
        _print_differences(comparison, console)


def _print_problems(comparison: ComparisonReport, console: Console) -> None:
    """Files that could not be read, and so are why a side measured less."""
    sides = (comparison.pairs[0].reference, *(pair.other for pair in comparison.pairs))
    problems = [problem for side in sides for problem in side.problems]
    for problem in problems[:_MAX_PROBLEMS]:
        console.print(shortened(f"Skipped: {problem}"), markup=False, soft_wrap=True)
    if len(problems) > _MAX_PROBLEMS:
        console.print(f"… and {len(problems) - _MAX_PROBLEMS} more skipped", markup=False)


def _print_ranking(comparison: ComparisonReport, console: Console) -> None:
    table = ranking_table(comparison.ranking, comparison.names[0])
    shown = Table(
        *(
            Column(column.title, justify="right" if column.numeric else "left")
            for column in table.columns
        ),
        box=None,
        pad_edge=False,
        padding=(0, 1, 0, 0),
        header_style="bold",
    )
    for row in table.rows:
        shown.add_row(*(escape(value.text) for value in row))
    _print_table(table.caption, shown, console)
    console.print(best_sentence(comparison.ranking), markup=False, soft_wrap=True)
    console.print()


def _print_differences(comparison: ComparisonReport, console: Console) -> None:
    if comparison.differences:
        console.print("Differences:", markup=False)
        for difference in comparison.differences[:_MAX_DIFFERENCES]:
            console.print(
                shortened(
                    f"  {difference.what}: "
                    f"{' | '.join(value or '–' for value in difference.values)}"
                ),
                markup=False,
                soft_wrap=True,
            )
        more = len(comparison.differences) - _MAX_DIFFERENCES
        if more > 0:
            console.print(f"  … and {more} more (--format json or html)", markup=False)


def _print_pair(pair: Pair, comparison: ComparisonReport, console: Console) -> None:
    names = (shortened(pair.reference.name), shortened(pair.other.name))
    decided = pair.decided_by(comparison.metrics)
    shown = shown_changes(pair, comparison.metrics, with_cost=bool(comparison.prices))
    by_metric: dict[str, list[tuple[CellComparison, Change]]] = {}
    for cell, change in shown[:_MAX_ROWS]:
        by_metric.setdefault(metric_label(change.metric, change.detail), []).append((cell, change))
    for label, changes in by_metric.items():
        _print_table(label, _table(changes, names), console)
    if len(shown) > _MAX_ROWS:
        console.print(f"… and {len(shown) - _MAX_ROWS} more (--format json or html)", markup=False)
    others: dict[str, list[ResultCell]] = {}
    for cell in pair.cells:
        if cell.outcome is not Outcome.COMPARED:
            others.setdefault(f"{cell.outcome.value}: {format_outcome(cell, names)}", []).append(
                cell.cell
            )
    if others:
        _print_grouped(others, console)
        console.print()
    for sentence in pair_verdict(pair, comparison.metrics):
        console.print(sentence, markup=False, soft_wrap=True)
    for score in format_scores(pair):
        console.print(score, markup=False, soft_wrap=True)
    if decided:
        console.print(
            format_session_noise([change for _, change in decided]), markup=False, soft_wrap=True
        )
    for note in pair.notes:
        console.print(f"{note}.", markup=False, soft_wrap=True)
    if any(change.conditions for _, change in shown):
        console.print(BRACKETS, markup=False, soft_wrap=True)
    flagged = sum(bool(cell.flags) for cell, _ in decided)
    if flagged:
        text = "* measured with a warning on one side; see the report of that side"
        console.print(f"{text} ({plural(flagged, 'row')}).", markup=False, soft_wrap=True)
    console.print()


def _print_table(heading: str, table: Table, console: Console) -> None:
    console.print(heading, style="bold", markup=False, highlight=False)
    console.print(table)
    console.print()


def _print_grouped(cells: Mapping[str, Sequence[ResultCell]], console: Console) -> None:
    """Cells grouped by outcome, a line per group."""
    for outcome, results in list(cells.items())[:_MAX_DIFFERENCES]:
        more = and_others(len(results) - 1)
        console.print(
            shortened(f"{result_label(results[0])}{more}: {outcome}"), markup=False, soft_wrap=True
        )
    left = sum(map(len, list(cells.values())[_MAX_DIFFERENCES:]))
    if left:
        console.print(f"… and {plural(left, 'other cell')}", markup=False)


def _cell_table(
    cells: Sequence[Sequence[AnyCell]], columns: Sequence[Column], rows: Sequence[Sequence[str]]
) -> Table:
    """One row per cell, or pair of cells: title, batch if any has one, device count; then ``rows``
    in ``columns``."""
    heads = [[_head(cell) for cell in sides] for sides in cells]
    both = [
        [both_values(ours, theirs) for ours, theirs in zip(sides[0], sides[-1], strict=True)]
        for sides in heads
    ]
    with_batch = any(batch for _, batch, _ in both)
    first = [
        Column("cell", overflow="fold"),
        *only_if(with_batch, _narrow("batch")),
        _narrow("n"),
    ]
    table = Table(
        *first, *columns, box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold"
    )
    for (title, batch, count), row in zip(both, rows, strict=True):
        table.add_row(escape(title), *only_if(with_batch, batch), count, *row)
    return table


def _narrow(heading: str) -> Column:
    return Column(heading, justify="right", no_wrap=True)


def _head(cell: AnyCell) -> tuple[str, str, str]:
    """Title, batch, device count."""
    workload = training_workload(cell)
    if workload is not None:
        return short_title(workload), short_batch(workload), str(cell.world_size)
    return shortened(", ".join([cell.title, *cell.settings])), "", str(cell.world_size)


def _table(changes: Sequence[tuple[CellComparison, Change]], names: tuple[str, str]) -> Table:
    """Changes of one metric."""
    with_interval = any(change.ratio.interval is not None for _, change in changes)
    columns = [
        *(Column(escape(name), justify="right", overflow="fold") for name in names),
        *map(_narrow, ("change", *only_if(with_interval, "95 % interval"))),
        Column("verdict", no_wrap=True),
    ]
    rows = []
    for cell, change in changes:
        style = _STYLES.get(change.verdict, "yellow")
        mark = ""
        if cell.flags:
            mark = "[yellow]*[/yellow]"
        levels = [format_level(change.metric, value) for value in (change.before, change.after)]
        interval = []
        if with_interval:
            interval.append(escape(change_ends(change)))
        verdict = f"[{style}]{format_verdict(change)}[/{style}]{mark}"
        rows.append([*levels, format_ratio_change(change.ratio), *interval, verdict])
    return _cell_table([_cells_of(cell) for cell, _ in changes], columns, rows)


def _cells_of(cell: CellComparison) -> Sequence[AnyCell]:
    return [side.cell for side in (cell.before, cell.after) if side is not None]


def print_result_set(results: ResultSet, console: Console) -> None:
    """The machine, and the figures of each cell."""
    device = ", ".join(sorted({cell.device for cell in results.cells if cell.device}))
    host = ""
    if results.environment is not None:
        host = f" on {results.environment.hostname}"
    console.print(
        shortened(f"{results.name}: measured {measured_days(results)}{host}, {device}"),
        markup=False,
    )
    console.print()
    by_metric: dict[MetricKey, list[ResultCell]] = {}
    others: dict[str, list[ResultCell]] = {}
    for cell in results.cells:
        for key in dict.fromkeys(key for launch in cell.launches for key in launch.values):
            by_metric.setdefault(key, []).append(cell)
        if not cell.launches:
            others.setdefault(format_state(cell), []).append(cell)
    for key, cells in by_metric.items():
        rows = []
        for cell in cells:
            values = [launch.values[key] for launch in cell.launches if key in launch.values]
            mean = statistics.geometric_mean(values)
            if len(values) < 2:
                spread = "–"
            else:
                spread = format_percent(statistics.stdev(values) / mean)
            rows.append([format_level(key.metric, mean), spread, str(len(values))])
        columns = [_narrow(heading) for heading in ("geometric mean", "spread", "launches")]
        table = _cell_table([[cell.cell] for cell in cells], columns, rows)
        _print_table(metric_label(key.metric, key.detail), table, console)
    _print_grouped(others, console)
