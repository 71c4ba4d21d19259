"""Charts in the page: the drawing that goes on paper, in sizes and colours of the screen, with the
values to point at.

Text, lines and background take the page's colours, so that they follow it into the dark. Without
JavaScript charts are there all the same; with it, the value next to the pointer or finger is shown.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from torchscale.report.charts import AnyChart, Chart, StackedChart, TimelineChart
from torchscale.report.formats.charts.axes import is_small
from torchscale.report.formats.charts.chart_svg import Plot, draw_chart
from torchscale.report.formats.charts.matplotlib_axes import BAR
from torchscale.util.units import format_bytes

INCHES = {"small": (3.4, 2.0), "normal": (3.6, 2.4), "large": (3.8, 2.75), "wide": (9.5, 3.0)}
"""Width and height. A type of 7 points is 10 to 14 pixels high where the page is 1,280 wide, and 8
to 10 on a phone; there, wide charts are scrolled."""
_ROWS_FRAME, _ROW = 0.85, 0.22
"""Inches of a chart of rows: legend and axis, and each row."""
_COLOURS = {"#000000": "var(--soft)", "#dddddd": "var(--line)", "#ffffff": "var(--paper)"}
"""Colours of matplotlib's axes, grid and legend → of the page."""
_DIGITS = 5
"""Significant digits of a value that is shown with four."""
_KEPT = 128
"""Drawings for a live page, which is rendered again after each launch: most of its charts are as
they were."""

Values = dict[str, object]


@dataclass(frozen=True)
class ScreenChart:
    """A chart of the page: an ``<svg>`` element, and its values as JSON that is safe inside a
    script element."""

    svg: str
    values: str


@lru_cache(maxsize=_KEPT)
def screen_chart(chart: AnyChart, prefix: str, width: str) -> ScreenChart:
    """Draw a chart for the page. Its title, which the page has above the drawing, is left out;
    ``prefix`` keeps ids apart; ``width`` as of :func:`screen_width`, or ``large`` on the first
    screen."""
    svg, plot = draw_chart(replace(chart, title=""), _inches(chart, width), prefix)
    values = {**_frame(chart, plot), "points": _points(chart), "boxes": _boxes(chart)}
    return ScreenChart(_for_page(svg), script_json(values))


def screen_width(chart: AnyChart) -> str:
    """``small``, ``normal``, ``large`` or ``wide``: how much of the page it takes."""
    if isinstance(chart, Chart):
        if chart.prominent:
            return "large"
        if is_small(chart):
            return "small"
        return "normal"
    if isinstance(chart, TimelineChart) or chart.horizontal:
        return "wide"
    return "normal"


