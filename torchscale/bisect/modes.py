"""Environments whose launches fall into two clusters. Pure.

Launches are split where the two parts differ most, at least two on each side. The share of their
spread that is between the parts is compared with what normal noise of the same number of launches
reaches once in a thousand times, by simulation: the share depends on neither level nor size of the
noise. The question is asked at 6, 8, 12, 16, 24, … launches alone, so that few looks add up. Besides,
the clusters lie far apart, launches change between them (a machine that was slower for a while is no
environment with two states), and other environments have fewer such launches.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

FEWEST = 6
"""Launches from which on two clusters can be told from noise."""
FALSE_ALARM = 0.001
"""Of a look at an environment with normal noise."""
_DRAWS = 100_000
_LOOKS = frozenset(
    {size for power in range(3, 10) for size in (2**power, 3 * 2 ** (power - 1))} | {FEWEST}
)
_APART = 3.0
"""Standard deviations within clusters between the nearest launches of both: skewed noise, with a
few late launches, rarely has such a gap (of exponential noise in 1 to 2 % of environments)."""
_OUTLIER_APART = 4.0
"""The same for :func:`has_outlier`, which asks more often."""
_SAME_SHARE = 0.02
"""Probability by chance up to which an environment has more slow launches than the others."""


@dataclass(frozen=True)
class Modes:
    """Two clusters of logarithms of seconds.

    Attributes:
        low, high: Means.
        slow: Launches of the high one.
        launches: Launches of both.
        threshold: Halfway.
    """

    low: float
    high: float
    slow: int
    launches: int

    @property
    def ratio(self) -> float:
        """How much longer a slow launch takes, as a share."""
        return math.expm1(self.high - self.low)

    @property
    def threshold(self) -> float:
        """Halfway between both."""
        return (self.low + self.high) / 2


def two_modes(logs: Sequence[float], least_ratio: float) -> Modes | None:
    """The clusters of an environment's launches, in their order; ``None`` where they are one, or
    differ by less than ``least_ratio`` (a share)."""
    count = _looked_at(len(logs))
    if count is None:
        return None
    values = np.array(logs)
    ascending = np.sort(values[:count])
    place = int(_shares(ascending[None, :])[0].argmax()) + 2
    if _shares(ascending[None, :])[0].max() <= _largest_share(count):
        return None
    low, high = ascending[:place], ascending[place:]
    within = math.sqrt((low.var() * len(low) + high.var() * len(high)) / (count - 2))
    apart = float(high[0] - low[-1])
    threshold = (float(low.mean()) + float(high.mean())) / 2
    if apart < _APART * within or math.expm1(high.mean() - low.mean()) < least_ratio:
        return None
    is_slow = values > threshold
    if np.count_nonzero(is_slow[1:] != is_slow[:-1]) < 2:
        return None
    return Modes(
        float(values[~is_slow].mean()),
        float(values[is_slow].mean()),
        int(is_slow.sum()),
        len(values),
    )


def has_outlier(logs: Sequence[float], least_ratio: float) -> bool:
    """Whether one launch, or some that are like each other, lie far from the others: too few for
    :func:`two_modes`, and enough to ask for more launches."""
    ascending = np.sort(np.array(logs))
    for place in range(1, len(ascending)):
        low, high = ascending[:place], ascending[place:]
        within = math.sqrt((low.var() * len(low) + high.var() * len(high)) / (len(ascending) - 2))
        is_far = high[0] - low[-1] >= _OUTLIER_APART * within
        if is_far and math.expm1(high.mean() - low.mean()) >= least_ratio:
            return True
    return False


def is_of_machine(modes: Modes, others: Sequence[Sequence[float]]) -> bool:
    """Whether the launches of other environments are as often slow by as much: then it is the
    machine that has two states. Fisher's exact test, one-sided."""
    half = (modes.high - modes.low) / 2
    slow = sum(log > float(np.median(logs)) + half for logs in others for log in logs)
    count = sum(map(len, others))
    every, all_slow = modes.launches + count, modes.slow + slow
    ways = sum(
        math.comb(modes.launches, mine) * math.comb(count, all_slow - mine)
        for mine in range(modes.slow, min(modes.launches, all_slow) + 1)
    )
    return ways / math.comb(every, all_slow) > _SAME_SHARE


def _looked_at(count: int) -> int | None:
    """The largest number of launches up to ``count`` at which is looked."""
    return max((size for size in _LOOKS if size <= count), default=None)


def _shares(ascending: NDArray[np.float64]) -> NDArray[np.float64]:
    """For each row, the share of the spread between both parts, for every split that leaves two on
    each side."""
    count = ascending.shape[1]
    centered = ascending - ascending.mean(axis=1, keepdims=True)
    total = (centered**2).sum(axis=1, keepdims=True)
    below = np.arange(2, count - 1)
    sums = centered.cumsum(axis=1)[:, 1 : count - 2]
    between = sums**2 * (1 / below + 1 / (count - below))
    return np.asarray(between / np.maximum(total, 1e-300), dtype=np.float64)


@lru_cache(maxsize=len(_LOOKS))
def _largest_share(count: int) -> float:
    """What normal noise exceeds with a probability of :data:`FALSE_ALARM`."""
    drawn = np.sort(np.random.default_rng(count).standard_normal((_DRAWS, count)), axis=1)
    return float(np.quantile(_shares(drawn).max(axis=1), 1 - FALSE_ALARM))
