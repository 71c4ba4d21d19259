"""Draws charts on the axes of matplotlib, which the caller has imported."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torchscale.report.charts import (
    AnyChart,
    Chart,
    ChartSeries,
    StackedChart,
    TimelineChart,
    log_ticks,
)
from torchscale.report.formats.charts.axes import (
    cut_ends,
    ends_within,
    legend_corner,
    side_by_side,
    x_ticks,
    y_frame,
)
from torchscale.report.formats.charts.matplotlib_legend import (
    legend_above,
    legend_beside,
    legend_inside,
    shown_names,
)
from torchscale.report.formats.charts.palette import (
    COLOURS,
    MATPLOTLIB_MARKERS,
    REFERENCE_COLOUR,
    TIMELINE_COLOURS,
    style_index,
)
from torchscale.report.values import shortened

INCHES = {"small": 2.32, "normal": 3.54, "wide": 7.24}
"""Widths: three or two in a row of the page, or one; at these sizes the fonts have their size in
print."""
_TOP = 1.05
"""Upper end of an axis from 0, of the largest value."""
BAR = 0.7
"""Height of a bar of a timeline, of the distance between two."""
_TITLE_CHARACTERS = 80
"""Maximum number of characters of a chart of half a page, at its font size: with a longer one (of
long host names) no room is left for the axes."""


def draw_axes(axes: Any, chart: AnyChart) -> None:  # noqa: ANN401 - see _draw
    """Draw a chart of any kind."""
    if isinstance(chart, StackedChart):
        _draw_stacked(axes, chart)
    elif isinstance(chart, TimelineChart):
        _draw_timeline(axes, chart)
    else:
        _draw(axes, chart)


def _draw_stacked(axes: Any, chart: StackedChart) -> None:  # noqa: ANN401 - see _draw
    above, below = [0.0] * len(chart.bars), [0.0] * len(chart.bars)
    places = range(len(chart.bars))
    named: set[str] = set()
    for part in chart.parts:
        colour = REFERENCE_COLOUR
        if part.style is not None:
            colour = COLOURS[style_index(part.style)]
        sides = [_side(value, above, below) for value in part.values]
        starts = [side[place] for place, side in enumerate(sides)]
        label = part.name
        if part.name in named:
            label = "_"
        if part.hidden:
            pass
        elif chart.horizontal:
            axes.barh(places, part.values, 0.7, left=starts, color=colour, label=label)
        else:
            axes.bar(places, part.values, 0.6, bottom=starts, color=colour, label=label)
        named.add(part.name)
        for place, side in enumerate(sides):
            side[place] += part.values[place]
    _label(axes, chart.title, chart.x_label, chart.y_label)
    if chart.horizontal:
        _name_rows(axes, chart.bars)
    else:
        axes.set_xticks(list(places), chart.bars)
        legend_beside(axes)


def _side(value: float, above: list[float], below: list[float]) -> list[float]:
    """The side of the axis that a bar's layer is stacked on."""
    if value >= 0:
        return above
    return below


def _draw_timeline(axes: Any, chart: TimelineChart) -> None:  # noqa: ANN401 - see _draw
    from matplotlib.patches import PathPatch  # noqa: PLC0415 - see draw_chart
    from matplotlib.path import Path  # noqa: PLC0415

    for number, (kind, stretches) in enumerate(chart.kinds):
        colour = TIMELINE_COLOURS[number % len(TIMELINE_COLOURS)]
        corners = [
            corner
            for stretch in stretches
            for corner in _rectangle(
                stretch.start, stretch.end, stretch.row - BAR / 2, stretch.row + BAR / 2
            )
        ]
        steps = [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY] * len(
            stretches
        )
        bars = Path(corners, steps)  # one path: an element a bar would make pages of megabytes
        axes.add_patch(PathPatch(bars, facecolor=colour, edgecolor="none", label=kind))
    axes.autoscale_view()
    _label(axes, chart.title, chart.x_label, "")
    _name_rows(axes, chart.rows)


def _name_rows(axes: Any, names: tuple[str, ...]) -> None:  # noqa: ANN401 - see _draw
    """Names left of rows that begin at the top, and the legend above."""
    shown = shown_names(axes, names)
    axes.set_yticks(list(range(len(shown))), shown)
    axes.invert_yaxis()
    legend_above(axes, shown)


