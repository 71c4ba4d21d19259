"""What a rank of a watched job noted, in arrays."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from torchscale.analysis.stats.intervals import IntervalSet

Times = NDArray[np.int64]
"""Nanoseconds since the epoch, on the clock of the rank's host."""
NO_LENGTH = -1
"""In place of a length that is not known."""
_KIND_BITS, _SHIFT = 5, 8


class MomentKind(IntEnum):
    """What a moment is; the numbers are those of the collector's files."""

    STEP = 0
    OPTIMIZER = 1
    BACKWARD = 2
    BACKWARD_END = 3
    DATA = 4
    DATA_END = 5
    WAIT = 6
    WAIT_END = 7
    COLLECTION = 8
    COLLECTION_END = 9
    DRAIN = 10
    DRAIN_END = 11
    REPLICATED = 12
    SAVE = 13
    SAVE_END = 14
    EVALUATION = 15
    TRAINING = 16
    COMPILE = 17
    COMPILE_END = 18


@dataclass(frozen=True)
class Moments:
    """Moments in order of time.

    Attributes:
        time: When.
        kind: :class:`MomentKind` of each.
        detail: Of steps, the number of the optimizer.
    """

    time: Times
    kind: NDArray[np.int64]
    detail: NDArray[np.int64]

    @classmethod
    def unpacked(cls, packed: NDArray[np.int64], start_ns: int) -> Moments:
        """From the integers of the collector's file, whose times count from ``start_ns``. Threads
        note side by side, so that neighbours may be out of order by microseconds."""
        packed = np.sort(packed, kind="stable")
        kind = packed & (1 << _KIND_BITS) - 1
        detail = packed >> _KIND_BITS & (1 << _SHIFT - _KIND_BITS) - 1
        return cls((packed >> _SHIFT) + start_ns, kind, detail)

    def at(self, kind: MomentKind, detail: int | None = None) -> Times:
        """When one kind was noted."""
        chosen = self.kind == kind
        if detail is not None:
            chosen &= self.detail == detail
        return np.asarray(self.time[chosen])

    def between(self, begin: MomentKind, end: MomentKind) -> IntervalSet:
        """The union of what lies between pairs of two kinds; pairs may be nested. A begin without
        an end is left out."""
        chosen = (self.kind == begin) | (self.kind == end)
        time, opens = self.time[chosen], self.kind[chosen] == begin
        depth = np.cumsum(np.where(opens, 1, -1))
        depth -= np.minimum.accumulate(np.minimum(depth, 0))  # ends whose begin was cut off
        first = opens & (depth == 1)
        last = ~opens & (depth == 0)
        starts, ends = time[first], time[last]
        if len(starts) and len(ends):
            ends = ends[ends >= starts[0]]
        count = min(len(starts), len(ends))
        return IntervalSet(starts[:count], ends[:count])

    @property
    def evaluations(self) -> IntervalSet:
        """From each switch to evaluation to the next one to training. One in which an optimizer
        steps is none: a part that is frozen stays in evaluation while the rest trains."""
        begins, ends = self.at(MomentKind.EVALUATION), self.at(MomentKind.TRAINING)
        place = np.searchsorted(ends, begins)
        closed = place < len(ends)
        begins, ends = begins[closed], ends[place[closed]]
        steps = self.at(MomentKind.STEP)
        calm = np.searchsorted(steps, begins, side="right") >= np.searchsorted(steps, ends)
        return IntervalSet(begins[calm], ends[calm])


@dataclass(frozen=True)
class Calls:
    """Collectives that a rank called, in order of time.

    Attributes:
        time: When each was called.
        sequence: Its number in its group.
        group: Place of its group in a list that all ranks share.
        what: Place of what was called (operation and bytes) in a list that all ranks share.
    """

    time: Times
    sequence: NDArray[np.int64]
    group: NDArray[np.int64]
    what: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.time)

    def only(self, chosen: NDArray[np.bool_]) -> Calls:
        """Some of them."""
        return Calls(
            self.time[chosen], self.sequence[chosen], self.group[chosen], self.what[chosen]
        )


@dataclass(frozen=True)
class CollectiveDurations:
    """How long collectives of a rank took on the device, in the order in which that became known.

    Attributes:
        sequence: Number of each in its group.
        group: Place of its group, as in :class:`Calls`.
        duration: Nanoseconds, from when the stream was ready for it to its end.
    """

    sequence: NDArray[np.int64]
    group: NDArray[np.int64]
    duration: Times

    def of(self, calls: Calls) -> Times:
        """The length of each call; :data:`NO_LENGTH` where it is not known. Of several entries under
        one number, the parts of a coalesced collective, the longest."""
        found = np.full(len(calls), NO_LENGTH, np.int64)
        if not len(self.sequence) or not len(calls):
            return found
        stride = 1 + max(int(self.group.max()), int(calls.group.max()))
        known = self.sequence * stride + self.group
        order = np.lexsort((self.duration, known))
        known, duration = known[order], self.duration[order]
        asked = calls.sequence * stride + calls.group
        place = np.searchsorted(known, asked, side="right") - 1
        has = (place >= 0) & (known[np.maximum(place, 0)] == asked)
        found[has] = duration[place[has]]
        return found

    def of_calls_after(self, dropped: Calls) -> CollectiveDurations:
        """Without those of calls that are not held any more."""
        if not len(self.sequence) or not len(dropped):
            return self
        stride = 1 + max(int(self.group.max()), int(dropped.group.max()))
        gone = np.isin(
            self.sequence * stride + self.group, dropped.sequence * stride + dropped.group
        )
        return CollectiveDurations(self.sequence[~gone], self.group[~gone], self.duration[~gone])


@dataclass(frozen=True)
class CoreTime:
    """How long a rank's main thread had been ready to run without a core, read now and then.

    Attributes:
        time: When it was read.
        delayed: Nanoseconds since the thread's start.
    """

    time: Times
    delayed: Times

    def within(self, begin: Times, finish: Times) -> NDArray[np.float64]:
        """Nanoseconds in each interval, by linear interpolation between readings; 0 without."""
        if len(self.time) < 2:
            return np.zeros(len(begin))
        known = self.delayed.astype(np.float64)
        return np.asarray(np.interp(finish, self.time, known) - np.interp(begin, self.time, known))


_NOTHING = np.zeros(0, np.int64)
NO_LENGTHS = CollectiveDurations(_NOTHING, _NOTHING, _NOTHING)
"""Of a job whose collectives are not timed."""


@dataclass(frozen=True)
class RankEvents:
    """What one rank noted."""

    moments: Moments
    calls: Calls
    core_time: CoreTime
    lengths: CollectiveDurations = NO_LENGTHS
