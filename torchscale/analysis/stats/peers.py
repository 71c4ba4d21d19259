"""Which of several peers with equal work is slow for the others.

Each peer is held against the median of the others, sample by sample, so that what slows all of them
is nobody's. Two things decide, both corrected for the number of peers (Bonferroni): whether its own
samples tell the difference from chance (Student's t), and, of many peers, whether it lies beyond
the spread of the others. The slowest is compared with those and left out, one after the other
(Rosner 1983, generalized extreme studentized deviate), so that a slow peer neither widens the
spread that it is judged by nor hides another.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from torchscale.analysis.stats.estimate import Estimate
from torchscale.analysis.stats.series import is_steady, student_t_quantile

Values = NDArray[np.float64]
"""Peers are rows, samples are columns."""

FAMILY_ERROR = 0.05
"""Chance that any of equal peers is called slow."""
FEW_PEERS = 8
"""So many need no correction where a slow one is slow in every quarter of the samples: of equal
ones with normal noise two are called that in 1.1 % of cases, and eight in 4 %. They say little of
the spread of sound ones, too."""
_SINGLE_ERROR = 0.025
"""One-sided: the 95 % interval excludes none."""
_ROUNDED = 1 - 1e-9
"""Sums in another order differ by less."""


@dataclass(frozen=True)
class SlowPeer:
    """A peer that is slower than the others by more than chance explains.

    Attributes:
        row: Its row.
        mine: Its mean.
        others: The mean over the samples of the others' median.
        samples: By how much it exceeds that.
    """

    row: int
    mine: float
    others: float
    samples: Values

    @cached_property
    def excess(self) -> Estimate:
        """By how much it exceeds the others, on average."""
        return Estimate.of_mean(self.samples.tolist())

    @property
    def is_steady(self) -> bool:
        """Whether it exceeds them in every quarter of the samples."""
        return is_steady(self.samples)


def outliers_among_peers(
    values: Values, least: float = 0.0, tests: int | None = None
) -> list[SlowPeer]:
    """The peers that are slower than the others, the slowest first; of fewer than two samples none
    is known to be.

    Args:
        values: A row for each peer, and a column for each sample; small where it is fast.
        least: Share of the others' from which on an excess counts.
        tests: How many peers are judged together, where these are only some of them.
    """
    count, length = values.shape
    if count < 2 or length < 2:
        return []
    if _are_even(values, least):
        return []
    others = medians_of_others(values)
    excess, typical = values - others, others.mean(axis=1)
    means, errors = excess.mean(axis=1), excess.std(axis=1, ddof=1) / math.sqrt(length)
    tests = tests or count
    error = FAMILY_ERROR / tests if tests > FEW_PEERS else _SINGLE_ERROR
    slow = means > student_t_quantile(1 - error, length - 1) * errors
    slow &= means >= least * typical
    if count > FEW_PEERS and slow.any():
        low = low_peers(-values.mean(axis=1), FAMILY_ERROR / tests).low
        slow &= np.isin(np.arange(count), low)
    return [
        SlowPeer(row, float(values[row].mean()), float(typical[row]), excess[row])
        for row in np.argsort(-means, kind="stable").tolist()
        if slow[row]
    ]


def _are_even(values: Values, least: float) -> bool:
    """Whether no peer can exceed the others by this share of them, since the slowest does not
    exceed the fastest of each sample by it: a fifth of the time of a judgement, and most peers are
    even."""
    fastest = values.min(axis=0).mean()
    return bool(values.mean(axis=1).max() - fastest < _ROUNDED * least * fastest)


@dataclass(frozen=True)
class PeerLimit:
    """What peers are held against.

    Attributes:
        median, spread: Of those that are not low: the middle and the standard deviation.
        limit: Below it a peer is low.
        low: Rows of the low ones, the farthest first.
    """

    median: float
    spread: float
    limit: float
    low: tuple[int, ...]


def low_peers(
    levels: Sequence[float] | Values,
    error: float,
    *,
    least_gap: float = 0.0,
    least_spread: float = 0.0,
) -> PeerLimit:
    """The peers whose level, one for each of three or more, lies below those of the others.

    Args:
        levels: Small where a peer is slow.
        error: Chance that one of equal peers is called low, over the number of tests.
        least_gap: What lies less than this below the median is not low.
        least_spread: Of sound peers, which a few may be closer than by chance.
    """
    values = np.asarray(levels, dtype=np.float64)
    order = np.argsort(values)
    # a third may be low: with more of them it cannot be told who is not
    most = (len(values) - 1) // 3
    # no peer is compared with a higher median than that of the others when a third is left out
    enough = float(np.median(values[order[most:]])) - least_gap
    most = min(most, int((values < enough).sum()))

    def held_against(others: Values, low: tuple[int, ...] = ()) -> PeerLimit:
        median, spread = float(np.median(others)), max(least_spread, float(others.std(ddof=1)))
        gap = max(least_gap, reach(len(others), error) * spread)
        return PeerLimit(median, spread, median - gap, low)

    count = 0
    for place in range(most):
        if values[order[place]] < held_against(values[order[place + 1 :]]).limit:
            count = place + 1
    return held_against(values[order[count:]], tuple(order[:count].tolist()))


def reach(others: int, error: float) -> float:
    """How many spreads a peer may lie below the median of ``others``: Student's quantile, with the
    error of the median."""
    return student_t_quantile(1 - error, others - 1) * of_difference(others)


def of_difference(others: int) -> float:
    """Spreads in the difference of a peer from the median of ``others``, which has an error too:
    π/2 times the variance of a mean."""
    return math.sqrt(1 + math.pi / 2 / others)


def medians_of_others(values: Values) -> Values:
    """Median over all rows but one, for each row and sample; from one sort of each sample.

    Args:
        values: Two rows or more.
    """
    places = np.argsort(np.argsort(values, axis=0), axis=0)
    ordered = np.sort(values, axis=0)
    samples = np.arange(values.shape[1])
    # Those in the middle of the others; each place from the row's own on is one further in the
    # order of all.
    lower, upper = (
        ordered[place + (places <= place), samples]
        for place in ((len(values) - 2) // 2, (len(values) - 1) // 2)
    )
    return np.asarray((lower + upper) / 2)
