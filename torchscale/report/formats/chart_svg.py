"""The same charts as vector graphics for the PDF: text stays text, and equal input gives equal bytes."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Sequence
from typing import Any

from torchscale.report.document import AnyChart, Chart, ChartSeries, StackedChart, TimelineChart, log_ticks
from torchscale.report.formats.palette import (
    COLOURS,
    MATPLOTLIB_MARKERS,
    REFERENCE_COLOUR,
    TIMELINE_COLOURS,
    style_index,
)

_WIDTH_INCHES, _HEIGHT_INCHES = 4.2, 3.0
_SETTINGS = {
    "svg.fonttype": "none",
    "svg.hashsalt": "torchscale",
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "text.parse_math": False,  # a "$" in a name is a "$"
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def chart_svg(chart: AnyChart, prefix: str) -> str:
    """An ``<svg>`` element; ``prefix`` keeps its ids apart from those of other charts on the page."""
    import matplotlib  # noqa: PLC0415 - 0.4 s, and only the PDF needs it
    from matplotlib.figure import Figure  # noqa: PLC0415

    with matplotlib.rc_context(_SETTINGS), warnings.catch_warnings():
        # Text stays text: what this font lacks, the PDF's or the browser's fonts have.
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        figure = Figure(figsize=_size(chart), layout="constrained")
        _draw_any(figure.add_subplot(), chart)
        output = io.StringIO()
        figure.savefig(output, format="svg", metadata={"Date": None, "Creator": None})
    return _with_own_ids(output.getvalue(), prefix)


def _size(chart: AnyChart) -> tuple[float, float]:
    if isinstance(chart, TimelineChart):
        return 2 * _WIDTH_INCHES, 1.55 + 0.28 * len(chart.rows)
    return _WIDTH_INCHES, _HEIGHT_INCHES


def _draw_any(axes: Any, chart: AnyChart) -> None:  # noqa: ANN401 - see _draw
    if isinstance(chart, StackedChart):
        _draw_stacked(axes, chart)
    elif isinstance(chart, TimelineChart):
        _draw_timeline(axes, chart)
    else:
        _draw(axes, chart)


def _draw_stacked(axes: Any, chart: StackedChart) -> None:  # noqa: ANN401 - see _draw
    above, below = [0.0] * len(chart.bars), [0.0] * len(chart.bars)
    places = range(len(chart.bars))
    for part in chart.parts:
        colour = REFERENCE_COLOUR if part.style is None else COLOURS[style_index(part.style)]
        bottoms = [above[place] if part.values[place] >= 0 else below[place] for place in places]
        axes.bar(places, part.values, 0.6, bottom=bottoms, color=colour, label=part.name)
        for place in places:
            side = above if part.values[place] >= 0 else below
            side[place] += part.values[place]
    axes.set_xticks(list(places), chart.bars)
    _label(axes, chart.title, chart.x_label, chart.y_label)
    axes.legend(frameon=False, fontsize=6, ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.18))


def _draw_timeline(axes: Any, chart: TimelineChart) -> None:  # noqa: ANN401 - see _draw
    for number, (kind, stretches) in enumerate(chart.kinds):
        colour = TIMELINE_COLOURS[number % len(TIMELINE_COLOURS)]
        axes.barh(
            [stretch.row for stretch in stretches],
            [stretch.end - stretch.start for stretch in stretches],
            0.7,
            left=[stretch.start for stretch in stretches],
            color=colour,
            label=kind,
        )
    axes.set_yticks(list(range(len(chart.rows))), chart.rows)
    axes.invert_yaxis()
    _label(axes, chart.title, chart.x_label, "")
    axes.legend(frameon=False, fontsize=7, ncols=4, loc="upper center", bbox_to_anchor=(0.5, -0.38))


def _label(axes: Any, title: str, x_label: str, y_label: str) -> None:  # noqa: ANN401 - see _draw
    axes.set_title(title, fontsize=8.5, loc="left")
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.grid(visible=True, color="#dddddd", linewidth=0.5)
    axes.set_axisbelow(True)


def _draw(axes: Any, chart: Chart) -> None:  # noqa: ANN401 - matplotlib is not typed here
    measured = 0
    for series in chart.series:
        _draw_series(axes, series, chart, style_index(max(0, measured - series.reference)))
        measured += not series.reference
    _label(axes, chart.title, chart.x_label, chart.y_label)
    if chart.log_x:
        ticks = chart.x_ticks or log_ticks(x for series in chart.series for x in series.x)
        _make_log(axes.set_xscale, axes.set_xticks, ticks)
    elif chart.x_ticks:
        axes.set_xlim(*chart.x_range)
        axes.set_xticks(chart.x_ticks, [f"{tick:g}" for tick in chart.x_ticks])
    if chart.log_y:
        _make_log(axes.set_yscale, axes.set_yticks, log_ticks(y for series in chart.series for y in series.y))
    elif chart.y_from_zero:
        axes.set_ylim(bottom=0)
    if not chart.log_y:
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.6g}")
    if any(not series.reference for series in chart.series):
        axes.legend(frameon=False, fontsize=7)


def _make_log(set_scale: Any, set_ticks: Any, ticks: Sequence[float]) -> None:  # noqa: ANN401 - see _draw
    set_scale("log")
    set_ticks([], minor=True)
    set_ticks(ticks, [f"{tick:,.12g}" for tick in ticks])


def _draw_series(axes: Any, series: ChartSeries, chart: Chart, style: int) -> None:  # noqa: ANN401 - see _draw
    if series.reference:
        label = series.name if series.legend else "_"
        axes.plot(series.x, series.y, color=REFERENCE_COLOUR, linestyle="--", linewidth=1, label=label)
        return
    if series.high:
        errors = [
            [y - low for low, y in zip(series.low, series.y, strict=True)],
            [high - y for high, y in zip(series.high, series.y, strict=True)],
        ]
        axes.errorbar(series.x, series.y, yerr=errors, fmt="none", color=COLOURS[style], capsize=2, linewidth=0.8)
    axes.plot(
        series.x,
        series.y,
        color=COLOURS[style],
        marker="x" if series.marks else MATPLOTLIB_MARKERS[style] if chart.markers else None,
        markersize=5 if series.marks else 4,
        linewidth=1.4 if chart.lines and not series.marks else 0,
        label=series.name,
    )


def _with_own_ids(svg: str, prefix: str) -> str:
    """Without the XML prologue, and with ids that no other chart on the page has."""
    element = svg[svg.index("<svg") :]
    element = re.sub(r'\bid="([^"]+)"', rf'id="{prefix}-\1"', element)
    element = re.sub(r'(xlink:href|href)="#([^"]+)"', rf'\1="#{prefix}-\2"', element)
    return re.sub(r"url\(#([^)]+)\)", rf"url(#{prefix}-\1)", element)
