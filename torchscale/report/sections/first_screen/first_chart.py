"""The one chart of the first screen."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from torchscale.analysis.summary.run import RunSummary
from torchscale.analysis.training.summary import TrainingSummary
from torchscale.report.charts import AnyChart, BarLayer, Chart, ChartSeries, StackedChart
from torchscale.report.sections.charts import efficiency_ends, node_boundary
from torchscale.report.sections.first_screen.recorded import first_timeline
from torchscale.report.sections.selection import MAX_LINES
from torchscale.report.text.labels import batch_label, short_title
from torchscale.report.text.run_labels import device_noun
from torchscale.report.values import only_if
from torchscale.schema.exports.training import Phases

_NAME = "overview"
_MAX_BARS = 12
"""Bars that are as high as their names."""
_PHASES = (
    "data wait",
    "forward",
    "backward",
    "exposed sync",
    "optimizer",
    "pipeline bubble",
    "compute",
)


def first_chart(summary: RunSummary) -> AnyChart | None:
    """Efficiency over device counts; without several counts the phases of a step; for profiles
    alone a timeline."""
    scaled = [cell for cell in summary.measured if cell.efficiency is not None]
    if any(
        cell.efficiency and cell.efficiency.baseline_world_size < cell.cell.world_size
        for cell in scaled
    ):
        return _efficiency(summary, scaled)
    if summary.measured:
        return _phases(summary)
    profiled = next((cell for cell in summary.cells if cell.profile is not None), None)
    if profiled is None or profiled.profile is None:
        return None
    return first_timeline(profiled.profile)


def shows_every_series(summary: RunSummary) -> bool:
    """Whether the chart of efficiency has a line for each series."""
    return (
        len({cell.cell.series for cell in summary.measured if cell.efficiency is not None})
        <= MAX_LINES
    )


def _efficiency(summary: RunSummary, scaled: Sequence[TrainingSummary]) -> Chart:
    """A line per series, or of very many series their median."""
    series: dict[str, list[TrainingSummary]] = {}
    for cell in scaled:
        series.setdefault(cell.cell.series, []).append(cell)
    lines = [sorted(line, key=lambda cell: cell.cell.world_size) for line in series.values()]
    counts = tuple(sorted({float(cell.cell.world_size) for line in lines for cell in line}))
    if len(lines) <= MAX_LINES:
        measured = [_line(line, lines) for line in lines]
    else:
        measured = [_median(scaled)]
    return Chart(
        name=_NAME,
        title=f"Scaling efficiency over {device_noun(summary)}",
        summary=f"Scaling efficiency of each series against the number of {device_noun(summary)}.",
        x_label=device_noun(summary),
        y_label="efficiency, %",
        series=(
            *measured,
            ChartSeries("ideal", counts, tuple(100.0 for _ in counts), reference=True),
            *node_boundary(lines, 100.0),
        ),
        x_ticks=counts,
        prominent=True,
    )


def _line(
    line: Sequence[TrainingSummary], lines: Sequence[Sequence[TrainingSummary]]
) -> ChartSeries:
    points = [
        (cell.cell.world_size, cell.efficiency) for cell in line if cell.efficiency is not None
    ]
    low, high = efficiency_ends([efficiency for _, efficiency in points])
    return ChartSeries(
        _name(line[0], lines),
        tuple(float(count) for count, _ in points),
        tuple(efficiency.value * 100 for _, efficiency in points),
        low,
        high,
    )


def _name(cell: TrainingSummary, lines: Sequence[Sequence[TrainingSummary]]) -> str:
    """What tells this series from the others: model and setting, or batch, or both."""
    titles = {short_title(line[0].cell) for line in lines}
    batches = {batch_label(line[0].cell) for line in lines}
    parts = []
    if len(titles) > 1 or len(batches) == 1:
        parts.append(short_title(cell.cell))
    return ", ".join([*parts, *only_if(len(batches) > 1, batch_label(cell.cell))])


def _median(scaled: Sequence[TrainingSummary]) -> ChartSeries:
    by_count: dict[int, list[float]] = {}
    for cell in scaled:
        if cell.efficiency is not None:
            by_count.setdefault(cell.cell.world_size, []).append(cell.efficiency.value * 100)
    counts = sorted(by_count)
    lows, middles, highs = zip(
        *(np.quantile(by_count[count], (0.1, 0.5, 0.9)) for count in counts), strict=True
    )
    return ChartSeries(
        "median of all series, with the middle 80 %",
        tuple(map(float, counts)),
        tuple(map(float, middles)),
        tuple(map(float, lows)),
        tuple(map(float, highs)),
    )


def _phases(summary: RunSummary) -> StackedChart | None:
    """Where the step of each cell goes, as shares."""
    cells = [(cell, cell.figures.phases) for cell in summary.measured if cell.figures is not None][
        :_MAX_BARS
    ]
    shares = [_shares(phases) for _, phases in cells]
    parts = [
        BarLayer(name, values, style)
        for style, (name, values) in enumerate(zip(_PHASES, zip(*shares, strict=True), strict=True))
        if any(values)
    ]
    count = cells[0][0].cell.world_size
    return StackedChart(
        name=_NAME,
        title=f"Where the time of a step goes, {count} {device_noun(summary, count)}",
        summary="Phases of the mean step of each cell, as shares of it.",
        x_label="share of the step, %",
        y_label="",
        bars=tuple(f"{short_title(cell.cell)}, {batch_label(cell.cell)}" for cell, _ in cells),
        parts=tuple(parts),
        horizontal=True,
    )


def _shares(phases: Phases) -> list[float]:
    seconds = (
        phases.data_wait,
        phases.forward or 0.0,
        phases.backward or 0.0,
        phases.sync or 0.0,
        phases.optimizer or 0.0,
        phases.bubble or 0.0,
        phases.compute or 0.0,
    )
    whole = sum(seconds)
    return [value / whole * 100 if whole else 0.0 for value in seconds]
