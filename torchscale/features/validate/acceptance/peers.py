"""Parts of one kind held against each other: which of them are slow for their fleet.

The slowest are left out one after the other (:mod:`torchscale.analysis.stats.peers`). The
probability that a fleet of equal parts accuses anybody is held at :data:`FAMILY_ERROR` by
Bonferroni's correction over all parts and figures.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import numpy as np

from torchscale.analysis.stats.peers import PeerLimit, low_peers, of_difference

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
FEW_NODES = 8
"""Fewer nodes say little of the spread of sound ones: it is assumed to be :data:`NODE_SPREAD`, or what
they show where that is more."""
MIN_NODES = 4
"""Of three, one that is slow and two that are not cannot be told from two that are slow."""
NODE_SPREAD = 0.02
"""Spread between sound nodes that is assumed, as for their links: cards of one name lie within some
8 % of each other, which is four of these."""
DISK_SPREAD = 0.05
"""The same of disks: how full and how worn they are differs too."""
FEW_DEFICIT = 0.10
"""What is less than this below a few others is not called low: it rests on an assumed spread."""


def peer_limit(levels: Sequence[float], tests: int) -> PeerLimit | None:
    """The limit for parts of one kind in one figure; ``None`` for fewer than :data:`MIN_PEERS`.

    Args:
        levels: Logarithm of each part's rate.
        tests: How many parts and figures are judged by their peers together.
    """
    if len(levels) < MIN_PEERS:
        return None
    least = -math.log1p(-MIN_DEFICIT)
    return low_peers(levels, FAMILY_ERROR / tests, least_gap=least, least_spread=LEAST_SPREAD)


def node_limit(levels: Sequence[float], tests: int, assumed: float) -> PeerLimit | None:
    """The limit for nodes of a fleet in one figure; ``None`` for fewer than :data:`MIN_NODES`. Of
    fewer than :data:`FEW_NODES` the slowest alone can be low.

    Args:
        levels: Logarithm of each node's rate.
        tests: How many nodes, parts and figures are judged together.
        assumed: Spread between sound nodes, where these are few.
    """
    if len(levels) >= FEW_NODES:
        return peer_limit(levels, tests)
    if len(levels) < MIN_NODES:
        return None
    values = np.asarray(levels, dtype=np.float64)
    slowest = int(np.argmin(values))
    others = np.delete(values, slowest)
    median = float(np.median(others))
    spread = max(assumed, float(others.std(ddof=1)))
    reach = few_reach(len(others), tests, spread)
    low = (slowest,) if values[slowest] < median - reach else ()
    return PeerLimit(median, spread, median - reach, low)


def few_reach(others: int, tests: int, spread: float) -> float:
    """How far below the median of ``others`` nodes, whose spread is known, one may lie: the normal
    distribution's quantile, and at least :data:`FEW_DEFICIT`."""
    quantile = statistics.NormalDist().inv_cdf(1 - FAMILY_ERROR / tests)
    return max(-math.log1p(-FEW_DEFICIT), quantile * of_difference(others) * spread)
