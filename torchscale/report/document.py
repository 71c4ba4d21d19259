"""The report as data: its content in order, without layout. Renderers use nothing else."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from torchscale.util.text import strip_control


class Tone(str, Enum):
    """The meaning of a value; renderers must not show it by colour only."""

    PLAIN = "plain"
    GOOD = "good"
    CAUTION = "caution"
    BAD = "bad"
    DIM = "dim"


_FEW_DECADES = 3
"""Up to this many decades, ticks at 1, 2 and 5 do not overlap."""
MAX_TEXT = 600
"""Longer texts are cut: a megabyte in one line would take minutes to lay out."""


MAX_PAPER_ROWS = 300
"""Rows of a table in PDF and Markdown: several pages, which cannot be sorted or filtered."""


MAX_BLOCK = 8_000
"""The same for preformatted text, such as a config: a few pages."""


def shortened(text: str, limit: int = MAX_TEXT) -> str:
    """``text`` for people: cut with an ellipsis where it is longer than ``limit``, and without what controls a terminal
    or the direction of writing."""
    cut = text if len(text) <= limit else text[: limit - 1] + "…"
    return strip_control(cut)


class TableValue(NamedTuple):
    """A table's entry: text for people, ``sort`` for ordering (numbers before text)."""

    text: str
    sort: float | str | None = None
    tone: Tone = Tone.PLAIN


DASH = TableValue("–", None, Tone.DIM)
"""Shown where nothing was measured."""


def optional_value(number: float | None, format_number: Callable[[float], str]) -> TableValue:
    """A formatted number; – where it was not measured."""
    return DASH if number is None else TableValue(format_number(number), number)


@dataclass(frozen=True)
class Column:
    """A table's column; numbers are set to the right, and ``prose`` is broken into lines."""

    title: str
    numeric: bool = False
    prose: bool = False


@dataclass(frozen=True)
class Table:
    """Rows under columns; ``searchable`` ones can be filtered and sorted where the medium allows it."""

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[TableValue, ...], ...]
    searchable: bool = False

    def truncation_note(self, limit: int) -> str:
        """A note where only the first ``limit`` rows are shown; empty where all are."""
        count = len(self.rows)
        return (
            f"Showing the first {limit:,} of {count:,} rows; see summary.csv or the HTML report for all."
            if count > limit
            else ""
        )


@dataclass(frozen=True)
class Paragraph:
    """A few sentences; ``code`` is preformatted. Text ``of_charts`` is omitted in formats without charts."""

    text: str
    code: bool = False
    of_charts: bool = False


@dataclass(frozen=True)
class Bullets:
    """A list of independent statements."""

    items: tuple[str, ...]


@dataclass(frozen=True)
class ChartSeries:
    """A line of a chart.

    Attributes:
        name: For the legend.
        x, y: Points.
        low, high: Ends of the interval at each point; empty where there is none.
        reference: An ideal or a limit rather than a measurement.
        marks: Events: points that are not joined, drawn as crosses.
        legend: Whether the line is in the legend; otherwise the text explains it.
    """

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    reference: bool = False
    marks: bool = False
    legend: bool = True


@dataclass(frozen=True)
class Chart:
    """Lines over a number; both renderers draw the same.

    Attributes:
        name: Unique in the document, of letters, digits and dashes.
        title: What is compared.
        summary: The chart in a sentence, for those who do not see it.
        x_label, y_label: With units.
        x_ticks: Where only some x exist (device counts); empty for a continuous axis.
        markers: Whether points are marked.
        y_from_zero: Whether the y axis starts at 0.
        log_x, log_y: Whether an axis is logarithmic.
        lines: Whether points are joined; lines of reference always are.
    """

    name: str
    title: str
    summary: str
    x_label: str
    y_label: str
    series: tuple[ChartSeries, ...]
    x_ticks: tuple[float, ...] = ()
    markers: bool = True
    y_from_zero: bool = True
    log_x: bool = False
    log_y: bool = False
    lines: bool = True

    @property
    def x_range(self) -> tuple[float, float]:
        """Of a linear axis with ``x_ticks``: from 0, with room for marks at either end."""
        room = 0.08 * max(*self.x_ticks, 1.0)
        return 0.0 if min(self.x_ticks) > 0 else -room, max(self.x_ticks) + room


@dataclass(frozen=True)
class Part:
    """A layer of stacked bars.

    Attributes:
        name: For the legend.
        values: One a bar; negative ones go below the axis.
        style: Number of its colour, equal in all charts; ``None`` for the baseline.
    """

    name: str
    values: tuple[float, ...]
    style: int | None = None


@dataclass(frozen=True)
class StackedChart:
    """Bars that are sums of parts; both renderers draw the same. Attributes as in :class:`Chart`."""

    name: str
    title: str
    summary: str
    x_label: str
    y_label: str
    bars: tuple[str, ...]
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Stretch:
    """A time span of a row; ``start`` and ``end`` in the unit of the x axis."""

    row: int
    start: float
    end: float


@dataclass(frozen=True)
class TimelineChart:
    """The activity of each row over time. ``kinds`` are the legend's entries with their stretches."""

    name: str
    title: str
    summary: str
    x_label: str
    rows: tuple[str, ...]
    kinds: tuple[tuple[str, tuple[Stretch, ...]], ...]


def log_ticks(values: Iterable[float]) -> tuple[float, ...]:
    """Tick positions of a logarithmic axis over these values: 1, 2 and 5 of each decade, or only decades where
    there are many."""
    positive = [value for value in values if value > 0]
    if not positive:
        return ()
    low, high = math.floor(math.log10(min(positive))), math.ceil(math.log10(max(positive)))
    steps = (1, 2, 5) if high - low <= _FEW_DECADES else (1,)
    ticks = [step * 10.0**power for power in range(low, high + 1) for step in steps]
    return tuple(tick for tick in ticks if min(positive) / 2 <= tick <= max(positive) * 2)


AnyChart = Chart | StackedChart | TimelineChart


@dataclass(frozen=True)
class ChartGrid:
    """Charts side by side; ``wide`` ones take the page's width."""

    charts: tuple[AnyChart, ...]
    wide: bool = False


Block = Paragraph | Bullets | Table | ChartGrid


@dataclass(frozen=True)
class Section:
    """A titled part; ``anchor`` is unique."""

    title: str
    anchor: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class KeyFigure:
    """A number shown at the top of the report."""

    label: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class Document:
    """A whole report: title, summary, key figures and sections."""

    title: str
    subtitle: str
    verdict: tuple[str, ...]
    key_figures: tuple[KeyFigure, ...]
    sections: tuple[Section, ...]

    @property
    def charts(self) -> tuple[AnyChart, ...]:
        """Every chart, in order."""
        grids = [block for section in self.sections for block in section.blocks if isinstance(block, ChartGrid)]
        return tuple(chart for grid in grids for chart in grid.charts)
