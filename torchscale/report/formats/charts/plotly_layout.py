"""The layout of plotly's figures: their height, axes and legend."""

from __future__ import annotations

from collections.abc import Sequence

from torchscale.report.charts import AnyChart, Chart, StackedChart, TimelineChart, log_ticks
from torchscale.report.formats.charts.axes import is_small, legend_corner, x_ticks, y_frame
from torchscale.report.values import shortened_in_middle

_NAME = 40
"""Characters of a name in a legend or beside the axes: with more no room is left for the data."""
Figure = dict[str, object]
"""A trace, a layout or a whole figure, as plotly takes it."""

_HEIGHT, _SMALL_HEIGHT, _LARGE_HEIGHT = 330, 250, 420
"""Pixels of a chart with its title: about 40 % of a window of 800, and as little as axis labels and
a legend allow."""
_FRAME, _ROW = 132, 30
"""Pixels of a chart of rows: title, legend and axis, and each row."""
_FEW_BARS = 4
LEGEND_ABOVE: Figure = {
    "orientation": "h",
    "x": 0,
    "y": 1,
    "yanchor": "bottom",
    "font": {"size": 11},
}
_CORNER = {"left": 0.01, "right": 0.99, "bottom": 0.01, "top": 0.99}
"""Where a legend inside the plot ends, share of the plot."""
LEGEND_BESIDE: Figure = {"x": 1.02, "y": 1, "font": {"size": 11}}
"""Place of the legend of bars, which leave no corner free. Above are also the entries of a chart of
names, whose points are scattered."""


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


def axis_title(text: str) -> Figure:
    """A title of the x axis."""
    return {"text": escaped(text), "standoff": 6}


def base_layout(title: str, x_label: str, y_label: str) -> Figure:
    """What charts of all kinds have."""
    return {
        "title": {"text": escaped(title), "font": {"size": 14}, "x": 0.02, "xanchor": "left"},
        "xaxis": {"title": axis_title(x_label)},
        "yaxis": {"title": {"text": escaped(y_label)}},
        "margin": {"l": 64, "r": 16, "t": 44, "b": 48},
        "height": _HEIGHT,
    }


def chart_layout(chart: Chart) -> Figure:
    """Of lines and points."""
    layout = base_layout(chart.title, chart.x_label, chart.y_label)
    places, texts = x_ticks(chart)
    marks: Figure = {"tickvals": places, "ticktext": texts}
    if chart.log_x:
        layout["xaxis"] = {"title": axis_title(chart.x_label), "type": "log", **marks}
    elif places:
        if chart.x_names:
            marks |= {"tickangle": -30, "automargin": True}
        layout["xaxis"] = {
            "title": axis_title(chart.x_label),
            "range": chart.x_range,
            **marks,
        }
    frame = y_frame(chart)
    if chart.log_y:
        ticks = log_ticks(y for s in chart.series for y in s.y)
        texts = tuple(f"{tick:,.12g}" for tick in ticks)
        layout["yaxis"] = {
            "title": axis_title(chart.y_label),
            "type": "log",
            "tickvals": ticks,
            "ticktext": texts,
        }
    elif frame is not None:
        layout["yaxis"] = {"title": {"text": escaped(chart.y_label)}, "range": list(frame)}
    elif chart.y_from_zero:
        layout["yaxis"] = {"title": {"text": escaped(chart.y_label)}, "rangemode": "tozero"}
    layout["legend"] = LEGEND_ABOVE
    if not chart.x_names:
        layout["legend"] = _legend(chart)
    layout["showlegend"] = len(chart.series) > 1
    layout["height"] = figure_height(chart)
    return layout


def legend_name(name: str) -> str:
    """A name as there is room for it in a legend; what is pointed at has it whole."""
    return escaped(shortened_in_middle(name, _NAME))


def rows_axis(names: Sequence[str], **more: object) -> Figure:
    """A y axis of rows, with names as there is room for them."""
    whole = [escaped(name) for name in names]
    texts = [legend_name(name) for name in names]
    return {"type": "category", "tickvals": whole, "ticktext": texts, "automargin": True, **more}


def escaped(text: str) -> str:
    """plotly reads a small HTML in its texts."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
