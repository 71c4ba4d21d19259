"""Collectives that several ranks recorded, as columns: a row for each, a member for each rank that
takes part in it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Places = NDArray[np.int64]


@dataclass(frozen=True)
class Paired:
    """Collectives that were found on all ranks of their group.

    Attributes:
        first: Where the members of each row begin, and where those of the last end.
        column: Column of each member's rank, ascending within a row, int32.
        place: Position of each member among its rank's collectives, int32.
        start, end: Nanoseconds, clock offsets removed, by member.
        op, group: Index into ``ops`` and ``groups``, by row.
        payload_bytes: By row; -1 where it is not known.
        ops, groups: Names.
    """

    first: Places
    column: NDArray[np.int32]
    place: NDArray[np.int32]
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    op: NDArray[np.int32]
    group: NDArray[np.int32]
    payload_bytes: NDArray[np.int64]
    ops: tuple[str, ...]
    groups: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.op)

    @cached_property
    def sizes(self) -> Places:
        """How many ranks take part in each row."""
        return np.diff(self.first)

    @cached_property
    def row(self) -> Places:
        """The row of each member."""
        return np.repeat(np.arange(len(self)), self.sizes)

    @cached_property
    def latest(self) -> NDArray[np.int64]:
        """A(k): the latest start in the group, by row."""
        return self.highest(self.start)

    @cached_property
    def earliest(self) -> NDArray[np.int64]:
        """The first start in the group, by row."""
        return self.lowest(self.start)

    @cached_property
    def last(self) -> Places:
        """Column of the rank that arrived last, of several the first; by row."""
        late = np.flatnonzero(self.start == self.latest[self.row])
        _, first = np.unique(self.row[late], return_index=True)
        return np.asarray(self.column[late[first]], dtype=np.int64)

    def highest(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """The highest value of the members of each row."""
        if not len(self):
            return values[:0]
        return np.maximum.reduceat(values, self.first[:-1])

    def lowest(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """The lowest value of the members of each row."""
        if not len(self):
            return values[:0]
        return np.minimum.reduceat(values, self.first[:-1])

    def are(self, ops: frozenset[str]) -> NDArray[np.bool_]:
        """Which rows are of these operations."""
        of_op = np.array([op in ops for op in self.ops], dtype=bool)
        if not len(self):
            return np.zeros(0, dtype=bool)
        return np.asarray(of_op[self.op])

    def by_rank(self, ranks: int) -> list[Places]:
        """Members of each of so many ranks, by row."""
        order = np.argsort(self.column, kind="stable")
        bounds = np.searchsorted(self.column[order], np.arange(1, ranks))
        return np.split(order, bounds)

    def members(self, rows: Places) -> Places:
        """Members of these rows, row by row."""
        return ranges(self.first[rows], self.first[rows + 1])

    def only(self, rows: Places) -> Paired:
        """The rows with these numbers, in this order."""
        members = self.members(rows)
        return Paired(
            first=np.concatenate([[0], np.cumsum(self.sizes[rows])]).astype(np.int64),
            column=self.column[members],
            place=self.place[members],
            start=self.start[members],
            end=self.end[members],
            op=self.op[rows],
            group=self.group[rows],
            payload_bytes=self.payload_bytes[rows],
            ops=self.ops,
            groups=self.groups,
        )


def ranges(begin: Places, end: Places) -> Places:
    """The numbers from each begin to its end, one range after the other."""
    lengths = end - begin
    offsets = np.repeat(begin - (np.cumsum(lengths) - lengths), lengths)
    return np.asarray(np.arange(int(lengths.sum())) + offsets, dtype=np.int64)
