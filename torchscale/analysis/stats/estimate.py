"""A mean of values with its 95 % interval, by Student's t. It takes the values as independent: at a
lag-1 autocorrelation of 0.8 a nominal 95 % covers about 85 %."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torchscale.analysis.stats.series import geometric_mean, student_t_quantile
from torchscale.util.interval_text import format_estimate

_QUANTILE = 0.975
"""Of either side: 95 % lie between."""
_LARGEST_LOG = 700.0
"""Below the logarithm of the largest float (709.8)."""


@dataclass(frozen=True)
class Estimate:
    """A value, its interval, and how many values it is from.

    Attributes:
        value: The mean.
        low, high: Ends of the 95 % interval; ``None`` for fewer than two values.
        count: Values behind it.
        error: Standard error of an arithmetic mean, with ``count`` − 1 degrees of freedom; ``None``
            for fewer than two values, and where the interval is none of Student's.
    """

    value: float
    low: float | None
    high: float | None
    count: int
    error: float | None = None

    @classmethod
    def of_mean(cls, values: Sequence[float]) -> Estimate:
        """The arithmetic mean of one value or more."""
        count = len(values)
        mean = math.fsum(values) / count
        if count < 2:
            return cls(mean, None, None, count)
        variance = math.fsum([(value - mean) ** 2 for value in values]) / (count - 1)
        error = math.sqrt(variance / count)
        half = student_t_quantile(_QUANTILE, count - 1) * error
        return cls(mean, mean - half, mean + half, count, error)

    @classmethod
    def of_log_mean(cls, values: Sequence[float]) -> Estimate:
        """The geometric mean, as of launches, whose ratios are compared.

        Raises:
            ValueError: there are no values, or one is not positive.
        """
        level, half = geometric_mean(values), geometric_half_width(values)
        if half is None:
            return cls(level, None, None, len(values))
        return cls(level, level / (1 + half), level * (1 + half), len(values))

    @property
    def half(self) -> float | None:
        """Half of the interval of an arithmetic mean."""
        if self.error is None:
            return None
        return student_t_quantile(_QUANTILE, self.count - 1) * self.error

    @property
    def ends(self) -> tuple[float, float] | None:
        """Both ends of the interval."""
        if self.low is None or self.high is None:
            return None
        return self.low, self.high

    @property
    def bounds(self) -> tuple[float, float]:
        """The same, without bounds where nothing is known of the scatter."""
        return self.ends or (-math.inf, math.inf)

    def through(self, function: Callable[[float], float]) -> Estimate:
        """With a rising function of the value and of both ends, such as the exponential one."""
        ends = self.ends
        if ends is None:
            return Estimate(function(self.value), None, None, self.count)
        low, high = map(function, ends)
        return Estimate(function(self.value), low, high, self.count)

    def text(self, text: Callable[[float], str]) -> str:
        """``12.0 ms (9.10 to 14.9 ms)``."""
        return format_estimate(self.value, self.ends, text)


def from_log(log: float) -> float:
    """The value of a logarithm, kept finite."""
    return math.exp(min(log, _LARGEST_LOG))


def relative_half_width(values: Sequence[float]) -> float | None:
    """Half-width of the 95 % interval of the mean, as a share of the mean; ``None`` for fewer than
    two values or a mean that is not positive."""
    if len(values) < 2:
        return None
    mean = Estimate.of_mean(values)
    return mean.half / mean.value if mean.half is not None and mean.value > 0 else None


def geometric_half_width(values: Sequence[float]) -> float | None:
    """Half-width of the 95 % interval of the geometric mean, as a share of it: the interval of the
    mean logarithm, its upper end; ``None`` for fewer than two values.

    Raises:
        ValueError: a value is not positive.
    """
    if len(values) < 2:
        return None
    half = Estimate.of_mean([math.log(value) for value in values]).half
    return None if half is None else math.expm1(min(half, _LARGEST_LOG))
