"""Charts for the HTML report: plotly's JSON. Colours of text and grid are the page's, set when it is drawn."""

from __future__ import annotations

import json

from torchscale.report.document import Chart, Series
from torchscale.report.palette import COLOURS, PLOTLY_MARKERS, REFERENCE_COLOUR, style_index

Figure = dict[str, object]


def chart_json(chart: Chart) -> str:
    """``{"data": …, "layout": …}`` for ``Plotly.newPlot``; safe inside a script element."""
    figure: Figure = {"data": _traces(chart), "layout": _layout(chart)}
    # "<" could end the script element, U+2028 and U+2029 a JavaScript line.
    text = json.dumps(figure, ensure_ascii=True)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _traces(chart: Chart) -> list[Figure]:
    traces = []
    measured = 0
    for series in chart.series:
        traces.append(_trace(series, chart, style_index(max(0, measured - series.reference))))
        measured += not series.reference
    return traces


def _trace(series: Series, chart: Chart, style: int) -> Figure:
    trace: Figure = {
        "type": "scatter",
        "name": series.name,
        "x": series.x,
        "y": series.y,
        "hovertemplate": f"%{{y:,.4~g}} at %{{x:,.4~g}}<extra>{_escape(series.name)}</extra>",
        "mode": "lines+markers" if chart.markers and not series.reference else "lines",
        "line": {"color": COLOURS[style], "width": 2},
        "marker": {"symbol": PLOTLY_MARKERS[style], "size": 8},
    }
    if series.reference:
        trace["line"] = {"color": REFERENCE_COLOUR, "width": 1.5, "dash": "dash"}
        trace["showlegend"] = series.name == "ideal"
    if series.high:
        trace["error_y"] = {
            "type": "data",
            "symmetric": False,
            "array": [high - y for high, y in zip(series.high, series.y, strict=True)],
            "arrayminus": [y - low for low, y in zip(series.low, series.y, strict=True)],
        }
    return trace


def _layout(chart: Chart) -> Figure:
    x_axis: Figure = {"title": {"text": _escape(chart.x_label)}}
    if chart.x_ticks:
        x_axis |= {"tickvals": chart.x_ticks, "range": [0, max(chart.x_ticks) * 1.08]}
    y_axis: Figure = {"title": {"text": _escape(chart.y_label)}}
    if chart.y_from_zero:
        y_axis["rangemode"] = "tozero"
    return {
        "title": {"text": _escape(chart.title), "font": {"size": 14}, "x": 0.02, "xanchor": "left"},
        "xaxis": x_axis,
        "yaxis": y_axis,
        "margin": {"l": 64, "r": 16, "t": 44, "b": 96},
        "legend": {"orientation": "h", "y": -0.28, "x": 0},
        "height": 360,
    }


def _escape(text: str) -> str:
    """plotly reads a small HTML in its texts."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
