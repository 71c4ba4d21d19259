"""Statistics of series of times. Pure functions on sequences; definitions in ``docs/method.md``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from operator import mul

import numpy as np
from numpy.typing import NDArray

from torchscale.schema.launch.steps import MAX_VALUES, Digest

_QUANTILES = (0.5, 0.95, 0.99)
_STEADY_SHARE = 0.5
_FEWEST_OF_A_THIRD = 2
"""One value differs from its mean by nothing."""
_MOST_ALIKE = 0.9
"""Largest autocorrelation that counts: beyond it a short series holds no two independent values."""
_ROUNDING = 1e-9
_DECIMALS = 8
"""Decimals of kept seconds: 10 ns, below the resolution of the clocks that steps are read from."""


def import_quantiles() -> None:
    """Import what intervals need, which takes some tenths of a second: for a program that waits
    anyway."""
    student_t_quantile(0.975, 1)


@lru_cache(maxsize=1024)
def student_t_quantile(probability: float, degrees_of_freedom: float) -> float:
    """The t that ``probability`` of Student's distribution lies below."""
    from scipy.special import stdtrit  # noqa: PLC0415 - 0.2 s to import, and only intervals need it

    return float(stdtrit(degrees_of_freedom, probability))


def student_t_probability(value: float, error: float, degrees_of_freedom: float) -> float:
    """Chance of a value at least so far from 0, on either side; without an error it is 1 for 0 and
    0 for any other."""
    if error == 0:
        return float(value == 0)
    from scipy.special import stdtr  # noqa: PLC0415 - 0.2 s to import, and only comparisons need it

    return 2 * float(stdtr(degrees_of_freedom, -abs(value) / error))


def student_t_ends(value: float, error: float, degrees_of_freedom: float) -> tuple[float, float]:
    """The 95 % interval."""
    half = student_t_quantile(0.975, degrees_of_freedom) * error if error else 0.0
    return value - half, value + half


def geometric_mean(values: Sequence[float]) -> float:
    """Geometric mean of launches' values, whose ratios are compared; a single value is returned as
    it is.

    Raises:
        ValueError: there are no values, or one is not positive.
    """
    if not values:
        raise ValueError("no values to average")
    if len(values) == 1:
        return values[0]
    return math.exp(math.fsum(map(math.log, values)) / len(values))


def lag1_autocorrelation(values: Sequence[float]) -> float | None:
    """Correlation of each value with the next; ``None`` for fewer than three values or a constant
    series."""
    if len(values) < 3:
        return None
    mean = math.fsum(values) / len(values)
    series = [value - mean for value in values]
    power = math.fsum(map(mul, series, series))
    if power > 0:
        return math.fsum(map(mul, series, series[1:])) / power
    return None


def quarter_means(values: Sequence[float] | NDArray[np.float64]) -> list[float]:
    """Mean of each quarter of a series, in order; of fewer than four values, these."""
    return [float(part.mean()) for part in np.array_split(np.asarray(values), 4) if len(part)]


def is_steady(values: Sequence[float] | NDArray[np.float64]) -> bool:
    """Whether each quarter of a series has at least half of its mean: what disturbs a run comes and
    goes."""
    return min(quarter_means(values)) >= _STEADY_SHARE * float(np.mean(values))


def relative_drift(values: Sequence[float]) -> float | None:
    """Mean of the last third over mean of the first third, minus 1; ``None`` for fewer than three
    values."""
    third = len(values) // 3
    if third == 0:
        return None
    first, last = math.fsum(values[:third]) / third, math.fsum(values[-third:]) / third
    if first > 0:
        return last / first - 1
    return None


