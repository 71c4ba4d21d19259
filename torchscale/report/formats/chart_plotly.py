"""Charts for the HTML report: plotly's JSON. Colours of text and grid are the page's, set when it is drawn."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

from torchscale.report.document import AnyChart, Chart, ChartSeries, StackedChart, TimelineChart, log_ticks
from torchscale.report.formats.palette import COLOURS, PLOTLY_MARKERS, REFERENCE_COLOUR, TIMELINE_COLOURS, style_index

Figure = dict[str, object]


def chart_json(chart: AnyChart) -> str:
    """``{"data": …, "layout": …}`` for ``Plotly.newPlot``; safe inside a script element."""
    return script_json(chart_figure(chart))


def chart_figure(chart: AnyChart) -> Figure:
    """The same as a dictionary, as ``plotly.graph_objects.Figure`` takes it."""
    if isinstance(chart, StackedChart):
        return _stacked(chart)
    if isinstance(chart, TimelineChart):
        return _timeline(chart)
    return {"data": _traces(chart), "layout": _layout(chart)}


def script_json(content: object) -> str:
    """JSON that is safe inside a script element: "<" could end it, U+2028 and U+2029 a JavaScript line."""
    try:
        text = json.dumps(content, separators=(",", ":"), allow_nan=False)
    except ValueError:  # a sum of huge values overflowed
        text = json.dumps(_finite(content), separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _finite(content: object) -> object:
    """With ``None`` for what JSON has no number for."""
    if isinstance(content, float):
        return content if math.isfinite(content) else None
    if isinstance(content, dict):
        return {key: _finite(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_finite(value) for value in content]
    return content


def _traces(chart: Chart) -> list[Figure]:
    traces = []
    measured = 0
    for series in chart.series:
        traces.append(_trace(series, chart, style_index(max(0, measured - series.reference))))
        measured += not series.reference
    return traces


def _trace(series: ChartSeries, chart: Chart, style: int) -> Figure:
    trace: Figure = {
        "type": "scatter",
        "name": series.name,
        "x": series.x,
        "y": series.y,
        "hovertemplate": f"%{{y:,.4~g}} at %{{x:,.4~g}}<extra>{_escape(series.name)}</extra>",
        "mode": _mode(series, chart),
        "line": {"color": COLOURS[style], "width": 2},
        "marker": {"symbol": PLOTLY_MARKERS[style], "size": 8},
    }
    if series.reference:
        trace["line"] = {"color": REFERENCE_COLOUR, "width": 1.5, "dash": "dash"}
        trace["showlegend"] = series.legend
    if series.marks:
        trace["marker"] = {"symbol": "x-thin", "size": 11, "line": {"width": 2.5, "color": COLOURS[style]}}
    if series.high:
        trace["error_y"] = {
            "type": "data",
            "symmetric": False,
            "array": [high - y for high, y in zip(series.high, series.y, strict=True)],
            "arrayminus": [y - low for low, y in zip(series.low, series.y, strict=True)],
        }
    return trace


def _mode(series: ChartSeries, chart: Chart) -> str:
    if series.marks:
        return "markers"
    if series.reference or not chart.markers:
        return "lines"
    return "lines+markers" if chart.lines else "markers"


def _stacked(chart: StackedChart) -> Figure:
    traces: list[Figure] = []
    for part in chart.parts:
        colour = REFERENCE_COLOUR if part.style is None else COLOURS[style_index(part.style)]
        traces.append(
            {
                "type": "bar",
                "name": _escape(part.name),
                "x": chart.bars,
                "y": part.values,
                "marker": {"color": colour},
                "hovertemplate": f"%{{y:,.4~g}}<extra>{_escape(part.name)}</extra>",
            }
        )
    layout = _base_layout(chart.title, chart.x_label, chart.y_label)
    layout["barmode"] = "relative"
    layout["xaxis"] = {"title": _axis_title(chart.x_label), "type": "category"}
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
                "marker": {"color": TIMELINE_COLOURS[number % len(TIMELINE_COLOURS)], "line": {"width": 0}},
                "hovertemplate": f"%{{base:,.4~g}} + %{{x:,.4~g}}<extra>{_escape(kind)}</extra>",
            }
        )
    layout = _base_layout(chart.title, chart.x_label, "")
    layout["barmode"] = "overlay"
    layout["yaxis"] = {"type": "category", "categoryarray": list(reversed(chart.rows)), "categoryorder": "array"}
    bars = 10 + 34 * len(chart.rows)
    layout["height"] = 140 + bars
    layout["legend"] = {**_LEGEND, "y": -62 / bars}  # as many pixels below the bars as in the other charts
    return {"data": traces, "layout": layout}


_LEGEND: Figure = {"orientation": "h", "y": -0.28, "x": 0}


def _axis_title(text: str) -> Figure:
    """Near its axis: a legend of many lines must not reach it."""
    return {"text": _escape(text), "standoff": 6}


def _base_layout(title: str, x_label: str, y_label: str) -> Figure:
    return {
        "title": {"text": _escape(title), "font": {"size": 14}, "x": 0.02, "xanchor": "left"},
        "xaxis": {"title": _axis_title(x_label)},
        "yaxis": {"title": {"text": _escape(y_label)}},
        "margin": {"l": 64, "r": 16, "t": 44, "b": 96},
        "legend": _LEGEND,
        "height": 360,
    }


def _layout(chart: Chart) -> Figure:
    layout = _base_layout(chart.title, chart.x_label, chart.y_label)
    if chart.log_x:
        layout["xaxis"] = _log_axis(chart.x_label, chart.x_ticks or log_ticks(x for s in chart.series for x in s.x))
    elif chart.x_ticks:
        ticks = {"tickvals": chart.x_ticks, "range": chart.x_range}
        layout["xaxis"] = {"title": _axis_title(chart.x_label), **ticks}
    if chart.log_y:
        layout["yaxis"] = _log_axis(chart.y_label, log_ticks(y for s in chart.series for y in s.y))
    elif chart.y_from_zero:
        layout["yaxis"] = {"title": {"text": _escape(chart.y_label)}, "rangemode": "tozero"}
    return layout


def _log_axis(label: str, ticks: Sequence[float]) -> Figure:
    marks: Figure = {"tickvals": ticks, "ticktext": [f"{tick:,.12g}" for tick in ticks]}
    return {"title": _axis_title(label), "type": "log", **marks}


def _escape(text: str) -> str:
    """plotly reads a small HTML in its texts."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
