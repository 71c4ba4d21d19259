"""Charts of series over time, on the page of a history."""

from __future__ import annotations

from collections.abc import Sequence

from torchscale.analysis.stats.series import geometric_mean
from torchscale.features.compare.history.text import (
    format_change_point,
    format_since,
    trend_label,
    unit_of,
)
from torchscale.features.compare.history.trends import Point, Trend
from torchscale.report.charts import Chart, ChartSeries, chart_name
from torchscale.report.document import Block, ChartGrid, Paragraph, Section
from torchscale.report.sections.charts import whiskers
from torchscale.util.units import parse_moment
from torchscale.util.words import plural

_MAX_CHARTS = 120
"""Maximum number of charts on one page: a browser draws about as many in a second or two. The table
holds every series."""
_FEWEST_POINTS = 2
"""Minimum number of points of a chart over time: one run is a row of the table."""
_MAX_POINTS = 400
"""Maximum number of points of a chart, the newest: more than there are pixels for the marks of
runs."""
_SECONDS_PER_DAY = 86_400


def charts_section(trends: Sequence[Trend]) -> Section:
    """A chart of every series that has several runs, those with changes first."""
    drawn = [trend for trend in trends if len(trend.points) >= _FEWEST_POINTS]
    ordered = sorted(drawn, key=lambda trend: not trend.changes)
    charts = tuple(_chart(trend, number) for number, trend in enumerate(ordered[:_MAX_CHARTS], 1))
    if not charts:
        return Section("Trends", "trends", ())
    text = (
        "Dots are runs, with the 95 % interval from launch to launch where a run has several. "
        "Lines are levels; a step between two lines is a change that noise does not explain. "
        "Crosses are runs that do not count (contended, throttled, failed). Series with changes "
        "come first."
    )
    more = len(ordered) - len(charts)
    blocks: list[Block] = [Paragraph(text, of_charts=True), ChartGrid(charts)]
    if more:
        blocks.append(
            Paragraph(
                f"{plural(more, 'chart')} more are left out; the table of series has all of them."
            )
        )
    return Section("Trends", "trends", tuple(blocks))


def _chart(trend: Trend, number: int) -> Chart:
    label = trend_label(trend)
    points = trend.points[-_MAX_POINTS:]
    zero = _seconds(points[0])
    scale, unit = unit_of(trend)
    counted = [point for point in points if not point.left_out]
    left_out = [point for point in points if point.left_out]
    series = [_dots("runs", counted, zero, scale)]
    if left_out:
        series.append(
            ChartSeries(
                "left out",
                tuple(_days(point, zero) for point in left_out),
                tuple(point.figure.level * scale for point in left_out),
                marks=True,
            )
        )
    shown = {id(point) for point in counted}
    for place, segment in enumerate(trend.segments):
        visible = [point for point in segment if id(point) in shown]
        if visible:
            level = geometric_mean([point.figure.level for point in segment]) * scale
            ends = (_days(visible[0], zero), _days(visible[-1], zero))
            series.append(
                ChartSeries("level", ends, (level, level), reference=True, legend=place == 0)
            )
    newest = trend.newest_change
    told = "no change of level"
    if newest is not None:
        told = f"{format_change_point(newest)} since {format_since(newest)}"
    return Chart(
        name=chart_name(f"history-{number}", label),
        title=label,
        summary=f"{label} over {plural(len(points), 'run')}: {told}.",
        x_label=f"days since {points[0].measured_at[:10] or 'the first run'}",
        y_label=unit,
        series=tuple(series),
        y_from_zero=False,
        lines=False,
    )


def _dots(name: str, points: Sequence[Point], zero: float, scale: float) -> ChartSeries:
    figures = [point.figure for point in points]
    ends = [(one.low, one.high) for one in figures]
    intervals = [None if low is None or high is None else (low, high) for low, high in ends]
    lows, highs = whiskers([figure.level for figure in figures], intervals)
    return ChartSeries(
        name,
        tuple(_days(point, zero) for point in points),
        tuple(figure.level * scale for figure in figures),
        tuple(low * scale for low in lows),
        tuple(high * scale for high in highs),
    )


def _days(point: Point, zero: float) -> float:
    return (_seconds(point) - zero) / _SECONDS_PER_DAY


def _seconds(point: Point) -> float:
    """Seconds of a point since the epoch; 0 where the time is unknown or damaged."""
    moment = parse_moment(point.measured_at)
    return 0.0 if moment is None else moment.timestamp()
