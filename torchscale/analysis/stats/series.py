"""Statistics of series of times. Pure functions on sequences; definitions in ``docs/method.md``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from operator import mul

import numpy as np

from torchscale.schema.launch.steps import Digest

_HISTOGRAM_BINS = 40
"""Enough for the shape of a distribution a few hundred pixels wide; a digest stays small."""


@lru_cache(maxsize=1024)
def student_t_quantile(probability: float, degrees_of_freedom: float) -> float:
    """The t that ``probability`` of Student's distribution lies below."""
    from scipy.special import stdtrit  # noqa: PLC0415 - 0.2 s to import, and only intervals need it

    return float(stdtrit(degrees_of_freedom, probability))


def relative_half_width(values: Sequence[float], confidence: float = 0.95) -> float | None:
    """Half-width of the t-interval of the mean, as a share of the mean.

    The interval takes the values as independent: at a lag-1 autocorrelation of 0.8 a nominal 95 % covers about 85 %.

    Returns:
        ``None`` for fewer than two values or a mean that is not positive.
    """
    if len(values) < 2:
        return None
    mean = math.fsum(values) / len(values)
    if mean <= 0:
        return None
    variance = math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
    quantile = student_t_quantile(0.5 + confidence / 2, len(values) - 1)
    return quantile * math.sqrt(variance / len(values)) / mean


def mean_interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float | None]:
    """Mean and the half-width of its t-interval; ``None`` for fewer than two values. Takes them as independent."""
    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        return mean, None
    variance = math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
    quantile = student_t_quantile(0.5 + confidence / 2, len(values) - 1)
    return mean, quantile * math.sqrt(variance / len(values))


def lag1_autocorrelation(values: Sequence[float]) -> float | None:
    """Correlation of each value with the next; ``None`` for fewer than three values or a constant series."""
    if len(values) < 3:
        return None
    mean = math.fsum(values) / len(values)
    series = [value - mean for value in values]
    power = math.fsum(map(mul, series, series))
    return math.fsum(map(mul, series, series[1:])) / power if power > 0 else None


def relative_drift(values: Sequence[float]) -> float | None:
    """Mean of the last third over mean of the first third, minus 1; ``None`` for fewer than three values."""
    third = len(values) // 3
    if third == 0:
        return None
    first, last = math.fsum(values[:third]) / third, math.fsum(values[-third:]) / third
    return last / first - 1 if first > 0 else None


def digest(values: Sequence[float]) -> Digest:
    """Quantiles (linear between order statistics), extremes and a histogram of a series of seconds.

    Raises:
        ValueError: the series is empty.
    """
    if not len(values):
        raise ValueError("an empty series has no digest")
    series = np.asarray(values, dtype=float)
    p50, p95, p99 = (float(quantile) for quantile in np.quantile(series, (0.5, 0.95, 0.99)))
    lowest, highest = float(series.min()), float(series.max())
    # Values that differ by less than bins can resolve (a constant series) make one bar around them.
    bins = min(_HISTOGRAM_BINS, len(series)) if highest - lowest > 1e-9 * highest else 1
    counts, edges = np.histogram(series, bins=bins)
    return Digest(
        count=len(series),
        mean=float(series.mean()),
        minimum=lowest,
        p50=p50,
        p95=p95,
        p99=p99,
        maximum=highest,
        edges=tuple(float(edge) for edge in edges),
        histogram=tuple(int(count) for count in counts),
    )
