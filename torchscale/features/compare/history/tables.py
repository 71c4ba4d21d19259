"""Results over time on the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from torchscale.features.compare.history.next_commands import RunPlaces, next_commands
from torchscale.features.compare.history.page import HistoryReport
from torchscale.features.compare.history.text import (
    difference_texts,
    format_change_point,
    format_since,
    history_sentence,
    level_text,
    trend_label,
)
from torchscale.features.compare.history.trends import ChangePoint, Trend
from torchscale.features.compare.text.comparison import cell_text, metric_label
from torchscale.report.document import only_if, shortened

_MAX_ROWS = 60
"""About two screens; JSON and HTML hold every row."""
_MAX_CHANGES = 12
"""About two screens with what changed; JSON and HTML hold all."""


def print_history(report: HistoryReport, console: Console) -> None:
    """A row for each series, then the change points, newest first, and the answer in a sentence."""
    by_metric: dict[str, list[Trend]] = {}
    for trend in report.trends[:_MAX_ROWS]:
        by_metric.setdefault(metric_label(trend.metric.metric, trend.metric.detail), []).append(
            trend
        )
    for label, trends in by_metric.items():
        console.print(label, style="bold", markup=False, highlight=False)
        console.print(_table(trends, report.threshold))
        console.print()
    if len(report.trends) > _MAX_ROWS:
        console.print(
            f"… and {len(report.trends) - _MAX_ROWS} more (--json or --html)\n", markup=False
        )
    for trend, change in report.changes[:_MAX_CHANGES]:
        _print_change(trend, change, report.places, console)
    if len(report.changes) > _MAX_CHANGES:
        console.print(
            f"… and {len(report.changes) - _MAX_CHANGES} more changes (--json or --html)\n",
            markup=False,
        )
    for sentence in report.left_out[:_MAX_CHANGES]:
        console.print(shortened(sentence), markup=False, soft_wrap=True)
    if len(report.left_out) > _MAX_CHANGES:
        console.print(f"… and {len(report.left_out) - _MAX_CHANGES} more left out", markup=False)
    console.print(history_sentence(report.trends, report.threshold), markup=False, soft_wrap=True)


def _table(trends: list[Trend], threshold: float) -> Table:
    devices = {trend.device for trend in trends}
    first = [
        Column("cell", overflow="fold"),
        *only_if(len(devices) > 1, Column("device", overflow="fold")),
    ]
    table = Table(
        *first,
        *(
            Column(heading, justify="right", no_wrap=True)
            for heading in ("newest", "runs", "left out", "last change")
        ),
        Column("since (UTC)", no_wrap=True),
        box=None,
        pad_edge=False,
        padding=(0, 1, 0, 0),
        header_style="bold",
    )
    for trend in trends:
        change = trend.newest_change
        if trend.regression(threshold):
            style = "bold red"
        elif change and not change.worse:
            style = "green"
        else:
            style = "default"
        left_out = len(trend.points) - len(trend.counted)
        table.add_row(
            escape(cell_text(trend.cell)),
            *only_if(len(devices) > 1, escape(shortened(trend.device))),
            level_text(trend, trend.points[-1].figure.level),
            str(len(trend.counted)),
            str(left_out or ""),
            "–" if change is None else f"[{style}]{format_change_point(change)}[/{style}]",
            "" if change is None else escape(shortened(format_since(change))),
        )
    return table


def _print_change(trend: Trend, change: ChangePoint, places: RunPlaces, console: Console) -> None:
    """One change: what, by how much, since when, what else changed then, and what to type next."""
    verdict = "[green]better[/green]"
    if change.worse:
        verdict = "[bold red]worse[/bold red]"
    console.print(
        f"{verdict} since {escape(shortened(format_since(change)))} UTC: "
        f"{escape(trend_label(trend))} {format_change_point(change)}",
        soft_wrap=True,
    )
    before, after = change.runs
    console.print(
        shortened(
            f"  between {change.last.run.name} and {change.first.run.name} ({before} runs before, "
            f"{after} after)"
        ),
        markup=False,
        soft_wrap=True,
    )
    texts = difference_texts(change) or ["nothing that is recorded changed between these two"]
    for text in texts:
        console.print(f"  {text}", markup=False, soft_wrap=True)
    for command in next_commands(change, places):
        console.print(f"  {command}", markup=False, highlight=False, soft_wrap=True)
    console.print()
