"""Differences of means over launches, with Welch's t (1947) on the values themselves: what a sum is
made of has no logarithm, since a part may be 0 or below.

Means are linear, so differences of parts add up to the difference of their sum.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from itertools import chain

from torchscale.analysis.stats.ratios import combined_error
from torchscale.analysis.stats.series import student_t_ends, student_t_probability
from torchscale.analysis.stats.sessions import Groups, additive_session_noise, unseen_variance


@dataclass(frozen=True)
class MeanDifference:
    """A difference of two means with its uncertainty.

    Attributes:
        before, after: The means.
        error, degrees: Standard error of the difference, and its degrees of freedom; ``None`` where
            a side has fewer than two values.
    """

    before: float
    after: float
    error: float | None = None
    degrees: float | None = None

    @property
    def value(self) -> float:
        """``after`` less ``before``."""
        return self.after - self.before

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 %; ``None`` where nothing is known of the spread."""
        if self.error is None or self.degrees is None:
            return None
        return student_t_ends(self.value, self.error, self.degrees)

    def p(self, least: float = 0.0, most: float = 0.0) -> float | None:
        """Probability of a value at least so far from what lies between ``least`` and ``most``
        where there is no difference beyond that; ``None`` where nothing is known of the spread."""
        if self.error is None or self.degrees is None:
            return None
        excess = max(self.value - most, least - self.value)
        return student_t_probability(max(0.0, excess), self.error, self.degrees)


def mean_difference(before: Groups, after: Groups) -> MeanDifference:
    """The mean over all launches of ``after`` less that of ``before``; values are grouped by
    session, whose noise is added where it can be estimated.

    Raises:
        ValueError: a side is empty.
    """
    sides = [list(chain.from_iterable(groups)) for groups in (before, after)]
    first, second = (math.fsum(side) / len(side) for side in sides)
    if any(len(side) < 2 for side in sides):
        return MeanDifference(first, second)
    parts = [(statistics.variance(side) / len(side), float(len(side) - 1)) for side in sides]
    noise = additive_session_noise([before, after])
    if noise is not None:
        parts.append((unseen_variance([before, after], noise), noise.degrees))
    if not any(variance for variance, _ in parts):
        return MeanDifference(first, second, 0.0, float(sum(map(len, sides)) - 2))
    return MeanDifference(first, second, *combined_error(parts))
