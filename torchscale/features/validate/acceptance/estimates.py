"""A rate over rounds: its level, and whether the rounds fall into two groups. All on logarithms: a
slowdown is a factor."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from torchscale.analysis.stats.estimate import Estimate
from torchscale.analysis.stats.levels import Values, between_parts, rises, within_parts
from torchscale.analysis.stats.series import student_t_quantile

MIN_GAP = 0.05
"""Two groups of rounds closer than this are one figure with its noise: nothing is accused of less
either."""
_LEAST_OF_A_MODE = 2
"""A single round apart is a disturbance, not a second speed."""
_MOST_HALVINGS = 1000
"""Below the exponent of the least float."""
_LEAST_SPREAD = 0.005
"""Least standard deviation within a group, as between sound parts: a few rounds may be closer to each
other than their noise."""


@dataclass(frozen=True)
class Mode:
    """A group of rounds: the geometric mean of its rates, and which rounds it is."""

    rate: float
    rounds: tuple[int, ...]


def log_level(values: Sequence[float]) -> Estimate:
    """The logarithm of the level of positive rates, a value a round.

    Raises:
        ValueError: there is none, or one is not positive.
    """
    return Estimate.of_mean([math.log(value) for value in values])


def modes(values: Sequence[float | None], error: float) -> tuple[Mode, Mode] | None:
    """The two groups of rounds of a figure with two levels, the slower first; ``None`` where it has
    one. The place of a value is its round.

    Of all ways to cut the sorted values in two, the one with the largest t of the difference counts.
    A normal sample has a t of n − 2 degrees for each of its 2^(n−1) − 1 partitions, of either sign,
    so that a quantile corrected for that many is exceeded with a probability of at most ``error``.
    """
    known = sorted((math.log(value), it) for it, value in enumerate(values) if value is not None)
    count = len(known)
    if count < 2 * _LEAST_OF_A_MODE:
        return None
    logs = np.array([log for log, _ in known])
    inner = slice(_LEAST_OF_A_MODE - 1, count - _LEAST_OF_A_MODE)
    ratios = _ratios(logs)[inner]
    best = int(np.argmax(ratios))
    place = best + _LEAST_OF_A_MODE
    # of the lower tail: the upper one is 1 for a float from fifty rounds on
    chance = math.ldexp(error, -min(count, _MOST_HALVINGS))
    critical = -student_t_quantile(chance, count - 2)
    if rises(logs)[place - 1] < -math.log1p(-MIN_GAP) or not ratios[best] > critical:
        return None
    return _mode(known[:place]), _mode(known[place:])


def split(
    values: Sequence[float | None], slow: Collection[int], error: float
) -> tuple[Mode, Mode] | None:
    """The two groups of rounds that are known beforehand to differ in their conditions, the ones
    called ``slow`` first; ``None`` where these are not slower by :data:`MIN_GAP` and beyond chance.
    One comparison, so that it finds what :func:`modes`, which tries all, cannot be sure of."""
    known = [(math.log(value), it) for it, value in enumerate(values) if value is not None]
    low = [each for each in known if each[1] in slow]
    high = [each for each in known if each[1] not in slow]
    if min(len(low), len(high)) < _LEAST_OF_A_MODE:
        return None
    logs = np.array([log for log, _ in (*low, *high)])
    place = len(low) - 1
    critical = -student_t_quantile(error, len(known) - 2)
    if rises(logs)[place] < -math.log1p(-MIN_GAP) or not _ratios(logs)[place] > critical:
        return None
    return _mode(low), _mode(high)


def slowest(values: Sequence[float], share: float) -> list[float]:
    """The slowest ``share`` of the values, at least two of them where there are two."""
    count = max(_LEAST_OF_A_MODE, math.ceil(share * len(values)))
    return sorted(values)[:count]


def _ratios(logs: Values) -> Values:
    """Student's t of the difference of the means behind and before each cut, with a common
    variance."""
    return np.asarray(np.sqrt(between_parts(logs)) / np.maximum(within_parts(logs), _LEAST_SPREAD))


def _mode(values: list[tuple[float, int]]) -> Mode:
    mean = statistics.fmean(log for log, _ in values)
    return Mode(math.exp(mean), tuple(sorted(it for _, it in values)))
