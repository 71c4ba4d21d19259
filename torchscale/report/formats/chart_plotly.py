"""Charts for notebooks: plotly's figures."""

from __future__ import annotations

from torchscale.report.charts import (
    AnyChart,
    Chart,
    ChartSeries,
    StackedChart,
    TimelineChart,
    log_ticks,
)
from torchscale.report.formats.axes import (
    cut_at,
    cut_points,
    ends_within,
    is_small,
    legend_corner,
    side_by_side,
    x_ticks,
)
from torchscale.report.formats.palette import (
    COLOURS,
    PLOTLY_MARKERS,
    REFERENCE_COLOUR,
    TIMELINE_COLOURS,
    style_index,
)
from torchscale.util.units import format_bytes

Figure = dict[str, object]


def chart_figure(chart: AnyChart) -> Figure:
    """``{"data": …, "layout": …}``, as ``plotly.graph_objects.Figure`` takes it."""
    if isinstance(chart, StackedChart):
        return _stacked(chart)
    if isinstance(chart, TimelineChart):
        return _timeline(chart)
    return {"data": _traces(chart), "layout": _layout(chart)}


def _traces(chart: Chart) -> list[Figure]:
    traces = []
    measured, limit = 0, cut_at(chart)
    for series in side_by_side(chart).series:
        style = style_index(max(0, measured - series.reference))
        traces.append(_trace(series, chart, style))
        if series.launches:
            traces.append(_launches(series, style))
        if limit is not None and cut_points(series, limit):
            traces.append(_arrows(series, style, limit))
        measured += not series.reference
    return traces


def _trace(series: ChartSeries, chart: Chart, style: int) -> Figure:
    trace: Figure = {
        "type": "scatter",
        "name": _escape(series.name),
        "x": series.x,
        "y": series.y,
        "hovertemplate": f"%{{y:,.4~g}} at %{{x:,.4~g}}<extra>{_escape(series.name)}</extra>",
        "mode": _mode(series, chart),
        "line": {"color": COLOURS[style], "width": 2},
        "marker": {"symbol": PLOTLY_MARKERS[style], "size": 8},
    }
    if chart.byte_sizes:
        trace["customdata"] = [format_bytes(x) for x in series.x]
        trace["hovertemplate"] = (
            f"%{{y:,.4~g}} at %{{customdata}}<extra>{_escape(series.name)}</extra>"
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
        trace["hovertemplate"] = f"%{{customdata}}<extra>{_escape(series.name)}</extra>"
        limit = cut_at(chart)
        drawn = ends_within(series.high, limit)
        trace["error_y"] = {
            "type": "data",
            "symmetric": False,
            "thickness": 1.5,
            "array": [high - y for high, y in zip(drawn, series.y, strict=True)],
            "arrayminus": [y - low for low, y in zip(series.low, series.y, strict=True)],
        }
    return trace


def _with_ends(value: float, low: float, high: float) -> str:
    """``52.3 (25 to 84)``; the value alone where it has no interval."""
    if low < high:
        return f"{value:,.4g} ({low:,.4g} to {high:,.4g})"
    return f"{value:,.4g}"


def _arrows(series: ChartSeries, style: int, limit: float) -> Figure:
    """Arrows at the frame where an interval goes on beyond it."""
    cut = cut_points(series, limit)
    return {
        "type": "scatter",
        "name": _escape(f"{series.name}, intervals beyond the axis"),
        "x": [x for x, _, _ in cut],
        "y": [limit for _ in cut],
        "customdata": [f"{low:,.4g} to {high:,.4g}" for _, low, high in cut],
        "mode": "markers",
        "marker": {"color": COLOURS[style], "size": 10, "symbol": "triangle-up"},
        "cliponaxis": False,
        "showlegend": False,
        "hovertemplate": "interval: %{customdata}<extra></extra>",
    }


def _launches(series: ChartSeries, style: int) -> Figure:
    """A dot for each launch."""
    x, y = series.launch_points
    return {
        "type": "scatter",
        "name": _escape(f"{series.name}, launches"),
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
    names = [_escape(bar) for bar in chart.bars]
    traces: list[Figure] = []
    for part in chart.parts:
        colour = REFERENCE_COLOUR
        if part.style is not None:
            colour = COLOURS[style_index(part.style)]
        trace: Figure = {
            "type": "bar",
            "orientation": orientation,
            "name": _escape(part.name),
            across: part.values,
            along: names,
            "marker": {"color": colour},
            "hovertemplate": f"%{{{across}:,.4~g}}<extra>{_escape(part.name)}</extra>",
        }
        if part.hidden:
            trace |= {"opacity": 0, "showlegend": False, "hoverinfo": "skip"}
            del trace["hovertemplate"]
        elif any(other["name"] == trace["name"] for other in traces):
            trace["showlegend"] = False
        traces.append(trace)
    layout = _base_layout(chart.title, chart.x_label, chart.y_label)
    layout["barmode"] = "relative"
    layout["legend"] = _LEGEND_BESIDE
    if chart.horizontal:
        layout["legend"] = _LEGEND_ABOVE
        layout["yaxis"] = {"type": "category", "autorange": "reversed", "automargin": True}
    else:
        layout["xaxis"] = {"title": _axis_title(chart.x_label), "type": "category"}
    layout["height"] = figure_height(chart)
    return {"data": traces, "layout": layout}


def _timeline(chart: TimelineChart) -> Figure:
    traces: list[Figure] = []
    for number, (kind, stretches) in enumerate(chart.kinds):
        traces.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": _escape(kind),
                "y": [chart.rows[stretch.row] for stretch in stretches],
                "base": [stretch.start for stretch in stretches],
                "x": [stretch.end - stretch.start for stretch in stretches],
                "marker": {
                    "color": TIMELINE_COLOURS[number % len(TIMELINE_COLOURS)],
                    "line": {"width": 0},
                },
                "hovertemplate": f"%{{base:,.4~g}} + %{{x:,.4~g}}<extra>{_escape(kind)}</extra>",
            }
        )
    layout = _base_layout(chart.title, chart.x_label, "")
    layout["barmode"] = "overlay"
    layout["dragmode"] = "zoom"
    layout["yaxis"] = {
        "type": "category",
        "categoryarray": list(reversed(chart.rows)),
        "categoryorder": "array",
        "fixedrange": True,  # a drag zooms into time alone
    }
    layout["legend"] = _LEGEND_ABOVE
    layout["height"] = figure_height(chart)
    return {"data": traces, "layout": layout}


