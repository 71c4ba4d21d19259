"""Charts of a document: what is drawn, not how."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

_FEW_DECADES = 3
"""Up to this many decades, ticks at 1, 2 and 5 do not overlap."""
_NAME_CHARACTERS = 80


@dataclass(frozen=True)
class ChartSeries:
    """A line of a chart.

    Attributes:
        name: Name for the legend.
        x, y: Points.
        low, high: Ends of the interval at each point, which need not hold it; empty where there is
            none.
        launches: What each launch measured at each point, drawn as small dots; empty where a point
            is of one launch.
        reference: An ideal or a limit rather than a measurement.
        follows: A reference for the series before it, in whose colour it is drawn.
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
    follows: bool = False
    launches: tuple[tuple[float, ...], ...] = ()

    @property
    def launch_points(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """x and y of every launch."""
        points = [(x, y) for x, values in zip(self.x, self.launches, strict=False) for y in values]
        return tuple(x for x, _ in points), tuple(y for _, y in points)


@dataclass(frozen=True)
class Chart:
    """Lines over a number; both renderers draw the same.

    Attributes:
        name: Unique in the document, of letters, digits and dashes.
        title: What is compared.
        summary: The chart in a sentence, for those who do not see it.
        x_label, y_label: Labels of the axes, with units.
        x_ticks: Where only some x exist (device counts); empty for a continuous axis.
        x_names: What stands at each of ``x_ticks`` instead of the number.
        markers: Whether points are marked.
        y_from_zero: Whether the y axis starts at 0.
        y_range: Ends of the y axis where intervals go on beyond it: there they are cut, with an
            arrow. By default the renderer chooses.
        log_x, log_y: Whether an axis is logarithmic.
        lines: Whether points are joined; lines of reference always are.
        byte_sizes: Whether x are bytes, to be written as KiB and MiB.
        prominent: Whether it stands alone on the first screen and is drawn large whatever it holds.
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
    byte_sizes: bool = False
    prominent: bool = False
    x_names: tuple[str, ...] = ()
    y_range: tuple[float, float] | None = None

    @property
    def x_range(self) -> tuple[float, float]:
        """Range of a linear axis with ``x_ticks``: from the smallest to the largest, with room for
        marks at either end."""
        low, high = min(self.x_ticks), max(self.x_ticks)
        room = 0.5 if self.x_names else 0.08 * (high - low) or 0.5
        return low - room, high + room


@dataclass(frozen=True)
class BarLayer:
    """A layer of stacked bars.

    Attributes:
        name: Name for the legend, which has each name once.
        values: One a bar; negative ones go below the axis.
        style: Number of its colour, equal in all charts; ``None`` for the baseline.
        hidden: Whether it is not drawn: it lifts what is stacked on it.
    """

    name: str
    values: tuple[float, ...]
    style: int | None = None
    hidden: bool = False


@dataclass(frozen=True)
class StackedChart:
    """Bars that are sums of parts; both renderers draw the same. Attributes as in :class:`Chart`;
    ``horizontal`` bars have room for long names, which stand to their left."""

    name: str
    title: str
    summary: str
    x_label: str
    y_label: str
    bars: tuple[str, ...]
    parts: tuple[BarLayer, ...]
    horizontal: bool = False


@dataclass(frozen=True)
class TimeSpan:
    """A time span of a row; ``start`` and ``end`` in the unit of the x axis."""

    row: int
    start: float
    end: float


@dataclass(frozen=True)
class TimelineChart:
    """The activity of each row over time. ``kinds`` are the legend's entries with their
    stretches."""

    name: str
    title: str
    summary: str
    x_label: str
    rows: tuple[str, ...]
    kinds: tuple[tuple[str, tuple[TimeSpan, ...]], ...]


def log_ticks(values: Iterable[float]) -> tuple[float, ...]:
    """Tick positions of a logarithmic axis over these values: 1, 2 and 5 of each decade, or only
    decades where there are many."""
    positive = [value for value in values if value > 0]
    if not positive:
        return ()
    low, high = math.floor(math.log10(min(positive))), math.ceil(math.log10(max(positive)))
    steps = (1, 2, 5) if high - low <= _FEW_DECADES else (1,)
    ticks = [step * 10.0**power for power in range(low, high + 1) for step in steps]
    return tuple(tick for tick in ticks if min(positive) / 2 <= tick <= max(positive) * 2)


AnyChart = Chart | StackedChart | TimelineChart


def chart_name(kind: str, title: str) -> str:
    """A chart's name in the document, of letters, digits and dashes; long titles that begin alike
    differ in a hash."""
    name = f"{kind}-{re.sub(r'[^a-z0-9]+', '-', title.lower()).strip('-')}"
    if len(name) <= _NAME_CHARACTERS:
        return name
    return f"{name[: _NAME_CHARACTERS - 9]}-{hashlib.sha256(title.encode()).hexdigest()[:8]}"
