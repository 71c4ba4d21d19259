"""Environments whose launches fall into two clusters. Pure.

Where the noise of the others is known, by likelihood (:mod:`torchscale.features.bisect.states`).
Else launches are split where the two parts differ most, at least two on each side. The share of
their spread that is between the parts is compared with what normal noise of the same number of
launches reaches once in a thousand times, by simulation: the share depends on neither level nor
size of the noise; and the clusters lie far apart. That is asked at 6, 8, 12, 16, 24, … launches
alone, so that few looks add up. Besides, launches change between the clusters (a machine that was
slower for a while is no environment with two states), and other environments have fewer such
launches.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from torchscale.analysis.stats.levels import between_parts, rises, within_parts
from torchscale.features.bisect.states import weigh

FEWEST = 6
"""Launches from which on two clusters can be told from noise."""
FEWEST_WEIGHED = 8
"""The same, where the noise of the others is known: of fewer launches all shapes are alike."""
FALSE_ALARM = 0.001
"""Of a look at an environment with normal noise, where that of the others is not known."""
_DRAWS = 100_000
_LOOKS = frozenset(
    {size for power in range(3, 10) for size in (2**power, 3 * 2 ** (power - 1))} | {FEWEST}
)
_APART = 3.0
"""Standard deviations within clusters between the nearest launches of both: skewed noise, with a
few late launches, rarely has such a gap (of exponential noise in 1 to 2 % of environments)."""
_FEWEST_OF_STATE = 2
"""A single late launch is no state."""
_OUTLIER_APART = 4.0
"""The same for :func:`has_outlier`, which asks more often."""
_SAME_SHARE = 0.005
"""Probability by chance up to which an environment has more slow launches than the others: they are
compared after every launch."""


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


def two_modes(
    logs: Sequence[float], least_ratio: float, others: Sequence[Sequence[float]] = ()
) -> Modes | None:
    """The clusters of an environment's launches; ``None`` where they are one, or differ by less than
    ``least_ratio``.

    Args:
        logs: Logarithms of seconds of its launches, in their order.
        least_ratio: A share.
        others: Those of the other environments, whose noise is the measure of its own.
    """
    levels = _far_apart(logs) or _by_likelihood(logs, others)
    if levels is None or math.expm1(levels[1] - levels[0]) < least_ratio:
        return None
    is_slow = np.array(logs) > sum(levels) / 2
    if np.count_nonzero(is_slow[1:] != is_slow[:-1]) < 2:
        return None
    modes = split(logs, sum(levels) / 2)
    return modes if min(modes.slow, modes.launches - modes.slow) >= _FEWEST_OF_STATE else None


def split(logs: Sequence[float], threshold: float) -> Modes:
    """Launches on either side of a threshold, at least one on each."""
    values = np.array(logs)
    is_slow = values > threshold
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
    is_far = np.diff(ascending) >= _OUTLIER_APART * within_parts(ascending)
    return bool((is_far & (np.expm1(rises(ascending)) >= least_ratio)).any())


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


def _by_likelihood(
    logs: Sequence[float], others: Sequence[Sequence[float]]
) -> tuple[float, float] | None:
    """The levels of two states, where they are clear beside the others' noise."""
    if len(logs) < FEWEST_WEIGHED:
        return None
    weighed = weigh(logs, others)
    return (weighed.low, weighed.high) if weighed is not None and weighed.is_clear else None


def _far_apart(logs: Sequence[float]) -> tuple[float, float] | None:
    """The levels of two clusters with a gap between them, whatever the noise is."""
    count = _looked_at(len(logs))
    if count is None:
        return None
    ascending = np.sort(np.array(logs[:count]))
    shares = _shares(ascending[None, :])[0]
    if shares.max() <= _largest_share(count):
        return None
    place = int(shares.argmax()) + 2
    low, high = ascending[:place], ascending[place:]
    if high[0] - low[-1] < _APART * within_parts(ascending)[place - 1]:
        return None
    return float(low.mean()), float(high.mean())


def _shares(ascending: NDArray[np.float64]) -> NDArray[np.float64]:
    """For each row, the share of the spread between both parts, for every split that leaves two on
    each side."""
    total = ascending.var(axis=1, keepdims=True) * ascending.shape[1]
    return np.asarray(between_parts(ascending)[:, 1:-1] / np.maximum(total, 1e-300))


@lru_cache(maxsize=len(_LOOKS))
def _largest_share(count: int) -> float:
    """What normal noise exceeds with a probability of :data:`FALSE_ALARM`."""
    drawn = np.sort(np.random.default_rng(count).standard_normal((_DRAWS, count)), axis=1)
    return float(np.quantile(_shares(drawn).max(axis=1), 1 - FALSE_ALARM))
