"""A CPU rank as a line of moments: calls of collectives, waits for them, and its own time in
between.

No profiler records that a thread waits for gloo. A wait shows as time without operators in which an
operation ends that the rank had begun. Short ones cannot be told from the time between two
operators, so the places of waits are learned from long ones, over all ranks and steps: what ran
before and what ran after. The thread that marks an operation as ended may get to run only after the
one that waited for it: after a long wait at such a place it had ended.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from torchscale.analysis.stats.intervals import IntervalSet, union
from torchscale.features.trace.analysis.windows import RankWindow
from torchscale.features.trace.replay.graph import EdgeKind, RankFrame
from torchscale.features.trace.span import SpanKind

_LONG_WAIT_NS = 200_000
"""Python takes microseconds to some tens of them from one operator to the next: time without
operators that lasts so long before a collective ends, and ends after it, was a wait for it."""
_MAX_LAG_SHARE = 0.5
"""Share of a wait: a thread goes on within microseconds, and on busy cores within a fraction of a
millisecond. Where more time without operators follows, the thread did something else, and the
operation ended meanwhile."""
_WAITS = "wait_tensor"
"""Operators that wait for a collective, and compute nothing."""

_STEP, _CALL, _WAIT = range(3)
"""Kinds of moments, in the order in which those of one time count."""

Place = tuple[str, str]
"""What ran before a wait and what after it."""


@dataclass(frozen=True)
class _Gap:
    """Time without operators, not across a call or the start of a step."""

    start: int
    end: int
    place: Place


class HostLine:
    """One CPU rank."""

    def __init__(self, rank: RankWindow) -> None:
        self.rank = rank
        spans = rank.trace.spans
        pauses = spans.of(SpanKind.PAUSE)
        self._pauses = IntervalSet(spans.start[pauses], spans.end[pauses]).clipped(
            rank.start, rank.end
        )
        waits = np.array([_WAITS in name for name in rank.trace.names], dtype=bool)
        working = rank.chosen & ~waits[spans.name] if len(waits) else rank.chosen
        self._start, self._end = spans.start[working], spans.end[working]
        self._named = spans.name[working]
        operators = IntervalSet(self._start, self._end).clipped(rank.start, rank.end)
        self._busy = union([operators, rank.waiting_for_data, self._pauses])
        collectives = rank.trace.collectives
        inside = (collectives.start >= rank.start) & (collectives.start < rank.end)
        self.calls = np.flatnonzero(inside)
        self.gaps = self._gaps()
        self.ends = collectives.end
        self._waits: list[tuple[_Gap, list[int]]] = []

    def _gaps(self) -> list[_Gap]:
        """All gaps, cut at calls and at the starts of steps."""
        rank, collectives = self.rank, self.rank.trace.collectives
        whole = IntervalSet(np.array([rank.start]), np.array([rank.end]))
        free = whole.minus(self._busy)
        called = {
            int(collectives.start[place]): collectives.ops[collectives.op[place]]
            for place in self.calls
        }
        cuts = np.unique(np.concatenate([collectives.start[self.calls], rank.steps.start]))
        before = dict(zip(self._end.tolist(), self._named.tolist(), strict=True))
        after = dict(zip(self._start.tolist(), self._named.tolist(), strict=True))
        names = rank.trace.names

        def label(time: int, operators: Mapping[int, int]) -> str:
            if time in called:
                return f"call of {called[time]}"
            return names[operators[time]] if time in operators else ""

        gaps = []
        for start, end in zip(free.start.tolist(), free.end.tolist(), strict=True):
            inner = cuts[
                np.searchsorted(cuts, start, side="right") : np.searchsorted(cuts, end)
            ].tolist()
            edges = [start, *inner, end]
            gaps += [
                _Gap(begin, finish, (label(begin, before), label(finish, after)))
                for begin, finish in itertools.pairwise(edges)
            ]
        return gaps

    def long_waits(self) -> set[Place]:
        """Places at which the rank surely waited: long, and it went on soon after what it waited
        for had ended."""
        collectives = self.rank.trace.collectives
        starts = np.array([gap.start for gap in self.gaps], dtype=np.int64)
        places = set()
        for call in self.calls:
            end = int(collectives.end[call])
            number = int(np.searchsorted(starts, end, side="left")) - 1
            if number < 0 or collectives.start[call] > starts[number]:
                continue
            gap = self.gaps[number]
            waited, lag = end - gap.start, gap.end - end
            if waited >= _LONG_WAIT_NS and 0 <= lag <= _MAX_LAG_SHARE * waited:
                places.add(gap.place)
        return places

    def _ends_in_queue(self) -> NDArray[np.int64]:
        """Ends of operations, none after the start of the next on its thread."""
        collectives = self.rank.trace.collectives
        ends: NDArray[np.int64] = collectives.end.copy()
        following: dict[int, int] = {}
        for call in np.argsort(-collectives.began, kind="stable").tolist():
            queue = int(collectives.queue[call])
            if queue in following:
                ends[call] = min(int(ends[call]), int(collectives.began[following[queue]]))
            if queue >= 0:
                following[queue] = call
        return ends

    def set_places(self, places: set[Place]) -> None:
        """Find the waits at ``places``, and the ends of operations that were marked after the wait
        for them."""
        collectives = self.rank.trace.collectives
        self.ends = self._ends_in_queue()
        self._waits = []
        pending: list[int] = []
        calls = iter(self.calls.tolist())
        upcoming = next(calls, None)
        for gap in self.gaps:
            while upcoming is not None and collectives.start[upcoming] <= gap.start:
                pending.append(upcoming)
                upcoming = next(calls, None)
            if gap.place not in places or not pending:
                continue
            ended = [call for call in pending if gap.start < self.ends[call] <= gap.end]
            later = [call for call in pending if self.ends[call] > gap.end]
            if later and not ended and gap.end - gap.start >= _LONG_WAIT_NS:
                self.ends[min(later, key=lambda call: int(self.ends[call]))] = gap.end
            self._waits.append((gap, [call for call in pending if self.ends[call] <= gap.end]))
            pending = [call for call in pending if self.ends[call] > gap.end]

    def add(self, frame: RankFrame) -> list[int]:
        """Add the rank's moments; returns those at which its steps start, and that at which the
        last one ends."""
        rank, collectives = self.rank, self.rank.trace.collectives
        waits = [
            (gap, [call for call in calls if call in frame.ends]) for gap, calls in self._waits
        ]
        moments = [(int(time), _STEP, number) for number, time in enumerate(rank.steps.start)]
        moments += [(int(collectives.start[call]), _CALL, int(call)) for call in self.calls]
        moments += [(gap.start, _WAIT, number) for number, (gap, _) in enumerate(waits)]
        moments = [*sorted(moments), (rank.end, _STEP, len(rank.steps))]
        resumed = [
            rank.start,
            *(waits[item][0].end if kind == _WAIT else time for time, kind, item in moments),
        ]
        parts = self._parts(np.array(resumed[:-1]), np.array([time for time, _, _ in moments]))
        step, segment = -1, 0
        at = frame.moment(rank.start)
        boundaries: list[int] = []
        for (time, kind, item), spent in zip(moments, parts, strict=True):
            reached = frame.moment(time)
            frame.edge(at, reached, spent, at=(step, segment))
            at = reached
            if kind == _STEP:
                boundaries.append(reached)
                step, segment = step + 1, 0
            elif kind == _CALL:
                segment += 1
                if item in frame.begins:
                    frame.edge(at, frame.begins[item])
            else:
                gap, operations = waits[item]
                over = frame.join(at, *(frame.ends[operation] for operation in operations))
                at = frame.moment(gap.end)
                frame.edge(over, at, frame.lag(over, at), at=(step, segment))
        return boundaries

    def _parts(self, begin: NDArray[np.int64], end: NDArray[np.int64]) -> list[tuple[float, ...]]:
        rank = self.rank
        data = rank.waiting_for_data.within(begin, end)
        pauses = self._pauses.minus(rank.waiting_for_data).within(begin, end)
        host = rank.host_bound
        idle = np.zeros(len(begin), dtype=np.int64)
        if host is not None:
            idle = host.minus(union([rank.waiting_for_data, self._pauses])).within(begin, end)
        work = np.maximum(0, end - begin - data - pauses - idle)
        table = np.zeros((len(begin), len(EdgeKind)))
        table[:, EdgeKind.WORK], table[:, EdgeKind.HOST_GAP] = work, idle
        table[:, EdgeKind.INPUT], table[:, EdgeKind.PAUSE] = data, pauses
        return [tuple(row) for row in table.tolist()]


def find_waits(lines: Sequence[HostLine]) -> None:
    """Where the ranks of a recording wait for collectives: what one of them shows holds for all."""
    places: set[Place] = set()
    places = places.union(*(line.long_waits() for line in lines))
    for line in lines:
        line.set_places(places)
