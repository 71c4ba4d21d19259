"""Charts as vector graphics, for pages and paper: text stays text, and equal input gives equal
bytes."""

from __future__ import annotations

import io
import re
import warnings
from dataclasses import dataclass
from xml.sax.saxutils import escape

from torchscale.report.charts import AnyChart, StackedChart, TimelineChart
from torchscale.report.formats.charts.matplotlib_axes import INCHES, draw_axes

_POINTS_PER_INCH = 72
"""The unit of matplotlib's SVG."""
_HEIGHT_INCHES, _SMALL_HEIGHT_INCHES = 2.1, 1.45
_FEW_BARS = 4
_FEW_LINES = 5
"""Lines that are told apart in a third of a page's width."""
_SETTINGS = {
    "svg.fonttype": "none",
    "svg.hashsalt": "torchscale",
    "font.family": "DejaVu Sans",
    "font.size": 7,
    "text.parse_math": False,  # a "$" in a name is a "$"
    "axes.spines.top": False,
    "axes.spines.right": False,
    "savefig.facecolor": "none",
    "axes.facecolor": "none",
}


@dataclass(frozen=True)
class Plot:
    """Where the data are in a drawing.

    Attributes:
        width, height: Size of the drawing, points.
        left, top, right, bottom: Edges of the axes in it.
        x, y: Limits of the axes, from left to right and from bottom to top.
    """

    width: float
    height: float
    left: float
    top: float
    right: float
    bottom: float
    x: tuple[float, float]
    y: tuple[float, float]


def chart_svg(chart: AnyChart, prefix: str) -> str:
    """An ``<svg>`` element for paper with its summary as title; ``prefix`` keeps its ids apart from
    those of other charts on the page."""
    svg, _ = draw_chart(chart, _size(chart), prefix)
    end = svg.index(">") + 1
    return f"{svg[:end]}<title>{escape(chart.summary)}</title>{svg[end:]}"


def draw_chart(chart: AnyChart, inches: tuple[float, float], prefix: str) -> tuple[str, Plot]:
    """An ``<svg>`` element of this width and height, and where the data are in it."""
    import matplotlib  # noqa: PLC0415 - 0.4 s, and only charts need it
    from matplotlib.backends.backend_svg import FigureCanvasSVG  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415
    from matplotlib.layout_engine import ConstrainedLayoutEngine  # noqa: PLC0415

    with matplotlib.rc_context(_SETTINGS), warnings.catch_warnings():
        # Text stays text: what this font lacks, the PDF's or the browser's fonts have.
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        figure = Figure(figsize=inches, dpi=_POINTS_PER_INCH)
        FigureCanvasSVG(figure)  # whose sizes of texts count
        axes = figure.add_subplot()
        draw_axes(axes, chart)
        # A figure that has a layout engine is drawn twice: once more to lay it out.
        ConstrainedLayoutEngine().execute(figure)
        output = io.StringIO()
        figure.savefig(output, format="svg", metadata={"Date": None, "Creator": None})
    width, height = (length * _POINTS_PER_INCH for length in inches)
    box = axes.bbox
    plot = Plot(
        width=width,
        height=height,
        left=float(box.x0),
        top=height - float(box.y1),
        right=float(box.x1),
        bottom=height - float(box.y0),
        x=axes.get_xlim(),
        y=axes.get_ylim(),
    )
    return _with_own_ids(output.getvalue(), prefix), plot


def chart_width(chart: AnyChart) -> str:
    """``small``, ``normal`` or ``wide``: a third, a half or all of a page's width."""
    if isinstance(chart, TimelineChart):
        return "wide"
    if isinstance(chart, StackedChart):
        if chart.horizontal:
            return "wide"
        return "normal"  # beside its legend a third of a page has no room for bars
    if chart.prominent or chart.log_y or len(chart.series) > _FEW_LINES:
        return "normal"
    return "small"


def _size(chart: AnyChart) -> tuple[float, float]:
    width = chart_width(chart)
    if isinstance(chart, TimelineChart):
        return INCHES[width], 0.75 + 0.17 * len(chart.rows)
    if isinstance(chart, StackedChart) and chart.horizontal:
        return INCHES[width], 0.85 + 0.15 * len(chart.bars)
    few_bars = isinstance(chart, StackedChart) and len(chart.bars) <= _FEW_BARS
    if few_bars or width == "small":
        return INCHES[width], _SMALL_HEIGHT_INCHES
    return INCHES[width], _HEIGHT_INCHES


def _with_own_ids(svg: str, prefix: str) -> str:
    """The SVG without the XML prologue, and with ids that no other chart on the page has."""
    element = svg[svg.index("<svg") :]
    element = re.sub(r'\bid="([^"]+)"', rf'id="{prefix}-\1"', element)
    element = re.sub(r'(xlink:href|href)="#([^"]+)"', rf'\1="#{prefix}-\2"', element)
    return re.sub(r"url\(#([^)]+)\)", rf"url(#{prefix}-\1)", element)
