"""Intervals as text, the same in every format: their two ends, since an interval need not be
symmetric."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from torchscale.util.units import LARGE_FACTOR, format_change, format_factor, format_percent

Interval = tuple[float, float]
"""Lower and upper end; the upper one may be infinite."""

_FARTHEST = 100.0
"""Ends that are a larger factor from the value are written as beyond it: such an interval says that
the value is unknown, and its digits would only be noise."""
_WHOLE_PERCENT = 0.1
"""Width from which an interval of shares is written in whole percent."""


_DIGITS = (3, 4, 5)
"""Digits of an end, at most: an interval narrower than 1 in 10,000 is of no width for a reader."""


def finite(end: float) -> float | None:
    """An end as files write it: ``None`` for an interval that has none, since JSON has no
    infinity."""
    if math.isfinite(end):
        return end
    return None


def finite_ends(interval: Interval | None) -> tuple[float | None, float | None]:
    """Both ends as files write them; ``None`` where there is no interval."""
    if interval is None:
        return None, None
    return interval[0], finite(interval[1])


def format_ends(low: str, high: str) -> str:
    """``25 to 84 %``: the unit once where both ends have the same."""
    unit = high.partition(" ")[2]
    if unit and low.endswith(f" {unit}"):
        low = low.removesuffix(f" {unit}")
    return f"{low} to {high}"


def format_interval(value: float, interval: Interval, text: Callable[[float, int], str]) -> str:
    """``1,200 to 1,260``: an interval around a positive value; ``text`` writes an end with so many
    digits, three or as many as it takes to tell the ends apart."""
    ends = _bounded(value, interval, partial(_rounded, text, _DIGITS[0]))
    for digits in _DIGITS[1:]:
        if ends[0] != ends[1]:
            break
        finer = _bounded(value, interval, partial(_rounded, text, digits))
        if finer[0] != finer[1]:
            ends = finer
    return format_ends(*ends)


def _rounded(text: Callable[[float, int], str], digits: int, end: float) -> str:
    return text(end, digits)


def _bounded(value: float, interval: Interval, text: Callable[[float], str]) -> tuple[str, str]:
    """Both ends; those beyond :data:`_FARTHEST` as that far and farther."""
    low, high = interval
    lowest, highest = value / _FARTHEST, value * _FARTHEST
    return (
        f"under {text(lowest)}" if low < lowest else text(low),
        f"over {text(highest)}" if high > highest else text(high),
    )


def format_share_interval(value: float, interval: Interval) -> str:
    """``25 to 84 %`` and ``91.2 to 93.4 %``: of a share, with as many digits as its width leaves
    meaning to."""
    low, high = interval
    digits = 0 if high - low >= _WHOLE_PERCENT else 1
    return format_ends(*_bounded(value, interval, lambda end: format_percent(end, digits)))


def format_change_ends(low: float, high: float) -> str:
    """``-0.4 to +2.9 %`` of the ratios 0.996 and 1.029; both as factors where one is a large one:
    ``×0.27 to ×60.1``."""
    if high >= LARGE_FACTOR:
        return format_ends(format_factor(low), format_factor(high))
    return format_ends(format_change(low - 1), format_change(high - 1))


def with_interval(value: str, interval: str) -> str:
    """``52.3 % (25 to 84 %)``; the value alone where there is no interval."""
    if interval:
        return f"{value} ({interval})"
    return value


def format_estimate(value: float, ends: Interval | None, text: Callable[[float], str]) -> str:
    """``12.0 ms (9.10 to 14.9 ms)``: a value and the ends of its interval, written alike; the value
    alone where there is no interval."""
    shown = "" if ends is None else format_ends(*map(text, ends))
    return with_interval(text(value), shown)
