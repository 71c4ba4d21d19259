"""How late ranks are in a step, of its collectives on a device one by one.

A rank that is late at a collective is late again at the next one, unless all go on together from
the one before. Gradients are averaged under the backward pass: its lateness grows from bucket to
bucket, and what costs time is that at the end. So the collectives of a step are joined to *chains*,
and each chain counts once. A collective is linked to those before it where

- its lateness scatters from step to step as theirs does, or
- nobody waits in it, which says nothing, or
- it is *saturated*: the ranks that wait had queued it behind the one before. Its length is the time
  since then, the same on all of them, and how late the last rank is cannot be seen any more.

Of a chain the collective counts that is waited for most, of those up to the first saturated one in
which lateness grows no more. Where there is one, lateness is continued to the end of the chain: by
the line through those before, over the time at which hosts issue them.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]

LEAST_STEPS = 20
"""From which on links are told from others: the correlation of unrelated collectives is below 0.45
in 19 of 20 cases then, with two ranks. With fewer, only the collective with most waiting counts."""
_LINKED = 0.5
"""Share of the lateness at a collective that is there at a later one, from which on it is the same
lateness: it is 1 or 0 but for what else scatters."""
_LAGS = 3
"""Places by which the two may be apart: gathers and reductions of a layer take turns, and each has
its own lateness."""
_BLOCK = 32
_HALF_LIFE = 32
"""Steps that are learned from at once, and after which they count half: a rank that becomes slow
changes where ranks wait."""
_LOW = 0.05
"""Share of the longest waits of the step below which nobody waits."""
_TIED = ((0.05, 0.4), (0.01, 0.25))
"""Where ranks had queued a collective, those that wait differ by at most such a share of the wait,
and it takes at least such a share of the time since the one before. Layers scatter by some per
cent, and the lateness is a few per cent of them; and that time is only told from how hosts issue
them, and how many they are."""
_TIED_RANKS = 4
"""From which on several ranks wait that can be compared."""
_FULL = 0.5
"""The latter share where they cannot."""
_GROWTH = 0.5
"""Share of the growth before by which lateness goes on growing where it can be seen; where ranks had
queued a collective, it is the length of what another rank does in between."""
_LEAST_SPREAD = 0.05
"""Of the points of a line: from the first to the last, as a share of the time from the first to the
end, times their number less one. What some tens of steps scatter by adds less than a tenth to its
slope then."""
_LEAST_REACH = 0.1
"""Share of the step until a single point, for lateness to be continued from it."""
_HOSTS_SHARE = 0.8
"""Of the lateness: where the host of the last rank was so late, it was late from the beginning."""


class Chains:
    """Which collectives count; learned as steps come. They are told apart by their places among
    the calls that a group has in a step, for each number of them."""

    def __init__(self) -> None:
        self._learned: dict[tuple[int, int], _Learned] = {}

    def scales(self, group: int, lengths: Values, since: Values, period: Values) -> Values:
        """By how much the waits in each collective count; learns from these steps.

        Args:
            group: The process group.
            lengths: Of each step, rank and place; NaN where it is not known on all ranks.
            since: When the host called it, from the beginning of the rank's step on.
            period: Length of each step. All in one unit.

        Returns:
            Of each step and place; 0 for a collective whose waits are counted at another one.
        """
        steps, _, count = lengths.shape
        learned = self._learned.setdefault((group, count), _Learned(count))
        scales = np.zeros((steps, count))
        for begin in range(0, steps, _BLOCK):
            part = slice(begin, begin + _BLOCK)
            learned.learn(lengths[part], since[part], period[part])
            scales[part] = learned.scales()
        return scales


class _Learned:
    """Sums over the steps of a group that have so many collectives, the earlier ones forgotten."""

    def __init__(self, count: int) -> None:
        self._steps = np.zeros(count)
        self._sums = np.zeros((6, count))
        self._both, self._one = np.zeros((_LAGS, count)), np.zeros((_LAGS, count))
        self._latest: Values | None = None
        self._ranks = 0

    def learn(self, lengths: Values, since: Values, period: Values) -> None:
        """From further steps; arguments as for :meth:`Chains.scales`."""
        self._ranks = ranks = lengths.shape[1]
        known = ~np.isnan(lengths).any(axis=1)
        keep = 0.5 ** (len(lengths) / _HALF_LIFE)
        waits = np.sort(lengths - lengths.min(axis=1, keepdims=True), axis=1)
        middle, longest = waits[:, ranks // 2], waits[:, ranks - 1 - ranks // 8]
        late = np.take_along_axis(since, lengths.argmin(axis=1)[:, None], axis=1)[:, 0]
        new = np.stack(
            [
                middle,
                lengths.min(axis=1) + middle,
                longest - middle,
                since.mean(axis=1),
                late - np.median(since, axis=1),
                np.broadcast_to(period[:, None], known.shape),
            ]
        )
        self._steps = keep * self._steps + known.sum(axis=0)
        self._sums = keep * self._sums + np.where(known, new, 0.0).sum(axis=1)
        self._correlate(lengths, keep)

    def _correlate(self, lengths: Values, keep: float) -> None:
        if self._latest is not None:
            lengths = np.concatenate([self._latest[None], lengths])
        self._latest = lengths[-1]
        # A rank that is always late by as much says nothing: what changes from step to step does.
        change = np.diff(lengths.mean(axis=1, keepdims=True) - lengths, axis=0)
        is_known = ~np.isnan(change)
        change[~is_known] = 0.0
        self._both, self._one = keep * self._both, keep * self._one
        for lag in range(1, min(_LAGS, change.shape[2] - 1) + 1):
            before, after = change[:, :, :-lag], change[:, :, lag:]
            self._both[lag - 1, lag:] += (before * after).sum(axis=(0, 1))
            self._one[lag - 1, lag:] += (before**2 * is_known[:, :, lag:]).sum(axis=(0, 1))

    def scales(self) -> Values:
        """Of each place: by how much its waits count."""
        places = self._places()
        scales = np.zeros(len(places.wait))
        if self._steps.max(initial=0.0) < LEAST_STEPS:
            scales[int(places.wait.argmax())] = 1.0
            return scales
        heads = [*np.flatnonzero(~self._linked(places)).tolist(), len(scales)]
        for begin, end in itertools.pairwise(heads):
            chain = places.between(begin, end)
            if chain.wait.max() > 0:
                place = begin + chain.counted
                scales[place] = chain.lateness / places.wait[place]
        return scales

    def _places(self) -> _Places:
        wait, length, spread, elapsed, offset, period = self._sums / np.maximum(self._steps, 1e-9)
        elapsed = np.maximum.accumulate(elapsed)
        elapsed = elapsed / max(float(elapsed[-1]), 1e-9)
        low = wait <= _LOW * wait.max(initial=0.0)
        even = 1 / max(1, int((~low).sum()))
        gap = period * np.maximum(np.diff(elapsed, prepend=0.0), even)
        saturated = length >= _FULL * gap
        if self._ranks >= _TIED_RANKS:
            tied = [(spread < most * wait) & (length >= share * gap) for most, share in _TIED]
            saturated = np.logical_or.reduce(tied)
        saturated &= ~low
        saturated[0] = False
        return _Places(wait, elapsed, offset, low, saturated)

    def _linked(self, places: _Places) -> NDArray[np.bool_]:
        alike = (self._both >= _LINKED * self._one) & (self._one > 0)
        linked: NDArray[np.bool_] = alike.any(axis=0) | places.low | places.saturated
        linked[0] = False
        return linked


@dataclass(frozen=True)
class _Places:
    """Places of a step, means over steps.

    Attributes:
        wait: Of the middle rank.
        elapsed: When hosts issue it, as a share of the time until they issue the last one.
        offset: By how much later the host of the last rank called it.
        low: Whether nobody waits in it.
        saturated: Whether the ranks that wait had queued it.
        begins: Share of the time after which the first place's work began.
    """

    wait: Values
    elapsed: Values
    offset: Values
    low: NDArray[np.bool_]
    saturated: NDArray[np.bool_]
    begins: float = 0.0

    def between(self, begin: int, end: int) -> _Places:
        part = slice(begin, end)
        return _Places(
            self.wait[part],
            self.elapsed[part],
            self.offset[part],
            self.low[part],
            self.saturated[part],
            float(self.elapsed[begin - 1]) if begin else 0.0,
        )

    @cached_property
    def _visible(self) -> NDArray[np.int64]:
        """Places at the beginning in which lateness can be seen, up to the first saturated one in
        which it grows no more. Behind that one, ranks that had to wait for it may have lost time that
        no place shows."""
        visible: list[int] = []
        for place in np.flatnonzero(~self.low).tolist():
            if visible and self.saturated[place] and not self._grows(visible, place):
                break
            visible.append(place)
        return np.array(visible or [int(self.wait.argmax())])

    def _grows(self, before: Sequence[int], place: int) -> bool:
        """Whether lateness grows to a place by at least half as much as ``before``."""
        first, last = before[0], before[-1]
        work, wait = self.elapsed[last] - self.begins, self.wait[last]
        if last > first:
            work, wait = self.elapsed[last] - self.elapsed[first], wait - self.wait[first]
        expected = wait * (self.elapsed[place] - self.elapsed[last]) / max(work, 1e-9)
        return bool(self.wait[place] - self.wait[last] >= _GROWTH * expected > 0)

    @property
    def counted(self) -> int:
        """The place whose waits count."""
        return int(self._visible[self.wait[self._visible].argmax()])

    @property
    def lateness(self) -> float:
        """At the end of this chain."""
        late = float(self.wait[self.counted])
        if self.saturated[self._visible[-1] + 1 :].any():
            late = self._continued()
        return float(np.clip(late, self.wait.max(), self.wait.sum()))

    def _continued(self) -> float:
        """Lateness at the end by the line through what is seen; through the origin where there is
        one point only, whose host was not late."""
        work, wait = self.elapsed[self._visible], self.wait[self._visible]
        end = float(self.elapsed[-1])
        spread = (len(work) - 1) * (work[-1] - work[0])
        if spread > 0 and spread >= _LEAST_SPREAD * (end - work[0]):
            slope, start = np.polyfit(work, wait, 1)
            return float(start + max(slope, 0.0) * end)
        place = self.counted
        reach = float(self.elapsed[place]) - self.begins
        late = float(self.wait[place])
        if reach < _LEAST_REACH or self.offset[place] >= _HOSTS_SHARE * late:
            return late
        return late * (end - self.begins) / reach
