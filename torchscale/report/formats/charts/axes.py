"""What both chart renderers draw alike: ticks of the x axis, the place of the legend, the size."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from torchscale.report.charts import Chart, ChartSeries, log_ticks
from torchscale.util.units import format_bytes

_FEW_POINTS = 3
"""Up to this many points a line shows as much in half the area."""
_MAX_BYTE_TICKS = 6
"""Labels such as ``512 KiB`` that fit side by side."""
_LEGEND_WIDTH = 0.45
"""Share of the plot: about what a legend covers."""
_ENOUGH = 0.35
"""Room for a legend, of the plot's height: more is no better."""
_CORNERS = (("top", "left"), ("bottom", "right"), ("top", "right"), ("bottom", "left"))
"""Corners in order of preference where several are equally empty."""
_ROOM_FOR_WHISKERS = 1.5
"""Height of an axis over its highest point. An interval that needs more says that the value is
nearly unknown; drawn whole it would press all points into the lower half."""
_BEYOND = 0.1
"""How far beyond the frame a whisker that it cuts is drawn, as a share of the axis, so that its cap
is not seen."""
_FEWEST_APART = 2
_APART, _MOST_APART = 0.012, 0.4
"""Distance of whiskers side by side: a share of the axis (6 pixels on a screen), and together at
most a share of the distance of two counts."""
_MAX_PLACES = 40
"""Lines with more points need no places between them to be seen by the count."""


def is_small(chart: Chart) -> bool:
    """Whether half the area shows it as well."""
    return (
        not chart.prominent
        and bool(chart.x_ticks)
        and all(len(series.x) <= _FEW_POINTS for series in chart.series)
    )


def x_ticks(chart: Chart) -> tuple[tuple[float, ...], tuple[str, ...]]:
    """Places and texts of the ticks of the x axis; both empty where the renderer chooses."""
    places = [x for series in chart.series for x in series.x]
    if chart.byte_sizes:
        ticks = byte_ticks(places)
        return ticks, tuple(re.sub(r"\.0+ ", " ", format_bytes(tick)) for tick in ticks)
    if chart.x_names:
        return chart.x_ticks, chart.x_names
    ticks = chart.x_ticks
    if chart.log_x and not ticks:
        ticks = log_ticks(places)
    return ticks, tuple(f"{tick:,.12g}" for tick in ticks)


def y_frame(chart: Chart) -> tuple[float, float] | None:
    """Ends of a y axis at which the whiskers of intervals are cut, with an arrow; ``None`` where all
    fit."""
    if chart.y_range is not None:
        return chart.y_range
    values = [value for series in chart.series for value in (*series.y, *series.launch_points[1])]
    if not values or chart.log_y or not chart.y_from_zero:
        return None
    limit = _ROOM_FOR_WHISKERS * max(values)
    if any(high > limit for series in chart.series for high in series.high):
        return 0.0, limit
    return None


def ends_within(ends: Sequence[float], frame: tuple[float, float] | None) -> list[float]:
    """Ends of intervals; those of cut whiskers, not far beyond the frame."""
    if frame is None:
        return list(ends)
    low, high = frame
    beyond = _BEYOND * (high - low)
    return [min(max(end, low - beyond), high + beyond) for end in ends]


def side_by_side(chart: Chart) -> Chart:
    """Lines that have whiskers at the same x, moved apart by a little where the axis has only some
    x: whiskers drawn over one another cannot be read."""
    with_whiskers = [
        number for number, series in enumerate(chart.series) if series.high and not series.reference
    ]
    places = sorted(chart.x_ticks)
    if (
        len(with_whiskers) < _FEWEST_APART
        or len(places) < _FEWEST_APART
        or chart.log_x
        or chart.x_names
    ):
        return chart
    nearest = min(after - before for before, after in itertools.pairwise(places))
    step = min(_APART * (places[-1] - places[0]), _MOST_APART * nearest / len(with_whiskers))
    middle = (len(with_whiskers) - 1) / 2
    series = list(chart.series)
    for place, number in enumerate(with_whiskers):
        moved = tuple(x + (place - middle) * step for x in series[number].x)
        series[number] = replace(series[number], x=moved)
    return replace(chart, series=tuple(series))