def script_json(content: object) -> str:
    """JSON that is safe inside a script element: "<" could end it."""
    try:
        text = json.dumps(content, separators=(",", ":"), allow_nan=False)
    except ValueError:  # a sum of huge values overflowed
        text = json.dumps(_finite(content), separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _finite(content: object) -> object:
    """A copy of the content, with ``None`` for numbers that JSON does not have."""
    if isinstance(content, float):
        if math.isfinite(content):
            return content
        return None
    if isinstance(content, dict):
        return {key: _finite(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_finite(value) for value in content]
    return content


def _inches(chart: AnyChart, width: str) -> tuple[float, float]:
    across, down = INCHES[width]
    if isinstance(chart, TimelineChart):
        down = _ROWS_FRAME + _ROW * len(chart.rows)
    elif isinstance(chart, StackedChart) and chart.horizontal:
        down = _ROWS_FRAME + _ROW * len(chart.bars)
    return across, down


def _for_page(svg: str) -> str:
    """The drawing in the page's colours and fonts, without what only an SVG file of its own needs:
    a third of its size."""
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<[^>]+>", lambda tag: _shorter_tag(tag.group()), svg)
    return re.sub(r"\s*\n\s*", " ", svg).replace("> <", "><")


def _shorter_tag(tag: str) -> str:
    """Texts, which stand between tags, stay as they are: ``0.0015`` of an axis too."""
    tag = re.sub(r' (?:width|height)="[\d.]+pt"| version="1.1"| xmlns(?::xlink)?="[^"]*"', "", tag)
    tag = re.sub(r"font-family: [^;\"]*(?:; )?| transform=\"rotate\(-0 [^)]*\)\"", "", tag)
    tag = re.sub(r'<g id="[^"]*"', "<g", tag)
    tag = re.sub(r"\s*\n\s*", " ", re.sub(r"(\.\d\d)\d+", r"\1", tag))
    tag = _RECTANGLE.sub(_shorter, tag)
    for drawn, page in _COLOURS.items():
        tag = tag.replace(drawn, page)
    return tag


_NUMBER = r"(-?[\d.]+)"
_RECTANGLE = re.compile(
    rf"M {_NUMBER} {_NUMBER} L {_NUMBER} \2 L \3 {_NUMBER} L \1 \4 (?:L \1 \2 )?z"
)
"""Rectangles as bars are drawn."""


def _shorter(found: re.Match[str]) -> str:
    left, low, right, high = (float(number) for number in found.groups())
    return f"M{left:g} {low:g}h{right - left:.4g}v{high - low:.4g}H{left:g}z"


def _frame(chart: AnyChart, plot: Plot) -> Values:
    """The place of the axes in the drawing as shares of it, and their limits."""
    log = [isinstance(chart, Chart) and chart.log_x, isinstance(chart, Chart) and chart.log_y]
    left, right = plot.left / plot.width, plot.right / plot.width
    bottom, top = plot.bottom / plot.height, plot.top / plot.height
    return {
        "frame": _rounded([left, right, bottom, top]),
        "x": _rounded(plot.x),
        "y": _rounded(plot.y),
        "log": log,
    }


def _points(chart: AnyChart) -> list[Values]:
    """Each line with its points, and the end of their intervals where there are any."""
    if not isinstance(chart, Chart):
        return []
    found = []
    for series in chart.series:
        found.append(_line(series.name, series.x, series.y, chart))
        if series.high:
            found[-1] |= {"low": _rounded(series.low), "high": _rounded(series.high)}
        if series.launches:
            found.append(_line(f"{series.name}, one launch", *series.launch_points, chart))
    return found


def _line(name: str, x: Sequence[float], y: Sequence[float], chart: Chart) -> Values:
    line: Values = {"name": name, "x": _rounded(x), "y": _rounded(y)}
    if chart.byte_sizes:
        line["at"] = [format_bytes(place) for place in x]
    elif chart.x_names:
        names = dict(zip(chart.x_ticks, chart.x_names, strict=True))
        line["at"] = [names.get(place, "") for place in x]
    return line


def _boxes(chart: AnyChart) -> list[Values]:
    """Each layer or kind with the rectangles of its bars: left, right, low and high ends, and a
    text."""
    if isinstance(chart, StackedChart):
        return _stacked_boxes(chart)
    if isinstance(chart, TimelineChart):
        return [
            {
                "name": kind,
                "left": _rounded(stretch.start for stretch in stretches),
                "right": _rounded(stretch.end for stretch in stretches),
                "low": [stretch.row - BAR / 2 for stretch in stretches],
                "high": [stretch.row + BAR / 2 for stretch in stretches],
            }
            for kind, stretches in chart.kinds
        ]
    return []


def _stacked_boxes(chart: StackedChart) -> list[Values]:
    above, below = [0.0] * len(chart.bars), [0.0] * len(chart.bars)
    found: list[Values] = []
    for part in chart.parts:
        starts, ends = [], []
        for place, value in enumerate(part.values):
            side = below
            if value >= 0:
                side = above
            starts.append(side[place])
            side[place] += value
            ends.append(side[place])
        if part.hidden:
            continue
        across = (
            [place - 0.5 for place in range(len(chart.bars))],
            [place + 0.5 for place in range(len(chart.bars))],
        )
        along = _rounded(starts), _rounded(ends)
        (left, right), (low, high) = (across, along)
        if chart.horizontal:
            (left, right), (low, high) = (along, across)
        texts = [f"{value:,.4g}, {bar}" for value, bar in zip(part.values, chart.bars, strict=True)]
        found.append(
            {
                "name": part.name,
                "left": left,
                "right": right,
                "low": low,
                "high": high,
                "texts": texts,
            }
        )
    return found


def _rounded(values: Iterable[float]) -> list[float]:
    return [float(f"{value:.{_DIGITS}g}") for value in values]
