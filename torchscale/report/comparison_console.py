"""A comparison as tables on the terminal."""

from __future__ import annotations

import statistics

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from torchscale.analysis.comparison import Outcome, Pair, Verdict
from torchscale.report.comparison import Comparison
from torchscale.report.comparison_words import (
    change_words,
    interval_words,
    level_words,
    metric_words,
    outcome_words,
    pair_verdict,
    result_words,
    score_words,
)
from torchscale.report.document import shortened
from torchscale.report.words import plural
from torchscale.schema.results import Metric, ResultCell, ResultSet
from torchscale.units import format_percent

_STYLES = {Verdict.BETTER: "green", Verdict.WORSE: "bold red", Verdict.SAME: "default"}
_MAX_ROWS = 60
_MAX_DIFFERENCES = 12


def print_comparison(comparison: Comparison, console: Console) -> None:
    """What changed, cell by cell, then the verdict; what else differs."""
    for pair in comparison.pairs:
        _print_pair(pair, comparison, console)
    if comparison.differences:
        console.print("They differ in:", markup=False)
        for one in comparison.differences[:_MAX_DIFFERENCES]:
            console.print(
                shortened(f"  {one.what}: {' | '.join(value or '–' for value in one.values)}"),
                markup=False,
                soft_wrap=True,
            )
        more = len(comparison.differences) - _MAX_DIFFERENCES
        if more > 0:
            console.print(f"  … and {more} more (--format json or html)", markup=False)


def _print_pair(pair: Pair, comparison: Comparison, console: Console) -> None:
    names = (shortened(pair.reference.name), shortened(pair.other.name))
    decided = pair.decided_by(comparison.metrics)
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("cell", overflow="fold")
    metrics = {metric_words(change) for _, change in decided}
    if len(metrics) > 1:
        table.add_column("metric", overflow="fold")
    one_metric = next(iter(metrics), "")
    for name in names:
        heading = escape(name if len(metrics) > 1 else f"{name}, {one_metric}")
        table.add_column(heading, justify="right", overflow="fold")
    for heading in ("change", "95 % interval"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for cell, change in decided[:_MAX_ROWS]:
        style = _STYLES.get(change.verdict, "yellow")
        mark = "[yellow]*[/yellow]" if cell.flags else ""
        table.add_row(
            escape(result_words(cell.cell)),
            *([metric_words(change)] if len(metrics) > 1 else []),
            level_words(change.metric, change.before),
            level_words(change.metric, change.after),
            change_words(change.ratio),
            interval_words(change.ratio),
            f"[{style}]{change.verdict.value}[/{style}]{mark}",
        )
    if table.row_count:
        console.print(table)
    if len(decided) > _MAX_ROWS:
        console.print(f"… and {len(decided) - _MAX_ROWS} more (--format json or html)", markup=False)
    others = [cell for cell in pair.cells if cell.outcome is not Outcome.COMPARED]
    for cell in others[:_MAX_DIFFERENCES]:
        text = f"{cell.outcome.value}: {result_words(cell.cell)}: {outcome_words(cell, names)}"
        console.print(shortened(text), markup=False, soft_wrap=True)
    if len(others) > _MAX_DIFFERENCES:
        console.print(f"… and {len(others) - _MAX_DIFFERENCES} more that were not compared", markup=False)
    console.print()
    for sentence in pair_verdict(pair, comparison.metrics):
        console.print(sentence, markup=False, soft_wrap=True)
    if pair.score is not None:
        console.print(f"Score: {score_words(pair.score)}.", markup=False)
    for note in pair.notes:
        console.print(f"{note}.", markup=False, soft_wrap=True)
    flagged = sum(bool(cell.flags) for cell, _ in decided)
    if flagged:
        text = "* the measurement of a side carries a warning; the report of that side tells which"
        console.print(f"{text} ({plural(flagged, 'row')}).", markup=False, soft_wrap=True)
    console.print()


def print_result_set(results: ResultSet, console: Console) -> None:
    """Where it was measured, and the figures of each cell."""
    device = ", ".join(sorted({cell.device for cell in results.cells if cell.device}))
    host = "" if results.environment is None else f" on {results.environment.hostname}"
    console.print(shortened(f"{results.name}: measured {results.created_at}{host}, {device}"), markup=False)
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("cell", overflow="fold")
    table.add_column("metric")
    table.add_column("mean of launches", justify="right")
    table.add_column("spread", justify="right")
    table.add_column("launches", justify="right")
    table.add_column("state")
    for cell in results.cells:
        keys = list(cell.launches[0].values) if cell.launches else []
        for key in keys or [""]:
            table.add_row(*_figure_row(cell, key))
    console.print(table)


def _figure_row(cell: ResultCell, key: str) -> list[str]:
    values = [launch.values[key] for launch in cell.launches if key in launch.values]
    name = escape(result_words(cell))
    if not values:
        return [name, "–", "–", "–", str(len(cell.launches)), f"{cell.state.value}"]
    metric = Metric(key.partition("/")[0])
    mean = statistics.fmean(values)
    spread = "–" if len(values) < 2 else format_percent(statistics.stdev(values) / mean)
    words = key.replace("/", " ")
    return [name, escape(words), level_words(metric, mean), spread, str(len(values)), f"{cell.state.value}"]
