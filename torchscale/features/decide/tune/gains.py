"""Gains of settings over others, with intervals. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from torchscale.analysis.stats.series import student_t_quantile

MARGIN = math.log(1.01)
"""A gain below 1 % would take many launches to verify."""
_ONE_SIDED = 0.95


class GainVerdict(str, Enum):
    """What the launches of a setting say of it."""

    OPEN = "open"
    SLOWER = "slower"
    """Than the start."""
    NO_GAIN = "no gain"
    """It gains less than :data:`MARGIN`."""
    FASTER = "faster"
    """Than the start."""


@dataclass(frozen=True)
class Gain:
    """The logarithm of a ratio of throughputs.

    Attributes:
        log: Logarithm of the ratio of means.
        error: Standard error.
        degrees: Degrees of freedom of the noise behind it.
        rounds: Launches of the setting that has fewer.
    """

    log: float
    error: float
    degrees: float
    rounds: int

    def bound(self, probability: float) -> float:
        """The value below which the true logarithm lies with this probability."""
        return (
            self.log + student_t_quantile(probability, self.degrees) * self.error
            if self.error
            else self.log
        )

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """The ratio's interval (not its logarithm's)."""
        tail = (1 - confidence) / 2
        return math.exp(self.bound(tail)), math.exp(self.bound(1 - tail))

    @property
    def ratio(self) -> float:
        """The ratio itself."""
        return math.exp(self.log)


def verdict_of(gain: Gain) -> GainVerdict:
    """Wrong in one of twenty: of many settings some are called wrongly, and the winner is
    verified."""
    if gain.bound(_ONE_SIDED) < 0:
        return GainVerdict.SLOWER
    if gain.bound(_ONE_SIDED) < MARGIN:
        return GainVerdict.NO_GAIN
    return GainVerdict.FASTER if gain.bound(1 - _ONE_SIDED) > 0 else GainVerdict.OPEN


def paired_gain(pairs: Sequence[tuple[float, float]]) -> Gain | None:
    """Gain from pairs of launches, given as logarithms ``(mine, theirs)`` of one after the other;
    ``None`` for fewer than two pairs. Its noise is that of the pairs alone."""
    if len(pairs) < 2:
        return None
    differences = [mine - theirs for mine, theirs in pairs]
    error = statistics.stdev(differences) / math.sqrt(len(pairs))
    return Gain(statistics.fmean(differences), error, len(pairs) - 1, len(pairs))


def smallest_visible(error: float, degrees: float) -> float:
    """The smallest gain (as a share) whose 95 % interval would have excluded none in four searches
    of five."""
    quantiles = student_t_quantile(0.975, degrees) + student_t_quantile(0.8, degrees)
    return math.expm1(quantiles * error)
