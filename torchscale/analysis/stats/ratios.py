"""Ratios of what launches measured, with Welch's t on their logarithms (Welch 1947), and Holm's correction (1979)."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from torchscale.analysis.stats.series import student_t_quantile

_CONFIDENCE = 0.95
_LARGEST_LOG = 700.0
"""Below the logarithm of the largest float (709.8)."""


@dataclass(frozen=True)
class LogRatio:
    """The logarithm of a ratio with its uncertainty. ``error`` is its standard error, ``degrees`` are of freedom;
    both are ``None`` where a side has fewer than two values."""

    log: float
    error: float | None = None
    degrees: float | None = None

    @property
    def value(self) -> float:
        """The ratio itself, not its logarithm."""
        return math.exp(self.log)

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 %; ``None`` where nothing is known of the spread."""
        if self.error is None or self.degrees is None:
            return None
        half = student_t_quantile(0.5 + _CONFIDENCE / 2, self.degrees) * self.error if self.error else 0.0
        return math.exp(self.log - half), math.exp(min(self.log + half, _LARGEST_LOG))

    @property
    def p(self) -> float | None:
        """Probability of a ratio at least so far from 1 where there is no difference."""
        if self.error is None or self.degrees is None:
            return None
        if self.error == 0:
            return 1.0 if self.log == 0 else 0.0
        from scipy.special import stdtr  # noqa: PLC0415 - 0.2 s to import, and only comparisons need it

        return 2 * float(stdtr(self.degrees, -abs(self.log) / self.error))


def log_ratio(after: Sequence[float], before: Sequence[float]) -> LogRatio:
    """Geometric mean of ``after`` ÷ that of ``before``; all values positive, one for each launch.

    Raises:
        ValueError: a value is not positive, or a side is empty.
    """
    sides = [[math.log(value) for value in side] for side in (after, before)]
    log = statistics.fmean(sides[0]) - statistics.fmean(sides[1])
    if any(len(side) < 2 for side in sides):
        return LogRatio(log)
    errors = [statistics.variance(side) / len(side) for side in sides]
    total = sum(errors)
    if total == 0:
        return LogRatio(log, 0.0, float(len(after) + len(before) - 2))
    degrees = total**2 / sum(error**2 / (len(side) - 1) for error, side in zip(errors, sides, strict=True))
    return LogRatio(log, math.sqrt(total), degrees)


def mean_ratio(ratios: Sequence[LogRatio]) -> LogRatio:
    """Their geometric mean; its error takes them as independent, and is ``None`` where one has none.

    Raises:
        ValueError: there are none.
    """
    if not ratios:
        raise ValueError("no ratios to average")
    log = statistics.fmean(ratio.log for ratio in ratios)
    known = [(ratio.error, ratio.degrees) for ratio in ratios if ratio.error is not None and ratio.degrees is not None]
    if len(known) < len(ratios):
        return LogRatio(log)
    parts = [((error / len(ratios)) ** 2, degrees) for error, degrees in known]
    total = sum(part for part, _ in parts)
    if total == 0:
        return LogRatio(log, 0.0, min(degrees for _, degrees in parts))
    degrees = total**2 / sum(part**2 / degrees for part, degrees in parts)  # Welch and Satterthwaite
    return LogRatio(log, math.sqrt(total), degrees)


def holm(probabilities: Sequence[float]) -> list[float]:
    """Adjusted so that the chance of any false alarm among them stays below the level they are held against."""
    order = sorted(range(len(probabilities)), key=lambda index: probabilities[index])
    adjusted = [0.0] * len(probabilities)
    largest = 0.0
    for place, index in enumerate(order):
        largest = max(largest, min(1.0, probabilities[index] * (len(probabilities) - place)))
        adjusted[index] = largest
    return adjusted
