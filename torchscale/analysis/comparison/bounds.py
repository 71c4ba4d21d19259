"""Between which ratios a change lies without what other processes, or low clocks, did to one side.

Other processes make a launch slower, never faster, and by no more than they kept it from its cores. So a side that was
contended bounds what it would have measured alone, and often that decides. Definitions in ``docs/method.md``.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from torchscale.analysis.stats.ratios import LogRatio
from torchscale.config.choices import Metric
from torchscale.schema.run.metric_key import MetricKey
from torchscale.schema.run.result_set import LaunchFigures

MOST_DELAY = 0.95
"""Of a launch. Beyond it hardly anything was left for the ranks, and the bound says nothing."""
EQUAL_WORK = 1.06
"""The fixed work between batches took no longer than this against the fastest launch: processes beside it that compute
from their own caches gave 0.98 to 1.05, those that move memory 1.05 to 1.8 (docs/tested-on.md)."""
SLOWDOWN = 1.10
"""Of the computation itself beside processes that leave the fixed work as fast as it was: 1.01 to 1.09 measured. A
thread that comes back to its core finds its caches filled by others."""
HEAVY_SLOWDOWN = 1.6
"""The same beside processes that slow the fixed work, or where that is not known: 1.06 to 1.60 measured."""
MIN_QUIET_DEGREES = 2
"""Of freedom of a variance over undisturbed launches: 3 launches on one side and 1 on the other."""
_BY_RATE = (Metric.THROUGHPUT, Metric.COST)
"""In proportion to the time of a launch, so that a bound on the time bounds them."""


class Basis(str, Enum):
    """What a bound rests on; values are what files and tables show."""

    QUIET_LAUNCHES = "quiet launches"
    DELAY = "delay"
    DIRECTION = "direction"


@dataclass(frozen=True)
class Bounds:
    """The least and the greatest ratio; ``None`` where nothing bounds that end."""

    low: LogRatio | None
    high: LogRatio | None
    basis: Basis


@dataclass(frozen=True)
class Values:
    """A metric's values of a side, one for each launch; those launches; and which of them were contended or
    throttled."""

    values: Sequence[float]
    launches: Sequence[LaunchFigures]
    disturbed: Sequence[bool]

    @property
    def quiet(self) -> list[float]:
        """Of launches that nothing disturbed."""
        return [value for value, disturbed in zip(self.values, self.disturbed, strict=True) if not disturbed]


RatioOf = Callable[[Sequence[float], Sequence[float]], LogRatio]
"""The ratio of the second side's values to the first one's, each with the launches of its side."""


def possible_bounds(
    key: MetricKey, before: Values, after: Values, ratio_of: RatioOf, *, same_processor: bool
) -> list[Bounds]:
    """All that can be said, the surest first.

    Args:
        key: The metric.
        before, after: The sides' values.
        ratio_of: How a ratio and its interval come from values of all launches.
        same_processor: Whether both sides ran on the same kind of processor, so that their fixed work is comparable.
    """
    quiet = _by_quiet_launches(before, after)
    surest = [] if quiet is None else [quiet]
    delay = _by_delay(key, before, after, ratio_of, same_processor=same_processor)
    direction = None if delay is not None else _by_direction(key, before, after, ratio_of)
    return [*surest, *(one for one in (delay, direction) if one is not None)]


def _by_quiet_launches(before: Values, after: Values) -> Bounds | None:
    """Of launches that nothing disturbed, with one variance for both sides, since their conditions are equal."""
    sides = [[math.log(value) for value in side.quiet] for side in (before, after)]
    degrees = sum(map(len, sides)) - 2
    if not all(sides) or degrees < MIN_QUIET_DEGREES:
        return None
    means = [statistics.fmean(side) for side in sides]
    squares = math.fsum((value - mean) ** 2 for side, mean in zip(sides, means, strict=True) for value in side)
    error = math.sqrt(squares / degrees * math.fsum(1 / len(side) for side in sides))
    ratio = LogRatio(means[1] - means[0], error, float(degrees))
    return Bounds(ratio, ratio, Basis.QUIET_LAUNCHES)


def _by_delay(
    key: MetricKey, before: Values, after: Values, ratio_of: RatioOf, *, same_processor: bool
) -> Bounds | None:
    if key.metric not in _BY_RATE:
        return None
    fastest = _fastest_work((before, after)) if same_processor else None
    least = [_at_least(side) for side in (before, after)]
    most = [_at_most(side, fastest) for side in (before, after)]
    if least[0] is None or least[1] is None:
        return None
    low = None if most[0] is None else ratio_of(least[1], most[0])
    high = None if most[1] is None else ratio_of(most[1], least[0])
    return None if low is None and high is None else Bounds(low, high, Basis.DELAY)


def _at_least(side: Values) -> list[float] | None:
    """Rates that the launches would have reached alone, at least."""
    rates = []
    for value, launch, disturbed in zip(side.values, side.launches, side.disturbed, strict=True):
        if not disturbed:
            rates.append(value)
            continue
        if launch.delay is None or launch.delay[0] > MOST_DELAY:
            return None
        rates.append(value / (1 - launch.delay[0]))
    return rates


def _at_most(side: Values, fastest: tuple[float, float] | None) -> list[float] | None:
    """The same, at most."""
    rates = []
    for value, launch, disturbed in zip(side.values, side.launches, side.disturbed, strict=True):
        if not disturbed:
            rates.append(value)
            continue
        if launch.delay is None or launch.delay[1] > MOST_DELAY:
            return None
        rates.append(value / (1 - launch.delay[1]) * _slowdown(launch, fastest))
    return rates


def _slowdown(launch: LaunchFigures, fastest: tuple[float, float] | None) -> float:
    if launch.fixed_work is None or fastest is None:
        return HEAVY_SLOWDOWN
    slowest = max(seconds / best for seconds, best in zip(launch.fixed_work, fastest, strict=True))
    return SLOWDOWN if slowest <= EQUAL_WORK else HEAVY_SLOWDOWN


def _fastest_work(sides: Sequence[Values]) -> tuple[float, float] | None:
    """Of each part of the fixed work, over all launches that nothing disturbed."""
    known = [
        launch.fixed_work
        for side in sides
        for launch, disturbed in zip(side.launches, side.disturbed, strict=True)
        if launch.fixed_work is not None and not disturbed
    ]
    if not known:
        return None
    return min(products for products, _ in known), min(copies for _, copies in known)


def _by_direction(key: MetricKey, before: Values, after: Values, ratio_of: RatioOf) -> Bounds | None:
    """One side alone was disturbed: alone it would have been at least as good."""
    disturbed = [any(side.disturbed) for side in (before, after)]
    if disturbed[0] == disturbed[1]:
        return None
    ratio = ratio_of(after.values, before.values)
    at_least = disturbed[1] == key.metric.higher_is_better
    return Bounds(ratio, None, Basis.DIRECTION) if at_least else Bounds(None, ratio, Basis.DIRECTION)
