"""Charts for notebooks: plotly's figures."""

from __future__ import annotations

from torchscale.report.charts import AnyChart, Chart, ChartSeries, StackedChart, TimelineChart
from torchscale.report.formats.charts.axes import cut_ends, ends_within, side_by_side, y_frame
from torchscale.report.formats.charts.palette import (
    COLOURS,
    PLOTLY_MARKERS,
    REFERENCE_COLOUR,
    TIMELINE_COLOURS,
    style_index,
)
from torchscale.report.formats.charts.plotly_layout import (
    LEGEND_ABOVE,
    LEGEND_BESIDE,
    Figure,
    axis_title,
    base_layout,
    chart_layout,
    escaped,
    figure_height,
    legend_name,
    rows_axis,
)
from torchscale.util.units import format_bytes


def chart_figure(chart: AnyChart) -> Figure:
    """``{"data": …, "layout": …}``, as ``plotly.graph_objects.Figure`` takes it."""
    if isinstance(chart, StackedChart):
        return _stacked(chart)
    if isinstance(chart, TimelineChart):
        return _timeline(chart)
    return {"data": _traces(chart), "layout": chart_layout(chart)}


def _traces(chart: Chart) -> list[Figure]:
    traces = []
    measured, frame = 0, y_frame(chart)
    for series in side_by_side(chart).series:
        style = style_index(max(0, measured - series.reference))
        traces.append(_trace(series, chart, style))
        if series.launches:
            traces.append(_launches(series, style))
        if frame is not None and cut_ends(series, frame):
            traces.append(_arrows(series, style, frame))
        measured += not series.reference
    return traces


def _trace(series: ChartSeries, chart: Chart, style: int) -> Figure:
    trace: Figure = {
        "type": "scatter",
        "name": legend_name(series.name),
        "x": series.x,
        "y": series.y,
        "hovertemplate": f"%{{y:,.4~g}} at %{{x:,.4~g}}<extra>{escaped(series.name)}</extra>",
        "mode": _mode(series, chart),
        "line": {"color": COLOURS[style], "width": 2},
        "marker": {"symbol": PLOTLY_MARKERS[style], "size": 8},
    }
    if chart.byte_sizes:
        trace["customdata"] = [format_bytes(x) for x in series.x]
        trace["hovertemplate"] = (
            f"%{{y:,.4~g}} at %{{customdata}}<extra>{escaped(series.name)}</extra>"
        )
    if series.reference:
        colour = REFERENCE_COLOUR
        if series.follows:
            colour = COLOURS[style]
        trace["line"] = {"color": colour, "width": 1.5, "dash": "dash"}
        trace["showlegend"] = series.legend
    if series.marks:
        trace["marker"] = {
            "symbol": "x-thin",
            "size": 11,
            "line": {"width": 2.5, "color": COLOURS[style]},
        }
    if series.high:
        trace["customdata"] = [
            _with_ends(*point) for point in zip(series.y, series.low, series.high, strict=True)
        ]
        trace["hovertemplate"] = f"%{{customdata}}<extra>{escaped(series.name)}</extra>"
        frame = y_frame(chart)
        lows, highs = (ends_within(ends, frame) for ends in (series.low, series.high))
        trace["error_y"] = {
            "type": "data",
            "symmetric": False,
            "thickness": 1.5,
            "array": [high - y for high, y in zip(highs, series.y, strict=True)],
            "arrayminus": [y - low for low, y in zip(lows, series.y, strict=True)],
        }
    return trace


def _with_ends(value: float, low: float, high: float) -> str:
    """``52.3 (25 to 84)``; the value alone where it has no interval."""
    if low < high:
        return f"{value:,.4g} ({low:,.4g} to {high:,.4g})"
    return f"{value:,.4g}"


