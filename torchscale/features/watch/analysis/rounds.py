"""Steps of a program without an optimizer of torch: rounds of the collectives that it repeats."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from torchscale.analysis.exchanges.events import Calls, Times

_LEAST_CALLS = 60
"""Before which no period is looked for."""
_LONGEST = 2_000
"""Collectives of a round."""
_ROUNDS = 8
"""Times that a sequence of collectives repeats, to be called a period."""
_TAIL = 10
"""Last collectives that are not looked at, and one of so many: a program ends with others."""
_NEARLY = 0.9
_LEAST_EXPLAINED = 0.2
"""Below it, the times between calls are noise, and the shortest sequence is as good as any."""
_CLIPPED = 0.99
"""Quantile to which the times between calls are cut: one pause is no pattern."""


@dataclass(frozen=True)
class RoundStart:
    """What begins a round: every so manieth collective of a group.

    Attributes:
        group: Of the collective.
        sequence: Number of one of them in the group.
        per_round: Collectives of the group in a round.
    """

    group: int
    sequence: int
    per_round: int

    def edges(self, calls: Calls) -> Times:
        """When a rank's rounds began."""
        chosen = (calls.group == self.group) & (
            (calls.sequence - self.sequence) % self.per_round == 0
        )
        return np.asarray(calls.time[chosen])


def find_round(calls: Calls) -> RoundStart | None:
    """The sequence of collectives that a rank repeats; ``None`` where there is none.

    The shortest one may be a layer and not a step. Of its multiples, that one is taken whose places
    explain the time between calls nearly as well as any: a step has a pause for its forward pass.
    """
    count = len(calls)
    if count < _LEAST_CALLS:
        return None
    calls = calls.only(np.arange(count) < count - max(_TAIL, count // _TAIL))
    count = len(calls)
    kinds = np.stack([calls.group, calls.what], axis=1)
    longest = min(_LONGEST, count // _ROUNDS)
    shortest = next((n for n in range(1, longest + 1) if _repeats(kinds, n)), None)
    if shortest is None:
        return None
    gaps = np.diff(calls.time).astype(np.float64)
    gaps = np.minimum(gaps, np.quantile(gaps, _CLIPPED))
    periods = range(shortest, longest + 1, shortest)
    explained = [_explained(gaps, period) for period in periods]
    best = max(explained)
    period = next(
        period
        for period, share in zip(periods, explained, strict=True)
        if best < _LEAST_EXPLAINED or share >= _NEARLY * best
    )
    start = count - _ROUNDS * period
    group = int(calls.group[start])
    inside = calls.group[start : start + period] == group
    return RoundStart(group, int(calls.sequence[start]), int(inside.sum()))


def _repeats(kinds: NDArray[np.int64], period: int) -> bool:
    """Whether the last rounds are equal, the last half of all collectives at least."""
    length = max(_ROUNDS * period, len(kinds) // 2)
    last = kinds[-length:]
    return bool((last[period:] == last[:-period]).all())


def _explained(gaps: NDArray[np.float64], period: int) -> float:
    """Share of the variance of the times between calls that their place in a round explains, less
    what as many places explain by chance."""
    whole = len(gaps) // period * period
    folded = gaps[-whole:].reshape(-1, period)
    total = float(folded.var())
    if total <= 0 or len(folded) < 2:
        return 0.0
    by_chance = 1 / len(folded)
    return float(folded.mean(axis=0).var()) / total - by_chance
