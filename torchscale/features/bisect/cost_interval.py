"""Intervals of a cost from its likelihood at points, and these points."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from torchscale.analysis.stats.estimate import Estimate

Array = NDArray[np.float64]
_FARTHEST = math.log(20)
"""Largest ratio of two environments that is told from larger ones."""
_COST_SCALE = 0.1
"""A tenth: half of the costs are expected to be less (Cauchy)."""


@lru_cache(maxsize=16)
def cost_points(points: int, least: float) -> tuple[Array, Array]:
    """Costs either side of none, at least ``least``, closer to each other near none; and the share
    of each beforehand."""
    reach = math.asinh(_FARTHEST / _COST_SCALE)
    costs = _COST_SCALE * np.sinh(np.linspace(-reach, reach, points))
    costs = costs[np.abs(costs) >= least]
    # Cauchy's density times the distance between points, which is that of the hyperbolic sine.
    density = 1 / np.sqrt(1 + (costs / _COST_SCALE) ** 2)
    return costs, density / density.sum()


def interval_above(costs: Array, logs: Array, bound: float, launches: int) -> Estimate:
    """The costs whose likelihood is above the bound, as the ratio minus 1; ends between points are
    interpolated. The interval holds together with all others."""
    best = int(logs.argmax())
    inside = np.flatnonzero(logs > bound)
    if not len(inside):
        only = math.expm1(float(costs[best]))
        return Estimate(only, only, only, launches)
    low, high = int(inside[0]), int(inside[-1])
    least, most = float(costs[low]), float(costs[high])
    if low > 0:
        least = _crossing(costs, logs, low - 1, low, bound)
    if high < len(costs) - 1:
        most = _crossing(costs, logs, high + 1, high, bound)
    return Estimate(_peak(costs, logs, best), least, most, launches).through(math.expm1)


def _crossing(costs: Array, logs: Array, outside: int, inside: int, bound: float) -> float:
    share = (bound - logs[outside]) / (logs[inside] - logs[outside])
    return float(costs[outside] + share * (costs[inside] - costs[outside]))


def _peak(costs: Array, logs: Array, best: int) -> float:
    """The most likely cost: the top of the parabola through the best point and its neighbors."""
    if not 0 < best < len(costs) - 1:
        return float(costs[best])
    near = slice(best - 1, best + 2)
    square, slope, _ = np.polyfit(costs[near] - costs[best], logs[near] - logs[best], 2)
    if square >= 0:
        return float(costs[best])
    return float(costs[best] - slope / (2 * square))