def _arrows(series: ChartSeries, style: int, frame: tuple[float, float]) -> Figure:
    """Arrows at the frame where an interval goes on beyond it."""
    cut = cut_ends(series, frame)
    symbols = ["triangle-up" if end.upwards else "triangle-down" for end in cut]
    return {
        "type": "scatter",
        "name": escaped(f"{series.name}, intervals beyond the axis"),
        "x": [end.x for end in cut],
        "y": [end.y for end in cut],
        "customdata": ["{:,.4g} to {:,.4g}".format(*end.interval) for end in cut],
        "mode": "markers",
        "marker": {"color": COLOURS[style], "size": 10, "symbol": symbols},
        "cliponaxis": False,
        "showlegend": False,
        "hovertemplate": "interval: %{customdata}<extra></extra>",
    }


def _launches(series: ChartSeries, style: int) -> Figure:
    """A dot for each launch."""
    x, y = series.launch_points
    return {
        "type": "scatter",
        "name": escaped(f"{series.name}, launches"),
        "x": x,
        "y": y,
        "mode": "markers",
        "marker": {"color": COLOURS[style], "size": 5, "opacity": 0.5},
        "showlegend": False,
        "hovertemplate": "launch: %{y:,.4~g}<extra></extra>",
    }


def _mode(series: ChartSeries, chart: Chart) -> str:
    if series.marks:
        return "markers"
    if series.reference or not chart.markers:
        return "lines"
    if chart.lines:
        return "lines+markers"
    return "markers"


def _stacked(chart: StackedChart) -> Figure:
    along, across, orientation = "x", "y", "v"
    if chart.horizontal:
        along, across, orientation = "y", "x", "h"
    names = [escaped(bar) for bar in chart.bars]
    traces: list[Figure] = []
    for part in chart.parts:
        colour = REFERENCE_COLOUR
        if part.style is not None:
            colour = COLOURS[style_index(part.style)]
        trace: Figure = {
            "type": "bar",
            "orientation": orientation,
            "name": legend_name(part.name),
            across: part.values,
            along: names,
            "marker": {"color": colour},
            "hovertemplate": f"%{{{across}:,.4~g}}<extra>{escaped(part.name)}</extra>",
        }
        if part.hidden:
            trace |= {"opacity": 0, "showlegend": False, "hoverinfo": "skip"}
            del trace["hovertemplate"]
        elif any(other["name"] == trace["name"] for other in traces):
            trace["showlegend"] = False
        traces.append(trace)
    layout = base_layout(chart.title, chart.x_label, chart.y_label)
    layout["barmode"] = "relative"
    layout["legend"] = LEGEND_BESIDE
    if chart.horizontal:
        layout["legend"] = LEGEND_ABOVE
        layout["yaxis"] = rows_axis(chart.bars, autorange="reversed")
    else:
        layout["xaxis"] = {"title": axis_title(chart.x_label), "type": "category"}
    layout["height"] = figure_height(chart)
    return {"data": traces, "layout": layout}


def _timeline(chart: TimelineChart) -> Figure:
    traces: list[Figure] = []
    for number, (kind, stretches) in enumerate(chart.kinds):
        traces.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": legend_name(kind),
                "y": [escaped(chart.rows[stretch.row]) for stretch in stretches],
                "base": [stretch.start for stretch in stretches],
                "x": [stretch.end - stretch.start for stretch in stretches],
                "marker": {
                    "color": TIMELINE_COLOURS[number % len(TIMELINE_COLOURS)],
                    "line": {"width": 0},
                },
                "hovertemplate": f"%{{base:,.4~g}} + %{{x:,.4~g}}<extra>{escaped(kind)}</extra>",
            }
        )
    layout = base_layout(chart.title, chart.x_label, "")
    layout["barmode"] = "overlay"
    layout["dragmode"] = "zoom"
    layout["yaxis"] = rows_axis(
        chart.rows,
        categoryarray=[escaped(row) for row in reversed(chart.rows)],
        categoryorder="array",
        fixedrange=True,  # a drag zooms into time alone
    )
    layout["legend"] = LEGEND_ABOVE
    layout["height"] = figure_height(chart)
    return {"data": traces, "layout": layout}
