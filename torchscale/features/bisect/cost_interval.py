"""Intervals of a cost from its likelihood at points, and these points."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
_FARTHEST = math.log(20)
"""Largest ratio of two environments that is told from larger ones."""
_COST_SCALE = 0.1
"""A tenth: half of the costs are expected to be less (Cauchy)."""


@dataclass(frozen=True)
class LogInterval:
    """An interval of the logarithm of a ratio, which holds together with all others."""

    log: float
    low: float
    high: float

    @property
    def ratio(self) -> float:
        """The ratio minus 1."""
        return math.expm1(self.log)

    @property
    def interval(self) -> tuple[float, float]:
        """The ratio minus 1, lowest and highest."""
        return math.expm1(self.low), math.expm1(self.high)


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


def interval_above(costs: Array, logs: Array, bound: float) -> LogInterval:
    """The costs whose likelihood is above the bound; ends between points are interpolated."""
    best = int(logs.argmax())
    inside = np.flatnonzero(logs > bound)
    if not len(inside):
        return LogInterval(float(costs[best]), float(costs[best]), float(costs[best]))
    low, high = int(inside[0]), int(inside[-1])
    ends = [float(costs[low]), float(costs[high])]
    if low > 0:
        ends[0] = _crossing(costs, logs, low - 1, low, bound)
    if high < len(costs) - 1:
        ends[1] = _crossing(costs, logs, high + 1, high, bound)
    return LogInterval(_peak(costs, logs, best), *ends)


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
