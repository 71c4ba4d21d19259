"""Ratios of what launches measured, with Welch's t on their logarithms (Welch 1947), and Holm's
correction (1979)."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from torchscale.analysis.stats.estimate import from_log
from torchscale.analysis.stats.series import student_t_ends, student_t_probability


@dataclass(frozen=True)
class LogRatio:
    """The logarithm of a ratio with its uncertainty.

    Attributes:
        log: The logarithm.
        error, degrees: Standard error from launch to launch, and its degrees of freedom; ``None``
            where a side has fewer than two values.
        session_error, session_degrees: What sessions add to it; ``session_degrees`` is ``None``
            where the noise between sessions is not estimated.
    """

    log: float
    error: float | None = None
    degrees: float | None = None
    session_error: float = 0.0
    session_degrees: float | None = None

    @property
    def value(self) -> float:
        """The ratio itself, not its logarithm."""
        return math.exp(self.log)

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 %; ``None`` where nothing is known of the spread."""
        total = self._total
        if total is None:
            return None
        low, high = student_t_ends(self.log, *total)
        return from_log(low), from_log(high)

    @property
    def p(self) -> float | None:
        """Probability of a ratio at least so far from 1 where there is no difference."""
        return None if self._total is None else student_t_probability(self.log, *self._total)

    @property
    def _total(self) -> tuple[float, float] | None:
        """Standard error and degrees of freedom of launches and sessions together."""
        if self.error is None or self.degrees is None:
            return None
        if self.session_degrees is None or self.session_error == 0:
            return self.error, self.degrees
        return combined_error(
            [(self.error**2, self.degrees), (self.session_error**2, self.session_degrees)]
        )


def log_ratio(after: Sequence[float], before: Sequence[float]) -> LogRatio:
    """Geometric mean of ``after`` ÷ that of ``before``; all values positive, one for each launch.

    Raises:
        ValueError: a value is not positive, or a side is empty.
    """
    sides = [[math.log(value) for value in side] for side in (after, before)]
    log = statistics.fmean(sides[0]) - statistics.fmean(sides[1])
    if any(len(side) < 2 for side in sides):
        return LogRatio(log)
    parts = [(statistics.variance(side) / len(side), float(len(side) - 1)) for side in sides]
    if not any(variance for variance, _ in parts):
        return LogRatio(log, 0.0, float(len(after) + len(before) - 2))
    return LogRatio(log, *combined_error(parts))


def ratio_to_median(after: Sequence[float], before: Sequence[Sequence[float]]) -> LogRatio:
    """Geometric mean of ``after`` ÷ the median over groups of the geometric mean of each; all
    values positive, one for each launch. The variance of a median is π/2 times that of a mean where
    noise is normal, and smaller where it has heavier tails (Kendall and Stuart, 1977, 10.10): π/2
    is taken.

    Raises:
        ValueError: a value is not positive, or a side is empty.
    """
    flat = [value for group in before for value in group]
    mean = log_ratio(after, flat)
    levels = [statistics.fmean(math.log(value) for value in group) for group in before]
    log = statistics.fmean(math.log(value) for value in after) - statistics.median(levels)
    if mean.error is None:
        return LogRatio(log)
    sides = [[math.log(value) for value in side] for side in (after, flat)]
    shares = (1.0, math.pi / 2)
    parts = [
        (share * statistics.variance(side) / len(side), float(len(side) - 1))
        for share, side in zip(shares, sides, strict=True)
    ]
    if any(variance for variance, _ in parts):
        return LogRatio(log, *combined_error(parts))
    return replace(mean, log=log)


def mean_ratio(ratios: Sequence[LogRatio]) -> LogRatio:
    """Their geometric mean. The error from launch to launch takes them as independent, and is
    ``None`` where one has none; what sessions add is taken as common to all of them, as the
    temperature of a machine is.

    Raises:
        ValueError: there are none.
    """
    if not ratios:
        raise ValueError("no ratios to average")
    log = statistics.fmean(ratio.log for ratio in ratios)
    known = [
        (ratio.error, ratio.degrees)
        for ratio in ratios
        if ratio.error is not None and ratio.degrees is not None
    ]
    if len(known) < len(ratios):
        return LogRatio(log)
    session_error = statistics.fmean(ratio.session_error for ratio in ratios)
    session_degrees = min(
        (one.session_degrees for one in ratios if one.session_degrees is not None), default=None
    )
    parts = [((error / len(ratios)) ** 2, degrees) for error, degrees in known]
    if any(variance for variance, _ in parts):
        return LogRatio(log, *combined_error(parts), session_error, session_degrees)
    return LogRatio(log, 0.0, min(degrees for _, degrees in parts), session_error, session_degrees)


def combined_error(parts: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Standard error and degrees of freedom of a sum of variances with theirs (Welch and
    Satterthwaite)."""
    total = sum(variance for variance, _ in parts)
    return math.sqrt(total), total**2 / sum(variance**2 / degrees for variance, degrees in parts)


def quotient(ratio: LogRatio, by: LogRatio) -> LogRatio:
    """``ratio`` ÷ ``by``. Their errors from launch to launch are taken as independent; what
    sessions add is taken as common to both, so that it cancels."""
    log = ratio.log - by.log
    if ratio.error is None or ratio.degrees is None or by.error is None or by.degrees is None:
        return LogRatio(log)
    parts = [(ratio.error**2, ratio.degrees), (by.error**2, by.degrees)]
    if not any(variance for variance, _ in parts):
        return LogRatio(log, 0.0, min(ratio.degrees, by.degrees))
    return LogRatio(log, *combined_error(parts))


def holm(probabilities: Sequence[float]) -> list[float]:
    """Adjusted so that the chance of any false alarm among them stays below the level they are held
    against."""
    order = sorted(range(len(probabilities)), key=lambda index: probabilities[index])
    adjusted = [0.0] * len(probabilities)
    largest = 0.0
    for place, index in enumerate(order):
        largest = max(largest, min(1.0, probabilities[index] * (len(probabilities) - place)))
        adjusted[index] = largest
    return adjusted
