"""Finds a period in a series of steps: values that are high in every so manieth of them.

The series is folded at each candidate period, and the places of the fold are compared by the ranks
of their values (normal scores, van der Waerden 1952), so that no outlier and no distribution of the
noise decides. All periods and places are judged together (Bonferroni). What comes at nearly equal
distances, such as an epoch of 62.5 batches, has no place in a fold; its distances tell.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from torchscale.analysis.stats.levels import scatter

Values = NDArray[np.float64]

LONGEST = 500
"""Steps of the longest period that is looked for."""
MIN_EVENTS = 4
"""Times that something must come back, to be called periodic: three equal distances."""
_FALSE_ALARMS = 0.01
"""Chance that any place of any period of a series without one is called high."""
_HIT_SHARE = 0.7
"""Share of the high places' values that lie nearer to the high level than to the other one. It
holds for a level that the noise does not reach, and keeps two chance outliers from making a
period."""
_NEARLY = 0.9
"""A shorter period is taken where it explains nearly as much as the best one: what comes back every
5 steps comes back every 10 as well."""
_SHORTER = 0.6
"""Share of an exact period below which a distance is half of it."""
_LEAST_SPACED = 20
"""Distances below this lie within a step of each other by chance too often; folds find them."""
_REGULAR_SPREAD = 0.1
"""Share of the typical distance by which a distance may differ, at least one step."""
_EVENT_SHARE = 0.5
"""Share of the largest excess from which on a value is an event beside it."""
_EVENT_DEVIATIONS = 6.0
"""Beyond which no noise of that width reaches a value."""


@dataclass(frozen=True)
class Period:
    """What comes back in a series.

    Attributes:
        steps: From one time to the next.
        high: Which values are high.
        excess: By how much these exceed the others, in the unit of the series: difference of the
            medians.
        is_exact: Whether it comes back in exactly so many steps.
    """

    steps: int
    high: NDArray[np.bool_]
    excess: float
    is_exact: bool = True

    @property
    def count(self) -> int:
        """How often it came."""
        starts = self.high[1:] & ~self.high[:-1]
        return int(starts.sum()) + int(self.high[0])

    @property
    def mean(self) -> float:
        """What it adds to the mean of the series."""
        return self.excess * float(self.high.mean())


def find_period(values: Values, *, longest: int = LONGEST) -> Period | None:
    """The period of a series; ``None`` where it has none.

    Args:
        values: One for each step, without gaps.
        longest: Period that is looked for at most.
    """
    exact, spaced = _folded(values, longest), _spaced(values, longest)
    if exact is None or spaced is None:
        return exact or spaced
    # What comes every 62.5 steps is at one place of 125 steps, and as often beside it.
    return spaced if spaced.steps <= _SHORTER * exact.steps else exact


def latest_period(values: Values) -> Period | None:
    """The period of a series, or of its later part where it began within the series."""
    for begin in (0, len(values) // 2, len(values) * 3 // 4):
        period = find_period(values[begin:])
        if period is not None and period.is_exact:
            return _from_its_first_time(values, period, begin)
        if period is not None and not begin:
            return period
    return None


def _from_its_first_time(values: Values, period: Period, begin: int) -> Period:
    """The times of an exact period, found from ``begin`` on, over the whole series: back to where
    two in a row are missing."""
    low = float(np.median(values[begin:][~period.high]))
    is_place = np.resize(np.roll(period.high[: period.steps], begin % period.steps), len(values))
    places = np.flatnonzero(is_place)
    hit = values[places] > low + period.excess / 2
    missing = ~hit & ~np.append(hit[1:], True)
    first = int(np.flatnonzero(missing)[-1]) + 2 if missing.any() else int(hit.argmax())
    high = np.zeros(len(values), np.bool_)
    high[places[first:]] = True
    return replace(period, high=high)


def _folded(values: Values, longest: int) -> Period | None:
    """By exact multiples of a number of steps."""
    count = len(values)
    longest = min(longest, count // MIN_EVENTS)
    if longest < 2:
        return None
    scores = _normal_scores(values)
    limit = _limit(longest)
    best: list[tuple[float, int]] = []
    for steps in range(2, longest + 1):
        heights = _heights(scores, steps)
        high = heights >= limit
        if high.any() and not high.all():
            best.append((_explained(scores, high), steps))
    if not best:
        return None
    most = max(share for share, _ in best)
    for share, steps in best:
        if share >= _NEARLY * most:
            period = _at(values, steps, _heights(scores, steps) >= limit)
            if period is not None:
                return period
    return None


def _normal_scores(values: Values) -> Values:
    """Ranks as quantiles of the normal distribution; equal values get their mean."""
    from scipy.special import ndtri  # noqa: PLC0415 - 0.2 s to import

    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    middle = (ends - counts / 2) / len(values)
    scores = np.asarray(ndtri(middle))[place]
    spread = float(scores.std())
    return np.asarray(scores / spread) if spread > 0 else np.zeros(len(values))


@lru_cache(maxsize=64)
def _limit(longest: int) -> float:
    """The height that a place of all periods up to ``longest`` passes by chance rarely."""
    from scipy.special import ndtri  # noqa: PLC0415 - 0.2 s to import

    places = longest * (longest + 1) / 2 - 1
    return float(-ndtri(_FALSE_ALARMS / places))


def _heights(scores: Values, steps: int) -> Values:
    """Mean of each place of a fold, in units of its standard error."""
    sizes = np.full(steps, len(scores) // steps) + (np.arange(steps) < len(scores) % steps)
    padded = np.pad(scores, (0, -len(scores) % steps)).reshape(-1, steps)
    return np.asarray(padded.sum(axis=0) / np.sqrt(sizes))


def _explained(scores: Values, high: NDArray[np.bool_]) -> float:
    """Share of the variance that lies between the high places and the others."""
    chosen = np.resize(high, len(scores))
    share = float(chosen.mean())
    between = float(scores[chosen].mean() - scores[~chosen].mean())
    return share * (1 - share) * between**2


def _at(values: Values, steps: int, high: NDArray[np.bool_]) -> Period | None:
    """The period with these high places of a fold; ``None`` where too few of their values are
    high."""
    chosen = np.resize(high, len(values))
    low = float(np.median(values[~chosen]))
    excess = float(np.median(values[chosen])) - low
    hits = float((values[chosen] > low + excess / 2).mean())
    if excess <= 0 or hits < _HIT_SHARE:
        return None
    return Period(steps, chosen, excess)


def _spaced(values: Values, longest: int) -> Period | None:
    """By the distances between its largest values."""
    if len(values) < 2 * MIN_EVENTS:
        return None
    typical = float(np.median(values))
    beyond = values - typical
    floor = max(
        _EVENT_DEVIATIONS * float(scatter(beyond)),
        _EVENT_SHARE * float(np.sort(beyond)[-MIN_EVENTS]),
    )
    high = beyond > floor
    if not high.any():
        return None
    starts = np.flatnonzero(high & ~np.concatenate([[False], high[:-1]]))
    steps = event_period(starts.tolist())
    if steps is None or not _LEAST_SPACED <= steps <= longest:
        return None
    return Period(steps, high, float(np.median(beyond[high])), is_exact=False)


def event_period(places: Sequence[int]) -> int | None:
    """The typical distance of events, where most distances are nearly that, or a multiple of it
    where one was missed.

    Args:
        places: Numbers of the steps in which they were, ascending.
    """
    if len(places) < MIN_EVENTS:
        return None
    distances = np.diff(places)
    typical = float(np.median(distances))
    if typical < 2:
        return None
    multiple = np.maximum(1, np.round(distances / typical))
    near = np.abs(distances - multiple * typical) <= np.maximum(1.0, _REGULAR_SPREAD * typical)
    single = near & (multiple == 1)
    if near.mean() < _HIT_SHARE or single.mean() < 0.5:
        return None
    return round(float(distances[single].mean()))
