"""The two levels of a series, one change of level, and growth: by sums of squares and by ranks."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from torchscale.analysis.stats.estimate import Estimate

Values = NDArray[np.float64]

_TO_DEVIATION = 1.4826
"""From the median absolute deviation to the standard deviation of normal noise."""
_QUANTILE = 1.96
"""Of the normal distribution: 95 % lie between."""


def scatter(distances: Values, axis: int | None = None, *, keepdims: bool = False) -> Values:
    """Standard deviation of normal noise with these distances from its middle: by their median,
    which no outlier moves."""
    middle = np.median(np.abs(distances), axis=axis, keepdims=keepdims)
    return np.asarray(_TO_DEVIATION * middle)


def rises(values: Values) -> Values:
    """The mean of the values behind each cut less that of those before it, from the cut after the
    first value on; the last axis is that of the values."""
    count = values.shape[-1]
    before = np.arange(1, count)
    centered = values - values.mean(axis=-1, keepdims=True)
    sums = centered.cumsum(axis=-1)[..., :-1]
    rest = centered.sum(axis=-1, keepdims=True) - sums
    return np.asarray(rest / (count - before) - sums / before)


def between_parts(values: Values) -> Values:
    """What of the sum of squares lies between the two parts of each cut. Of ascending values the
    largest cuts them into two levels (Otsu); of values in order of time it is where one change fits
    best."""
    count = values.shape[-1]
    before = np.arange(1, count)
    return np.asarray(rises(values) ** 2 * (before * (count - before) / count))


def within_parts(values: Values) -> Values:
    """Standard deviation of three values or more around the mean of their part, for each cut."""
    count = values.shape[-1]
    whole = values.var(axis=-1, keepdims=True) * count
    return np.asarray(np.sqrt(np.maximum(0.0, whole - between_parts(values)) / (count - 2)))


@dataclass(frozen=True)
class TwoLevels:
    """The levels of rows of values, one of each for a row.

    Attributes:
        low, high: Medians of both parts.
        scatter: Standard deviation within a level.
    """

    low: Values
    high: Values
    scatter: Values


def two_levels(values: Values) -> TwoLevels:
    """Split each row of two values or more where most of the sum of squares lies between both
    parts."""
    ordered = np.sort(values, axis=1)
    length = ordered.shape[1]
    cut = between_parts(ordered).argmax(axis=1) + 1
    rows = np.arange(len(ordered))
    low = (ordered[rows, (cut - 1) // 2] + ordered[rows, cut // 2]) / 2
    high = (
        ordered[rows, cut + (length - cut - 1) // 2] + ordered[rows, cut + (length - cut) // 2]
    ) / 2
    is_low = np.arange(length) < cut[:, np.newaxis]
    level = np.where(is_low, low[:, np.newaxis], high[:, np.newaxis])
    return TwoLevels(low, high, scatter(ordered - level, axis=1))


def off_one_change(values: Values) -> float:
    """Standard deviation of values in order of time around one change of level at its best
    place."""
    left = values.var() - between_parts(values).max() / len(values)
    return math.sqrt(max(0.0, float(left)))


@dataclass(frozen=True)
class Line:
    """Values over time.

    Attributes:
        slope: The median of the slopes between all pairs, with its interval (Theil 1950 and Sen
            1968): no outlier moves it.
        correlation: With time, Kendall's.
        off: Standard deviation around the line that fits best.
    """

    slope: Estimate
    correlation: float
    off: float


def line(time: Values, values: Values) -> Line:
    """The line through values at times of which two differ at least."""
    count = len(values)
    first, second = np.triu_indices(count, 1)
    rise, run = values[second] - values[first], time[second] - time[first]
    slopes = np.sort(rise[run > 0] / run[run > 0])
    # Ranks of slopes between which the median lies, by the variance of Kendall's statistic.
    spread = _QUANTILE * math.sqrt(count * (count - 1) * (2 * count + 5) / 18)
    low, high = (int((len(slopes) + sign * spread) / 2) for sign in (-1, 1))
    slope = Estimate(
        float(np.median(slopes)),
        float(slopes[max(0, low)]),
        float(slopes[min(len(slopes) - 1, high)]),
        count,
    )
    rest = values - np.polyval(np.polyfit(time, values, 1), time)
    return Line(slope, float(np.sign(rise).mean()), float(rest.std()))
