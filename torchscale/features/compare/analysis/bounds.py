"""Bounds of a change where other processes or low clocks slowed one side: between which ratios it
would lie without them.

Other processes make a launch slower, never faster, and by no more than they kept it from its cores.
So a side that was contended bounds what it would have measured alone, and often that decides.
Definitions in ``docs/method.md``.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import compress

from torchscale.analysis.stats.ratios import LogRatio
from torchscale.config.choices import Metric
from torchscale.features.compare.analysis.machine_speed import SpeedGap, speed_gap
from torchscale.schema.run.metric_key import MetricKey
from torchscale.schema.run.result_set import LaunchFigures
from torchscale.util.optional import complete

MOST_DELAY = 0.95
"""The largest usable delay, as a share of a launch. Beyond it hardly anything was left for the
ranks, and the bound says nothing."""
EQUAL_WORK = (1.06, 1.10)
"""The products and the copy of the fixed work took no longer than this against the median of
undisturbed launches, which themselves scatter by 1.03 and 1.07. Beside processes that compute from
their own caches they took up to 1.05 and 1.04; beside those that move memory one of the two took
longer each time (docs/tested-on.md)."""
SLOWDOWN = 0.10
"""Share by which the computation itself is slower beside processes that leave the fixed work as
fast as it was, where they had the core for half of the time or more, and in proportion below: 0.01
to 0.09 measured. A thread that comes back to its core finds its caches filled by others."""
HEAVY_SLOWDOWN = 0.6
"""Share by which the computation itself is slower beside processes that slow the fixed work, or
where that is not known: 0.06 to 0.60 measured."""
_BESIDE = 0.1
"""Share of ``HEAVY_SLOWDOWN``: what processes on other cores slow by the memory they move, without
any delay; 0.06 of 0.6 measured."""
_FULL_AT = 2.0
"""Times the delay: the whole slowdown at a delay of a half."""
MIN_QUIET_DEGREES = 2
"""Minimum number of degrees of freedom of a variance over undisturbed launches: 3 launches on one
side and 1 on the other."""
_BY_RATE = (Metric.THROUGHPUT, Metric.STEPS, Metric.COST)
"""Metrics in proportion to the time of a launch, so that a bound on the time bounds them."""


class Basis(str, Enum):
    """What a bound rests on; values are what files and tables show."""

    QUIET_LAUNCHES = "quiet launches"
    DELAY = "delay"
    DIRECTION = "direction"
    FIXED_WORK = "fixed work"


@dataclass(frozen=True)
class Bounds:
    """The least and the greatest ratio; ``None`` where nothing bounds that end."""

    low: LogRatio | None
    high: LogRatio | None
    basis: Basis


@dataclass(frozen=True)
class Values:
    """A metric's values of a side, one for each launch; those launches; and which of them were
    contended or throttled."""

    values: Sequence[float]
    launches: Sequence[LaunchFigures]
    disturbed: Sequence[bool]

    @property
    def quiet(self) -> list[float]:
        """The values of launches that nothing disturbed."""
        return list(compress(self.values, self._is_quiet))

    @property
    def quiet_launches(self) -> list[LaunchFigures]:
        """The launches that nothing disturbed."""
        return list(compress(self.launches, self._is_quiet))

    @property
    def _is_quiet(self) -> list[bool]:
        return [not disturbed for disturbed in self.disturbed]


RatioOf = Callable[[Sequence[float], Sequence[float]], LogRatio]
"""The ratio of the second side's values to the first one's, each with the launches of its side."""


def possible_bounds(
    key: MetricKey,
    before: Values,
    after: Values,
    ratio_of: RatioOf,
    *,
    same_processor: bool,
    same_machine: bool,
) -> list[Bounds]:
    """All that can be said, the surest first.

    Args:
        key: The metric.
        before, after: The sides' values.
        ratio_of: How a ratio and its interval come from values of all launches.
        same_processor: Whether both sides ran on the same kind of processor, so that their fixed
            work is comparable.
        same_machine: Whether they ran on one host, so that its speed at the time is no difference
            between them.
    """
    found = _found_bounds(key, before, after, ratio_of, same_processor=same_processor)
    possible = [one for one in found if one is not None]
    if not (same_processor and same_machine):
        return possible
    return [_widened(one, key.metric, _gap(one.basis, before, after)) for one in possible]


def _found_bounds(
    key: MetricKey, before: Values, after: Values, ratio_of: RatioOf, *, same_processor: bool
) -> list[Bounds | None]:
    """The bounds of a change on a machine that was equally fast on both sides; ``None`` for each
    that cannot be computed."""
    if not any(before.disturbed) and not any(after.disturbed):
        ratio = ratio_of(after.values, before.values)
        return [Bounds(ratio, ratio, Basis.FIXED_WORK)]
    delay = _by_delay(key, before, after, ratio_of, same_processor=same_processor)
    if delay is not None:
        return [_by_quiet_launches(before, after), delay]
    direction = _by_direction(key, before, after, ratio_of)
    return [_by_quiet_launches(before, after), direction]


def _gap(basis: Basis, before: Values, after: Values) -> SpeedGap | None:
    """The gap in machine speed between the launches that a bound rests on. What other processes did
    to the fixed work beyond what is usual is left out, since the slowdown has it already."""
    match basis:
        case Basis.QUIET_LAUNCHES:
            return speed_gap(before.quiet_launches, after.quiet_launches)
        case Basis.FIXED_WORK:
            return speed_gap(before.launches, after.launches)
    gap = speed_gap(before.launches, after.launches)
    if gap is None:
        return None
    return gap.limited(*EQUAL_WORK)


def _widened(bounds: Bounds, metric: Metric, gap: SpeedGap | None) -> Bounds:
    """The bounds, widened by what a difference in the speed of the machine itself may have made of
    the change."""
    if gap is None:
        return bounds
    less, more = gap.slower_before, gap.slower_after
    if not metric.higher_is_better:
        less, more = more, less
    return Bounds(_shifted(bounds.low, -less), _shifted(bounds.high, more), bounds.basis)


def _shifted(ratio: LogRatio | None, by: float) -> LogRatio | None:
    if ratio is None:
        return None
    return replace(ratio, log=ratio.log + by)


def _by_quiet_launches(before: Values, after: Values) -> Bounds | None:
    """The ratio of the launches that nothing disturbed, with one variance for both sides, since
    their conditions are equal; ``None`` where there are too few."""
    sides = [[math.log(value) for value in side.quiet] for side in (before, after)]
    degrees = sum(map(len, sides)) - 2
    if not all(sides) or degrees < MIN_QUIET_DEGREES:
        return None
    means = [statistics.fmean(side) for side in sides]
    squares = math.fsum(
        (value - mean) ** 2 for side, mean in zip(sides, means, strict=True) for value in side
    )
    error = math.sqrt(squares / degrees * math.fsum(1 / len(side) for side in sides))
    ratio = LogRatio(means[1] - means[0], error, float(degrees))
    return Bounds(ratio, ratio, Basis.QUIET_LAUNCHES)


def _by_delay(
    key: MetricKey, before: Values, after: Values, ratio_of: RatioOf, *, same_processor: bool
) -> Bounds | None:
    """From all launches as if each had been delayed by its least, to all by their most: others
    delay both sides in one way, so that nobody was hardly delayed while the others were by all that
    they may have been."""
    if key.metric not in _BY_RATE:
        return None
    usual = _usual_work((before, after)) if same_processor else None
    least = [_at_least(side) for side in (before, after)]
    most = [_at_most(side, usual) for side in (before, after)]
    if least[0] is None or least[1] is None:
        return None
    if most[0] is not None and most[1] is not None:
        ends = ratio_of(least[1], least[0]), ratio_of(most[1], most[0])
        return Bounds(min(ends, key=_logarithm), max(ends, key=_logarithm), Basis.DELAY)
    low = high = None
    if most[0] is not None:
        low = ratio_of(least[1], most[0])
    if most[1] is not None:
        high = ratio_of(most[1], least[0])
    if low is None and high is None:
        return None
    return Bounds(low, high, Basis.DELAY)


def _logarithm(ratio: LogRatio) -> float:
    return ratio.log


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


def _at_most(side: Values, usual: tuple[float, float] | None) -> list[float] | None:
    """Rates that the launches would have reached alone, at most."""
    is_usual = usual is not None and _is_usual(side, usual)
    rates = []
    for value, launch, disturbed in zip(side.values, side.launches, side.disturbed, strict=True):
        if not disturbed:
            rates.append(value)
            continue
        if launch.delay is None or launch.delay[1] > MOST_DELAY:
            return None
        rates.append(value / (1 - launch.delay[1]) * _slowdown(launch.delay[1], is_usual=is_usual))
    return rates


def _slowdown(delay: float, *, is_usual: bool) -> float:
    """How many times slower the computation itself may have been."""
    if is_usual:
        return 1 + SLOWDOWN * min(1.0, _FULL_AT * delay)
    return 1 + HEAVY_SLOWDOWN * min(1.0, _BESIDE + _FULL_AT * delay)


def _is_usual(side: Values, usual: tuple[float, float]) -> bool:
    """Whether the fixed work of a side's disturbed launches took no longer than usual. One answer
    for all of them: their median, since one launch in three is beyond a limit by chance."""
    works = [launch.fixed_work for launch in compress(side.launches, side.disturbed)]
    known = complete(works)
    if not known:
        return not works
    medians = (statistics.median(part) for part in zip(*known, strict=True))
    return all(
        seconds <= most * of for seconds, of, most in zip(medians, usual, EQUAL_WORK, strict=True)
    )


def _usual_work(sides: Sequence[Values]) -> tuple[float, float] | None:
    """The median of each part of the fixed work, over all launches that nothing disturbed."""
    known = [
        launch.fixed_work
        for side in sides
        for launch, disturbed in zip(side.launches, side.disturbed, strict=True)
        if launch.fixed_work is not None and not disturbed
    ]
    if not known:
        return None
    return statistics.median(products for products, _ in known), statistics.median(
        copies for _, copies in known
    )


def _by_direction(
    key: MetricKey, before: Values, after: Values, ratio_of: RatioOf
) -> Bounds | None:
    """One side alone was disturbed: alone it would have been at least as good."""
    disturbed = [any(side.disturbed) for side in (before, after)]
    if disturbed[0] == disturbed[1]:
        return None
    ratio = ratio_of(after.values, before.values)
    at_least = disturbed[1] == key.metric.higher_is_better
    return (
        Bounds(ratio, None, Basis.DIRECTION) if at_least else Bounds(None, ratio, Basis.DIRECTION)
    )
