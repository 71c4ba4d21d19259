"""The steps of a job: of each rank and step, what it did by itself, what it waited for, and for
whom.

Where the host carries out the collectives, or waits for them (gloo), a call is an arrival:

a rank is *blocked* while it waits for a collective: in a wait that the collector noted, or under
DistributedDataParallel, whose waits pass no Python, from its last call in a backward pass to the
end of that pass. Of this it *waits* for other ranks until the last of them has called the
collective, and the rest is *transfer*; blocked for what was not recorded (gloo's sends and
receives), it is a *bubble*. What is left of a step without waits for data is its *own* time; it is
*quiet* while no collective of the rank is under way.

Where collectives are kernels of a device (NCCL), the host runs ahead and its calls tell nothing. The
lengths of the kernels tell who waited, where torch measures them; what compute hides of a transfer
is not known then, and it counts as the rank's own time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from enum import Enum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from torchscale.analysis.diagnosis.step_windows import RARE_SHARE
from torchscale.analysis.exchanges.arrivals import Arrivals
from torchscale.analysis.exchanges.events import MomentKind, Moments, RankEvents, Times
from torchscale.analysis.stats.intervals import IntervalSet, union

Matrix = NDArray[np.float64]
_NS = 1e-9
_WAKE_NS = 200_000
"""A rank that was woken runs at once, or a scheduler's tick later: a collective whose last rank
came within this of a wait's end may be what it waited for."""
_AROUND = 8
"""Steps before and after one over which its length on the device is taken: a host that runs ahead
issues some steps at once and then waits."""


class WaitsBy(Enum):
    """What tells how long ranks wait for each other."""

    CALLS = "calls"
    """When each rank calls a collective: its host carries it out or waits for it."""
    LENGTHS = "lengths"
    """How long each rank's kernel of a collective takes."""
    NOTHING = "nothing"
    """Neither: collectives are kernels, and their lengths are not measured."""


@dataclass(frozen=True)
class JobSteps:
    """Steps of all ranks; seconds, a row a rank and a column a step.

    Attributes:
        first: Number of the first step, counted from the job's start.
        end_ns: When each ended, on rank 0's row; nanoseconds since the epoch.
        wall: From the end of the step before.
        own: Neither blocked nor waiting for data.
        quiet: Of ``own``, while no collective is under way.
        data: Waiting for the data loader.
        wait: For ranks that came later to a collective.
        estimated: Of ``wait``, what was not seen: by lengths, later collectives can hide it.
        transfer: Blocked, once all had come.
        bubble: Blocked for what was not recorded.
        collection: Garbage collection.
        saving: Writing a checkpoint.
        evaluating: With a module switched to evaluation.
        delayed: Ready to run, without a core.
        passes: Backward passes; a count, not seconds.
        collector: What the collector did in the main thread; not in ``own``.
        blame: The others' waiting for this rank.
        waits_by: What ``wait`` and ``blame`` are from. By lengths, ``transfer`` is what collectives
            take on the device once all have come, hidden by compute or not.
    """

    first: int
    end_ns: Times
    wall: Matrix
    own: Matrix
    quiet: Matrix
    data: Matrix
    wait: Matrix
    estimated: Matrix
    transfer: Matrix
    bubble: Matrix
    collection: Matrix
    saving: Matrix
    evaluating: Matrix
    delayed: Matrix
    passes: Matrix
    collector: Matrix
    blame: Matrix
    waits_by: WaitsBy

    def __len__(self) -> int:
        return int(self.wall.shape[1])

    @cached_property
    def calm(self) -> Matrix:
        """What the rank did by itself. By calls: its ``own`` time without that in which it was ready
        and had no core, but for what of that no collective disturbed. The threads that transfer,
        and other programs, take cores from a rank by chance. By lengths: the step of all ranks
        without its waits; what a host waits for data is in it, since its device may be busy
        meanwhile. Rare waits that are longer than a step are left out: they are for a rank that did
        something else, and not for a slow one."""
        if self.waits_by is not WaitsBy.LENGTHS:
            return self.host_calm
        step = _moving_mean(self.wall.mean(axis=0))
        long = self.wait > step
        long &= long.mean(axis=1, keepdims=True) <= RARE_SHARE
        return np.asarray(np.maximum(0.0, step - np.where(long, 0.0, self.wait)))

    @cached_property
    def busy(self) -> Matrix:
        """What the rank did by itself, and its waiting for data."""
        if self.waits_by is WaitsBy.LENGTHS:
            return self.calm
        return np.asarray(self.calm + self.data)

    @cached_property
    def host_calm(self) -> Matrix:
        """The same of the rank's host, whatever its device does."""
        return np.asarray(np.maximum(self.quiet, self.own - self.delayed))


