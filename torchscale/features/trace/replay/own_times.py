"""Times that ranks take by themselves, beside those of their peers: of equal work in the same step
and between the same collectives."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from torchscale.features.trace.replay.graph import EdgeKind, Times
from torchscale.features.trace.replay.replay import Replay

_OWN = (EdgeKind.WORK, EdgeKind.HOST_GAP, EdgeKind.INPUT, EdgeKind.PAUSE)


class OwnTimes:
    """Each rank's own time in a replay, in steps and in the segments between its collectives."""

    def __init__(self, replay: Replay) -> None:
        self._replay, self._edges = replay, replay.graph.edges
        self._parts = self._edges.parts
        self._steps = replay.boundaries.shape[1] - 1
        self._on_device = any(rank.trace.on_device for rank in replay.ranks)

    def peers(self, column: int) -> int:
        """How many other ranks are of equal work: of its stage, or without stages all others; none
        where stages are not known."""
        return len(self.equal_ranks[self._equals[column]]) - 1

    @cached_property
    def equal_ranks(self) -> list[NDArray[np.int64]]:
        """Columns of ranks of equal work."""
        layout = self._replay.layout
        if layout.stages is not None:
            return [np.array(stage, dtype=np.int64) for stage in layout.stages]
        if layout.reason:
            return list(self.all_ranks[:, None])
        return [self.all_ranks]

    @cached_property
    def _equals(self) -> NDArray[np.int64]:
        """Number of each rank's :attr:`equal_ranks`."""
        numbers = np.empty(len(self._replay.ranks), dtype=np.int64)
        for number, equal in enumerate(self.equal_ranks):
            numbers[equal] = number
        return numbers

    @property
    def all_ranks(self) -> NDArray[np.int64]:
        """Columns of all ranks."""
        return np.arange(len(self._replay.ranks))

    def medians_of_peers(self, table: Times, columns: NDArray[np.int64]) -> Times:
        """For each of some ranks with peers the median of its peers' values: ``table`` has a row a
        rank."""
        medians = np.empty((len(columns), *table.shape[1:]))
        for number in np.unique(self._equals[columns]).tolist():
            equal = self.equal_ranks[number]
            wanted = self._equals[columns] == number
            places = np.searchsorted(equal, columns[wanted])
            medians[wanted] = medians_without_each(table[equal], places)
        return medians

    def excess(self) -> dict[int, float]:
        """By how much of its peers' median each rank that has peers takes longer by itself; without
        those whose peers take no time."""
        own = self.totals()
        columns = np.array([column for column in self.all_ranks.tolist() if self.peers(column)])
        if not len(columns):
            return {}
        typical = self.medians_of_peers(own, columns)
        known = zip(columns.tolist(), own[columns].tolist(), typical.tolist(), strict=True)
        return {column: mine / other - 1 for column, mine, other in known if other > 0}

    def totals(self) -> NDArray[np.float64]:
        """Nanoseconds that each rank takes by itself, over all steps."""
        return np.asarray(sum(self.table(parts).sum(axis=(1, 2)) for parts in self.groups()))

    def groups(self) -> tuple[tuple[EdgeKind, ...], ...]:
        """Parts that one line of a rank has: on devices the host's apart from the device's."""
        return ((EdgeKind.WORK,), _OWN[1:]) if self._on_device else (_OWN,)

    def table(self, parts: Sequence[EdgeKind]) -> NDArray[np.float64]:
        """Nanoseconds by rank, step and segment; all in one segment where ranks of equal work did
        not begin the same number of collectives in every step, but for one."""
        edges = self._edges
        chosen = (
            (edges.rank >= 0)
            & (edges.step >= 0)
            & (edges.step < self._steps)
            & ~edges.launch
            & (edges.tie < 0)
        )
        segment = self._segment[chosen]
        shape = (len(self._replay.ranks), self._steps, int(segment.max(initial=0)) + 1)
        table = np.zeros(shape)
        spent = self._parts[chosen][:, list(parts)].sum(axis=1)
        np.add.at(table, (edges.rank[chosen], edges.step[chosen], segment), spent)
        return table

    @cached_property
    def _segment(self) -> NDArray[np.int64]:
        """Segments as peers have them: what one of them lacks in some step counts to the last that
        all have."""
        edges = self._edges
        last = np.zeros((len(self._replay.ranks), self._steps), dtype=np.int64)
        chosen = (edges.rank >= 0) & (edges.step >= 0) & (edges.step < self._steps)
        np.maximum.at(last, (edges.rank[chosen], edges.step[chosen]), edges.segment[chosen])
        least, most = last.min(axis=1), last.max(axis=1)
        limit = np.zeros(len(last), dtype=np.int64)
        for equal in self.equal_ranks:
            if least[equal].min() >= most[equal].max() - 1:
                limit[equal] = least[equal].min()
        return np.minimum(edges.segment, limit[edges.rank])

    def scale(
        self,
        weights: Times,
        parts: Sequence[EdgeKind],
        columns: NDArray[np.int64],
        own: NDArray[np.float64],
        aim: NDArray[np.float64],
    ) -> None:
        """Stretch the time of some ranks in each step and segment from ``own`` to ``aim``, which
        have a row for each of all ranks."""
        edges = self._edges
        stretched = np.zeros(len(self._replay.ranks) + 1, dtype=bool)
        stretched[columns] = True  # the last is that of edges of no rank
        chosen = np.flatnonzero(
            stretched[edges.rank] & (edges.step >= 0) & (edges.step < self._steps)
        )
        segment = self._segment[chosen]
        factor = np.divide(aim, own, out=np.ones_like(own), where=own > 0)
        spent = self._parts[chosen][:, list(parts)].sum(axis=1)
        factors = factor[edges.rank[chosen], edges.step[chosen], segment]
        weights[chosen] += spent * (factors - 1.0)


def medians_without_each(values: Times, rows: NDArray[np.int64]) -> Times:
    """For each of some rows the median of all others, along the first axis, of two rows or more:
    sorted once, since leaving out a row moves the median by at most one place."""
    order = np.argsort(values, axis=0, kind="stable")
    ordered = np.take_along_axis(values, order, axis=0)
    places = np.empty_like(order)
    numbers = np.arange(len(values)).reshape(-1, *([1] * (values.ndim - 1)))
    np.put_along_axis(places, order, np.broadcast_to(numbers, order.shape), axis=0)
    mine = places[rows]
    others = len(values) - 1
    low, high = (others - 1) // 2, others // 2

    def other(place: int) -> Times:
        return np.asarray(np.where(mine > place, ordered[place], ordered[place + 1]))

    return np.asarray((other(low) + other(high)) / 2)