def drift_probability(values: Sequence[float]) -> float | None:
    """Chance of first and last thirds that differ at least so much without a trend; ``None`` for
    fewer than six values. Noise is what a line through the values leaves, or a step at its best
    place, whichever is less. Neighbouring values that are alike count as fewer: (1 + ρ) ÷ (1 - ρ)
    times the variance, ρ their lag-1 autocorrelation, of which a short series beside a fit shows
    about (3 + 5ρ) ÷ n too little.
    """
    count, third = len(values), len(values) // 3
    if third < _FEWEST_OF_A_THIRD:
        return None
    series = np.asarray(values, dtype=float)
    first, last = series[:third], series[-third:]
    places = np.arange(count)
    line = series - np.polyval(np.polyfit(places, series, 1), places)
    steps = (
        np.concatenate([series[:at] - series[:at].mean(), series[at:] - series[at:].mean()])
        for at in range(2, count - 1)
    )
    left = min(line, *steps, key=lambda each: float(each @ each))
    seen = lag1_autocorrelation(left.tolist()) or 0.0
    alike = max(0.0, min(_MOST_ALIKE, seen + (3 + 5 * seen) / count))
    fewer = (1 + alike) / (1 - alike)
    variance = float(left @ left) / (count - 3)
    difference = float(last.mean() - first.mean())
    error = math.sqrt(2 * variance * fewer / third)
    if error < _ROUNDING * abs(difference):
        return 0.0
    return student_t_probability(difference, error, max(1.0, (count - 3) / fewer))


def digest(values: Sequence[float], *, keep_values: bool = True) -> Digest:
    """Quantiles (linear between order statistics) and extremes of a series of seconds.

    Args:
        values: The series.
        keep_values: Whether the digest holds the series too, for :func:`pooled_digest` and
            distributions.

    Raises:
        ValueError: the series is empty.
    """
    if not len(values):
        raise ValueError("an empty series has no digest")
    series = np.sort(np.asarray(values, dtype=float))
    p50, p95, p99 = (float(quantile) for quantile in np.quantile(series, _QUANTILES))
    return Digest(
        count=len(series),
        mean=float(series.mean()),
        minimum=float(series[0]),
        p50=p50,
        p95=p95,
        p99=p99,
        maximum=float(series[-1]),
        values=tuple(_thinned(series).round(_DECIMALS).tolist()) if keep_values else (),
    )


def pooled_digest(digests: Sequence[Digest]) -> Digest:
    """The digest of all series together: quantiles are over all their values, never means of
    quantiles.

    Exact where every digest holds its whole series; else each value that was kept counts for as
    many as it is one of.

    Raises:
        ValueError: there is no digest, or one of several holds no values.
    """
    if not digests:
        raise ValueError("no digests to pool")
    if len(digests) == 1:
        return digests[0]
    if not all(item.values for item in digests):
        raise ValueError("a digest without its values cannot be pooled")
    series = np.concatenate([np.asarray(item.values) for item in digests])
    weights = np.concatenate(
        [np.full(len(item.values), item.count / len(item.values)) for item in digests]
    )
    order = np.argsort(series, kind="stable")
    series, weights = series[order], weights[order]
    # A value stands at the middle of the ranks that it counts for; equal weights give the usual
    # linear interpolation.
    ranks = np.cumsum(weights) - weights / 2
    ranks = (ranks - ranks[0]) / max(ranks[-1] - ranks[0], 1e-12)
    p50, p95, p99 = (float(quantile) for quantile in np.interp(_QUANTILES, ranks, series))
    count = sum(item.count for item in digests)
    evenly = np.interp(np.linspace(0, 1, min(count, MAX_VALUES)), ranks, series)
    return Digest(
        count=count,
        mean=math.fsum(item.mean * item.count for item in digests) / count,
        minimum=min(item.minimum for item in digests),
        p50=p50,
        p95=p95,
        p99=p99,
        maximum=max(item.maximum for item in digests),
        values=tuple(evenly.round(_DECIMALS).tolist()),
    )


def _thinned(ascending: NDArray[np.float64]) -> NDArray[np.float64]:
    """The values, thinned to at most :data:`MAX_VALUES` at equal distances, both ends included."""
    if len(ascending) <= MAX_VALUES:
        return ascending
    return np.asarray(ascending[np.linspace(0, len(ascending) - 1, MAX_VALUES).round().astype(int)])