TIMES = tuple(
    item.name for item in fields(JobSteps) if item.name not in ("first", "end_ns", "waits_by")
)
"""Names of the matrices."""


def table_of(wall: Matrix, known: Mapping[str, Matrix]) -> JobSteps:
    """Steps of which some columns are known; the others are 0.

    Args:
        wall: Seconds of each rank and step.
        known: By the names of :class:`JobSteps`, seconds of each rank and step.
    """
    nothing = np.zeros_like(wall)
    columns = {name: known.get(name, nothing) for name in TIMES if name != "wall"}
    no_times = np.zeros(wall.shape[1], np.int64)
    return JobSteps(0, no_times, wall, waits_by=WaitsBy.CALLS, **columns)


@dataclass(frozen=True)
class Waited:
    """One time that a rank was blocked.

    Attributes:
        start, end: Nanoseconds since the epoch.
        until: When the last rank had come; ``start`` where none was awaited.
        last: Rows of the ranks that came last; -1 where not known.
        what: What was called last before it; -1 where nothing was.
    """

    start: Times
    end: Times
    until: Times
    last: NDArray[np.int64]
    what: NDArray[np.int64]


def step_times(
    ranks: Sequence[RankEvents],
    arrivals: Sequence[Arrivals],
    edges: Sequence[Times],
    first: int,
) -> tuple[JobSteps, tuple[Waited, ...]]:
    """The steps between ``edges``, and all that ranks were blocked for.

    Args:
        ranks: Events of each rank, at least of these steps.
        arrivals: Of the calls of each.
        edges: Of each rank: the ends of the steps, the first one of the step before.
        first: Number of the first step.
    """
    blocked = [_blocked(rank, arrival) for rank, arrival in zip(ranks, arrivals, strict=True)]
    table = host_steps(ranks, blocked, edges)
    for waits, edge in zip(blocked, edges, strict=True):
        _add_blame(table["blame"], waits, edge)
    steps = JobSteps(first=first, end_ns=edges[0][1:], waits_by=WaitsBy.CALLS, **table)
    return steps, tuple(blocked)


def host_steps(
    ranks: Sequence[RankEvents], blocked: Sequence[Waited], edges: Sequence[Times]
) -> dict[str, Matrix]:
    """What the hosts noted, by the names of :class:`JobSteps`; nobody is blamed."""
    shape = (len(ranks), len(edges[0]) - 1)
    table = {name: np.zeros(shape) for name in TIMES}
    for row, (rank, waits, edge) in enumerate(zip(ranks, blocked, edges, strict=True)):
        for name, values in _rank_steps(rank, waits, edge).items():
            table[name][row] = values
    return table


