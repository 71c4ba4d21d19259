"""Unions of time intervals and how much of other intervals they cover. Integers in, integers
out."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.int64]


class IntervalSet:
    """The union of intervals, as sorted disjoint ones."""

    def __init__(self, start: Times, end: Times) -> None:
        wanted = end > start
        start, end = start[wanted], end[wanted]
        order = np.argsort(start, kind="stable")
        start, reach = start[order], np.maximum.accumulate(end[order]) if len(end) else end
        if len(start):
            opens = np.empty(len(start), dtype=bool)
            opens[0] = True
            np.greater(start[1:], reach[:-1], out=opens[1:])
            closes = np.append(opens[1:], True)
            start, reach = start[opens], reach[closes]
        self.start, self.end = start, reach

    @property
    def length(self) -> int:
        """Total length of the union."""
        return int((self.end - self.start).sum())

    @cached_property
    def _before(self) -> Times:
        """Length of the union before each of its intervals, and of all."""
        return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(self.end - self.start)])

    def within(self, start: Times, end: Times) -> Times:
        """How much of each interval the union covers; intervals may overlap."""
        return self._up_to(end) - self._up_to(start)

    def clipped(self, start: int, end: int) -> IntervalSet:
        """What of it lies inside an interval."""
        return IntervalSet(np.clip(self.start, start, end), np.clip(self.end, start, end))

    def minus(self, other: IntervalSet) -> IntervalSet:
        """What of it ``other`` leaves."""
        if not len(self.start) or not len(other.start):
            return self
        times = np.concatenate([self.start, self.end, other.start, other.end])
        mine, theirs = np.zeros(len(times), dtype=np.int8), np.zeros(len(times), dtype=np.int8)
        ours = 2 * len(self.start)
        mine[: len(self.start)], mine[len(self.start) : ours] = 1, -1
        theirs[ours : ours + len(other.start)], theirs[ours + len(other.start) :] = 1, -1
        order = np.argsort(times, kind="stable")  # four sorted runs: a merge
        times = times[order]
        mine, theirs = (
            mine[order].cumsum(dtype=np.int8),
            theirs[order].cumsum(dtype=np.int8),
        )  # 0 or 1: disjoint
        left = (mine[:-1] > 0) & (theirs[:-1] == 0)
        return IntervalSet(times[:-1][left], times[1:][left])

    def _up_to(self, time: Times) -> Times:
        if not len(self.start):
            return np.zeros(len(time), dtype=np.int64)
        index = np.searchsorted(self.start, time, side="right") - 1
        partial = np.clip(time, self.start[index], self.end[index]) - self.start[index]
        return np.where(index < 0, 0, self._before[index] + partial)


def union(covers: Iterable[IntervalSet]) -> IntervalSet:
    """The union of unions."""
    parts = list(covers)
    if not parts:
        empty = np.zeros(0, dtype=np.int64)
        return IntervalSet(empty, empty)
    return IntervalSet(
        np.concatenate([part.start for part in parts]), np.concatenate([part.end for part in parts])
    )


def outermost(start: Times, end: Times, lane: Times) -> NDArray[np.bool_]:
    """Which intervals lie in no other of their lane (a thread): the outermost calls."""
    chosen = np.zeros(len(start), dtype=bool)
    for order in _by_lane(lane, np.lexsort((-end, start, lane))).values():
        reach = np.maximum.accumulate(end[order])
        outer = np.ones(len(order), dtype=bool)
        outer[1:] = start[order][1:] >= reach[:-1]
        chosen[order[outer]] = True
    return chosen


def contains_any(
    start: Times, end: Times, lane: Times, moments: Times, moment_lane: Times
) -> NDArray[np.bool_]:
    """Which intervals contain a moment of their lane."""
    contains = np.zeros(len(start), dtype=bool)
    intervals = _by_lane(lane, np.argsort(lane, kind="stable"))
    for each, places in _by_lane(moment_lane, np.lexsort((moments, moment_lane))).items():
        if each in intervals:
            times, mine = moments[places], intervals[each]
            contains[mine] = np.searchsorted(times, end[mine]) > np.searchsorted(times, start[mine])
    return contains


def _by_lane(lane: Times, order: Times) -> dict[int, Times]:
    """Lane → its places, in ``order``, which is sorted by lane. There may be a lane a place."""
    lanes, first = np.unique(lane[order], return_index=True)
    return dict(zip(lanes.tolist(), np.split(order, first[1:]), strict=False))