def figure_height(chart: AnyChart) -> int:
    """Pixels, with the title."""
    if isinstance(chart, TimelineChart):
        return _FRAME + _ROW * len(chart.rows)
    if isinstance(chart, StackedChart) and chart.horizontal:
        return _FRAME + _ROW * len(chart.bars)
    if isinstance(chart, Chart) and chart.prominent:
        return _LARGE_HEIGHT
    if isinstance(chart, Chart):
        small = is_small(chart)
    else:
        small = len(chart.bars) <= _FEW_BARS
    if small:
        return _SMALL_HEIGHT
    return _HEIGHT


_HEIGHT, _SMALL_HEIGHT, _LARGE_HEIGHT = 330, 250, 420
"""Pixels of a chart with its title: about 40 % of a window of 800, and as little as axis labels and
a legend allow."""
_FRAME, _ROW = 132, 30
"""Pixels of a chart of rows: title, legend and axis, and each row."""
_FEW_BARS = 4
_LEGEND_ABOVE: Figure = {
    "orientation": "h",
    "x": 0,
    "y": 1,
    "yanchor": "bottom",
    "font": {"size": 11},
}
_CORNER = {"left": 0.01, "right": 0.99, "bottom": 0.01, "top": 0.99}
"""Where a legend inside the plot ends, share of the plot."""
_LEGEND_BESIDE: Figure = {"x": 1.02, "y": 1, "font": {"size": 11}}
"""Place of the legend of bars, which leave no corner free. Above are also the entries of a chart of
names, whose points are scattered."""


def _legend(chart: Chart) -> Figure:
    """Inside the plot, in the corner where it covers least."""
    row, column = legend_corner(chart)
    return {
        "x": _CORNER[column],
        "xanchor": column,
        "y": _CORNER[row],
        "yanchor": row,
        "bgcolor": "rgba(255,255,255,0.7)",
        "font": {"size": 11},
    }


def _axis_title(text: str) -> Figure:
    return {"text": _escape(text), "standoff": 6}


def _base_layout(title: str, x_label: str, y_label: str) -> Figure:
    return {
        "title": {"text": _escape(title), "font": {"size": 14}, "x": 0.02, "xanchor": "left"},
        "xaxis": {"title": _axis_title(x_label)},
        "yaxis": {"title": {"text": _escape(y_label)}},
        "margin": {"l": 64, "r": 16, "t": 44, "b": 48},
        "height": _HEIGHT,
    }


def _layout(chart: Chart) -> Figure:
    layout = _base_layout(chart.title, chart.x_label, chart.y_label)
    places, texts = x_ticks(chart)
    marks: Figure = {"tickvals": places, "ticktext": texts}
    if chart.log_x:
        layout["xaxis"] = {"title": _axis_title(chart.x_label), "type": "log", **marks}
    elif places:
        if chart.x_names:
            marks |= {"tickangle": -30, "automargin": True}
        layout["xaxis"] = {
            "title": _axis_title(chart.x_label),
            "range": chart.x_range,
            **marks,
        }
    if chart.log_y:
        ticks = log_ticks(y for s in chart.series for y in s.y)
        texts = tuple(f"{tick:,.12g}" for tick in ticks)
        layout["yaxis"] = {
            "title": _axis_title(chart.y_label),
            "type": "log",
            "tickvals": ticks,
            "ticktext": texts,
        }
    elif chart.y_from_zero:
        limit = cut_at(chart)
        end: Figure = {"rangemode": "tozero"}
        if limit is not None:
            end = {"range": [0, limit]}
        layout["yaxis"] = {"title": {"text": _escape(chart.y_label)}, **end}
    layout["legend"] = _LEGEND_ABOVE
    if not chart.x_names:
        layout["legend"] = _legend(chart)
    layout["showlegend"] = len(chart.series) > 1
    layout["height"] = figure_height(chart)
    return layout


def _escape(text: str) -> str:
    """plotly reads a small HTML in its texts."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