def _moving_mean(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Over the neighbours of each value."""
    count = len(values)
    total = np.concatenate([[0.0], np.cumsum(values)])
    begin = np.maximum(np.arange(count) - _AROUND, 0)
    end = np.minimum(np.arange(count) + _AROUND + 1, count)
    return np.asarray((total[end] - total[begin]) / (end - begin))


def _rank_steps(rank: RankEvents, waits: Waited, edge: Times) -> dict[str, Matrix]:
    begin, finish = edge[:-1], edge[1:]
    data = rank.moments.between(MomentKind.DATA, MomentKind.DATA_END)
    collector = rank.moments.between(MomentKind.DRAIN, MomentKind.DRAIN_END)
    collection = rank.moments.between(MomentKind.COLLECTION, MomentKind.COLLECTION_END)
    blocked = IntervalSet(waits.start, waits.end)
    idle = union([data, collector, blocked])
    under_way = union([_under_way(rank, waits, finish), idle])
    known = waits.what >= 0
    parts = {
        "data": data,
        "collection": collection,
        "saving": rank.moments.between(MomentKind.SAVE, MomentKind.SAVE_END),
        "evaluating": rank.moments.evaluations,
        "collector": collector,
        "wait": IntervalSet(waits.start, waits.until),
        "transfer": IntervalSet(waits.until[known], waits.end[known]),
        "bubble": IntervalSet(waits.start[~known], waits.end[~known]),
    }
    steps: dict[str, Matrix] = {
        name: np.asarray(part.within(begin, finish) * _NS, np.float64)
        for name, part in parts.items()
    }
    wall = np.asarray((finish - begin) * _NS, np.float64)
    steps["wall"] = wall
    passes = np.searchsorted(rank.moments.at(MomentKind.BACKWARD), edge)
    steps["delayed"] = rank.core_time.within(begin, finish) * _NS
    steps["passes"] = np.diff(passes).astype(np.float64)
    steps["own"] = wall - idle.within(begin, finish) * _NS
    steps["quiet"] = wall - under_way.within(begin, finish) * _NS
    return steps


def _blocked(rank: RankEvents, arrivals: Arrivals) -> Waited:
    """When the rank was blocked, and until when for others."""
    noted = rank.moments.between(MomentKind.WAIT, MomentKind.WAIT_END)
    tails = _tails(rank, noted)
    order = np.argsort(np.concatenate([noted.start, tails.start]), kind="stable")
    start = np.concatenate([noted.start, tails.start])[order]
    end = np.concatenate([noted.end, tails.end])[order]
    calls = rank.calls
    until, last = start.copy(), np.full(len(start), -1, np.int64)
    what = np.full(len(start), -1, np.int64)
    if not len(start) or not len(calls):
        return Waited(start, end, until, last, what)
    low, high = _batches(calls.time, start)
    for place, (begin, stop) in enumerate(zip(low.tolist(), high.tolist(), strict=True)):
        if stop <= begin:
            continue
        what[place] = calls.what[stop - 1]
        latest = arrivals.latest[begin:stop]
        came = np.where(latest <= end[place] + _WAKE_NS, latest, 0)
        chosen = int(came.argmax())
        if came[chosen] > start[place]:
            until[place] = min(int(came[chosen]), int(end[place]))
            last[place] = arrivals.last[begin + chosen]
    return Waited(start, end, until, last, what)


def _batches(called: Times, start: Times) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Of each wait the calls that it may be for: those since the wait before, and where there are
    none, those of the wait before."""
    high = np.searchsorted(called, start, side="right")
    low = np.concatenate([[0], high[:-1]])
    has_own = high > low
    source = np.maximum.accumulate(np.where(has_own, np.arange(len(start)), 0))
    return low[source], high[source]


def _tails(rank: RankEvents, noted: IntervalSet) -> IntervalSet:
    """From the last call in each backward pass under DistributedDataParallel to its end; none where
    a wait was noted meanwhile."""
    replicated = rank.moments.at(MomentKind.REPLICATED)
    passes = rank.moments.between(MomentKind.BACKWARD, MomentKind.BACKWARD_END)
    if not len(replicated) or not len(passes.start) or not len(rank.calls):
        return IntervalSet(passes.start[:0], passes.end[:0])
    place = np.searchsorted(rank.calls.time, passes.end, side="right") - 1
    last_call = rank.calls.time[np.maximum(place, 0)]
    inside = (place >= 0) & (last_call >= passes.start)
    # Its forward pass came before, and after the backward pass before.
    forward = np.searchsorted(replicated, passes.start, side="right") - 1
    before = np.concatenate([[0], passes.end[:-1]])
    inside &= (forward >= 0) & (replicated[np.maximum(forward, 0)] >= before)
    tails = IntervalSet(last_call[inside], passes.end[inside])
    free = noted.within(tails.start, tails.end) == 0
    return IntervalSet(tails.start[free], tails.end[free])


def _under_way(rank: RankEvents, waits: Waited, finish: Times) -> IntervalSet:
    """While a collective of the rank may be under way: from its call to the end of the first wait
    after it, or of the step."""
    called = rank.calls.time
    if not len(called):
        return IntervalSet(called, called)
    step = np.searchsorted(finish, called, side="right")
    ends = np.concatenate([finish, [called[-1]]])[step]
    after = np.searchsorted(waits.start, called, side="left")
    has_wait = after < len(waits.start)
    waited = np.where(has_wait, np.append(waits.end, 0)[np.minimum(after, len(waits.end))], ends)
    return IntervalSet(called, np.minimum(ends, np.where(has_wait, waited, ends)))


def _add_blame(blame: Matrix, waits: Waited, edge: Times) -> None:
    """Add what this rank waited to the blame of those it waited for, by step."""
    seconds = (waits.until - waits.start) * _NS
    step = np.searchsorted(edge, waits.start, side="right") - 1
    inside = (waits.last >= 0) & (step >= 0) & (step < blame.shape[1]) & (seconds > 0)
    np.add.at(blame, (waits.last[inside], step[inside]), seconds[inside])


def step_edges(moments: Moments) -> Times:
    """When steps ended: those of the optimizer that ended first, which every iteration has."""
    steps = moments.kind == MomentKind.STEP
    if not steps.any():
        return np.asarray(moments.time[:0])
    first = int(moments.detail[steps][0])
    return moments.at(MomentKind.STEP, first)