def _rectangle(left: float, right: float, low: float, high: float) -> list[tuple[float, float]]:
    return [(left, low), (right, low), (right, high), (left, high), (left, low)]


def _label(axes: Any, title: str, x_label: str, y_label: str) -> None:  # noqa: ANN401 - see _draw
    axes.set_title(shortened(title, _TITLE_CHARACTERS), fontsize=7.5, loc="left")
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.grid(visible=True, color="#dddddd", linewidth=0.5)
    axes.set_axisbelow(True)


def _draw(axes: Any, chart: Chart) -> None:  # noqa: ANN401 - matplotlib is not typed here
    measured = 0
    for series in side_by_side(chart).series:
        _draw_series(axes, series, chart, style_index(max(0, measured - series.reference)))
        measured += not series.reference
    _label(axes, chart.title, chart.x_label, chart.y_label)
    places, texts = x_ticks(chart)
    if chart.log_x:
        _make_log(axes.set_xscale, axes.set_xticks, places, texts)
    elif places:
        axes.set_xlim(*chart.x_range)
        axes.set_xticks(places, texts)
        if chart.x_names:
            axes.set_xticks(places, texts, rotation=30, ha="right", fontsize=6)
    frame = y_frame(chart)
    if chart.log_y:
        ticks = log_ticks(y for series in chart.series for y in series.y)
        _make_log(axes.set_yscale, axes.set_yticks, ticks, [f"{tick:,.12g}" for tick in ticks])
    elif frame is not None:
        axes.set_ylim(*frame)
    elif chart.y_from_zero:
        # The default margin is a share of the values' range: marks of values that are nearly equal
        # would be cut off.
        axes.set_ylim(0, max(axes.get_ylim()[1], _TOP * axes.dataLim.y1))
    if not chart.log_y:
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.6g}")
    if chart.x_names:
        legend_above(axes)
    elif len(chart.series) > 1:
        legend_inside(axes, *legend_corner(chart))


def _make_log(set_scale: Any, set_ticks: Any, ticks: Sequence[float], texts: Sequence[str]) -> None:  # noqa: ANN401
    set_scale("log")
    set_ticks([], minor=True)
    set_ticks(ticks, texts)


def _draw_series(axes: Any, series: ChartSeries, chart: Chart, style: int) -> None:  # noqa: ANN401 - see _draw
    if series.reference:
        label = "_"
        if series.legend:
            label = series.name
        colour = REFERENCE_COLOUR
        if series.follows:
            colour = COLOURS[style]
        axes.plot(series.x, series.y, color=colour, linestyle="--", linewidth=1, label=label)
        return
    if series.launches:
        x, y = series.launch_points
        axes.plot(
            x, y, color=COLOURS[style], marker=".", markersize=3, linewidth=0, alpha=0.5, label="_"
        )
    if series.high:
        _draw_whiskers(axes, series, y_frame(chart), COLOURS[style])
    marker, size, width = None, 4, 0.0
    if series.marks:
        marker, size = "x", 5
    elif chart.markers:
        marker = MATPLOTLIB_MARKERS[style]
    if chart.lines and not series.marks:
        width = 1.4
    axes.plot(
        series.x,
        series.y,
        color=COLOURS[style],
        marker=marker,
        markersize=size,
        linewidth=width,
        label=series.name,
    )


def _draw_whiskers(
    axes: Any,  # noqa: ANN401 - see _draw
    series: ChartSeries,
    frame: tuple[float, float] | None,
    colour: str,
) -> None:
    """Intervals; those that go on beyond the frame end in an arrow there."""
    lows, highs = (ends_within(ends, frame) for ends in (series.low, series.high))
    # From the lower end: an interval need not hold its point.
    lengths = [high - low for low, high in zip(lows, highs, strict=True)]
    errors = [[0.0] * len(lengths), lengths]
    axes.errorbar(series.x, lows, yerr=errors, fmt="none", color=colour, capsize=2, linewidth=0.8)
    for end in cut_ends(series, frame) if frame is not None else ():
        axes.plot(
            [end.x],
            [end.y],
            color=colour,
            marker="^" if end.upwards else "v",
            markersize=4,
            linewidth=0,
            clip_on=False,
            label="_",
        )
