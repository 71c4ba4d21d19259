"""Parts of one kind held against each other: which of them are slow for their fleet.

The slowest is compared with the median and the spread of the others, one after the other is left
out (Rosner 1983, generalized extreme studentized deviate, for the low side), so that a slow part
neither widens the spread that it is judged by nor hides another. The probability that a fleet of
equal parts accuses anybody is held at :data:`FAMILY_ERROR` by Bonferroni's correction over all parts
and figures.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from torchscale.analysis.stats.series import student_t_quantile

FAMILY_ERROR = 0.002
"""Probability that an acceptance of sound parts accuses one of them, for each way to do so: against
a baseline, the parts of a node, the nodes of a fleet, the devices of a fleet, and two groups of
rounds. The five together stay below 1 %."""
MIN_PEERS = 5
"""The fewest parts that are held against each other: of four, three tell of their spread, and a
quantile with two degrees of freedom corrected for a dozen figures is beyond any slowdown."""
LEAST_SPREAD = 0.005
"""Least spread between sound parts (standard deviation of the logarithm): a few parts may be closer
to each other by chance than parts of their kind are."""
MIN_DEFICIT = 0.03
"""What is less than this below its peers is never called low, however equal they are: sound cards of
one name differ by that and more."""


@dataclass(frozen=True)
class PeerLimit:
    """What a fleet's parts are held against, as logarithms of rates.

    Attributes:
        median: Of the parts that are not low.
        spread: Standard deviation of those.
        limit: Below it a part is low.
        parts: How many there are, the low ones with them.
        low: Their places.
    """

    median: float
    spread: float
    limit: float
    parts: int
    low: tuple[int, ...]


def peer_limit(levels: Sequence[float], tests: int) -> PeerLimit | None:
    """The limit for parts of one kind in one figure; ``None`` for fewer than :data:`MIN_PEERS`.

    Args:
        levels: Logarithm of each part's rate.
        tests: How many parts and figures are judged by their peers together.
    """
    values = np.asarray(levels, dtype=np.float64)
    count = len(values)
    if count < MIN_PEERS:
        return None
    order = np.argsort(values)
    # a third may be low: with more of them it cannot be told who is not
    most = (count - 1) // 3
    # no part is compared with a higher median than that of the others when a third is left out
    enough = float(np.median(values[order[most:]])) + math.log1p(-MIN_DEFICIT)
    most = min(most, int(np.searchsorted(values[order], enough)))
    low = 0
    for place in range(most):
        if _is_low(values[order[place]], values[order[place + 1 :]], tests):
            low = place + 1
    kept = values[order[low:]]
    median, spread = float(np.median(kept)), _spread(kept)
    limit = median - max(-math.log1p(-MIN_DEFICIT), width(len(kept), tests) * spread)
    return PeerLimit(median, spread, limit, count, tuple(int(at) for at in order[:low]))


def _is_low(value: float, others: np.ndarray[tuple[int], np.dtype[np.float64]], tests: int) -> bool:
    below = float(np.median(others)) - value
    return below > max(-math.log1p(-MIN_DEFICIT), width(len(others), tests) * _spread(others))


def _spread(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
    return max(LEAST_SPREAD, float(values.std(ddof=1)))


def width(others: int, tests: int) -> float:
    """How many spreads a part may lie below the centre of ``others`` parts: Student's quantile, with
    the error of the centre, of which a median has π/2 times that of a mean."""
    quantile = student_t_quantile(1 - FAMILY_ERROR / tests, others - 1)
    return quantile * math.sqrt(1 + math.pi / 2 / others)