@dataclass(frozen=True)
class CutEnd:
    """Where an interval goes on beyond the frame: ``y`` is an end of the axis."""

    x: float
    y: float
    interval: tuple[float, float]
    upwards: bool


def cut_ends(series: ChartSeries, frame: tuple[float, float]) -> list[CutEnd]:
    """Where the intervals of a line leave the frame, upwards or downwards."""
    bottom, top = frame
    found = []
    for x, *ends in zip(series.x, series.low, series.high, strict=False):
        low, high = ends
        if low < bottom:
            found.append(CutEnd(x, bottom, (low, high), upwards=False))
        if high > top:
            found.append(CutEnd(x, top, (low, high), upwards=True))
    return found


def byte_ticks(values: Iterable[float]) -> tuple[float, ...]:
    """Tick positions of a logarithmic axis of bytes: powers of two at equal distances."""
    positive = [value for value in values if value > 0]
    if not positive:
        return ()
    low, high = math.floor(math.log2(min(positive))), math.ceil(math.log2(max(positive)))
    step = max(1, math.ceil((high - low) / _MAX_BYTE_TICKS))
    return tuple(2.0**power for power in range(low, high + 1, step))


def legend_corner(chart: Chart) -> tuple[str, str]:
    """``("top" or "bottom", "left" or "right")``: the corner whose box of legend entries has the
    most room; lines of reference, which may be covered, decide where what was measured does not."""
    measured = [
        place for series in chart.series if not series.reference for place in _along(series, chart)
    ]
    points = [place for series in chart.series for place in _along(series, chart)]
    if not points:
        return _CORNERS[0]
    xs, ys = [x for x, _ in points], [y for _, y in points]
    left, bottom = min(xs), min(ys)
    if chart.y_from_zero and not chart.log_y:
        bottom = min(0.0, *ys)
    bottom, top = y_frame(chart) or (bottom, max(ys))
    width, height = max(xs) - left or 1.0, top - bottom or 1.0

    def room(corner: tuple[str, str], found: Sequence[tuple[float, float]]) -> float:
        return _room(corner, [((x - left) / width, (y - bottom) / height) for x, y in found])

    return max(
        _CORNERS, key=lambda corner: (min(_ENOUGH, room(corner, measured)), room(corner, points))
    )


def _room(corner: tuple[str, str], places: Sequence[tuple[float, float]]) -> float:
    """How far from the corner, upwards or downwards, the nearest of what is beside it lies; shares
    of the height."""
    row, column = corner
    if column == "left":
        beside = [y for x, y in places if x <= _LEGEND_WIDTH]
    else:
        beside = [y for x, y in places if 1 - x <= _LEGEND_WIDTH]
    if row == "top":
        beside = [1 - y for y in beside]
    return min(beside, default=1.0)


def _along(series: ChartSeries, chart: Chart) -> list[tuple[float, float]]:
    """Points of a series, the ends of their intervals, and places on the lines between them, in the
    coordinates of the axes."""
    points = [
        (_scaled(x, log=chart.log_x or chart.byte_sizes), _scaled(y, log=chart.log_y))
        for x, y in zip(series.x, series.y, strict=True)
    ]
    if len(points) > _MAX_PLACES:
        return points
    bottom, top = y_frame(chart) or (-math.inf, math.inf)
    ends = [
        (
            _scaled(x, log=chart.log_x or chart.byte_sizes),
            _scaled(min(max(end, bottom), top), log=chart.log_y),
        )
        for x, low, high in zip(series.x, series.low, series.high, strict=False)
        for end in (low, high)
    ]
    between = [
        (x + (next_x - x) * part / 4, y + (next_y - y) * part / 4)
        for (x, y), (next_x, next_y) in itertools.pairwise(points)
        for part in range(1, 4)
    ]
    return [*points, *between, *ends]


def _scaled(value: float, *, log: bool) -> float:
    if log and value > 0:
        return math.log10(value)
    return value
