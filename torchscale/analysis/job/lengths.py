"""Who was waited for at collectives on a device: from the length of each on every rank.

A rank's kernel of a collective runs from when its stream is ready for it until all ranks are
through. So the rank that came last has the shortest one, and what each other rank takes longer is
what it waited. Clocks do not matter, and ranks of several hosts are compared as well.

A rank that is late is late again at the next collective, unless all go on together from the one
before: gradients are averaged under the backward pass, whose lateness grows from bucket to bucket,
and what costs time is that at the last one. Whether two collectives of a step are such *links* of
one chain shows in how lateness scatters from step to step: of links it scatters alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from torchscale.analysis.job.arrivals import NOBODY
from torchscale.analysis.job.events import NO_LENGTH, RankEvents, Times

_COMPARED = (
    "all_reduce",
    "allreduce",
    "all_gather",
    "_all_gather",
    "reduce_scatter",
    "_reduce_scatter",
    "all_to_all",
    "barrier",
    "coalesced",
)
"""How the names of collectives begin in which every rank waits for every other one. The root of a
broadcast or a reduction, and who sends, may be through before the others."""
LEAST_STEPS = 20
"""From which on links are told from others: the correlation of unrelated collectives is below 0.45
in 19 of 20 cases then, with two ranks."""
_LINKED = 0.5
"""Share of the lateness at a collective that is there at the next one, from which on it is the same
lateness: it is 1 or 0 but for what else scatters."""
_MOST_NUMBERS = 1 << 24
"""Of collectives in one group that are compared at once: numbers further apart are damage."""


@dataclass(frozen=True)
class LengthWaits:
    """Of the calls of one rank.

    Attributes:
        wait: Nanoseconds that it waited in each for the rank that came last; 0 where that is not
            known.
        last: Row of that rank; :data:`NOBODY` where it is not known, and where the same wait is
            counted at a later collective of the step.
        length: Nanoseconds that each took, where all ranks had come; 0 where that is not known.
    """

    wait: Times
    last: NDArray[np.int64]
    length: Times


def is_compared(operation: str) -> bool:
    """Whether every rank waits for every other one in it."""
    return operation.startswith(_COMPARED)


class Chains:
    """Which collectives of a step have the lateness of the one before; learned as steps come.

    A step's collectives in a group are told apart by their places, for each number of them.
    """

    def __init__(self) -> None:
        self._sums: dict[tuple[int, int], NDArray[np.float64]] = {}
        self._latest: dict[tuple[int, int], NDArray[np.float64]] = {}

    def learn(self, group: int, lateness: NDArray[np.float64]) -> None:
        """From further steps with as many collectives in the group.

        Args:
            group: The process group.
            lateness: Of each step, rank and place; in any unit, from any origin that the ranks of a
                collective share.
        """
        key = group, lateness.shape[2]
        if key in self._latest:
            lateness = np.concatenate([self._latest[key][None], lateness])
        self._latest[key] = lateness[-1]
        # A rank that is always late by as much says nothing: what changes from step to step does.
        change = np.diff(lateness - lateness.mean(axis=1, keepdims=True), axis=0)
        before, after = change[:, :, :-1], change[:, :, 1:]
        sums = np.stack([(before * after).sum(axis=(0, 1)), (before**2).sum(axis=(0, 1))])
        self._sums[key] = self._sums.get(key, 0) + sums

    def ends(self, group: int, count: int) -> NDArray[np.bool_]:
        """Of the places of a step with so many collectives: whether its lateness is not that of the
        next place. So it is where nothing is known yet, or nothing ever changes."""
        ends = np.ones(count, np.bool_)
        if (group, count) in self._sums and count > 1:
            both, one = self._sums[group, count]
            ends[:-1] = (both < _LINKED * one) | (one == 0)
        return ends


def waits_by_length(
    ranks: Sequence[RankEvents],
    edges: Sequence[Times],
    groups: Iterable[tuple[int, Sequence[int]]],
    compared: NDArray[np.bool_],
    chains: Chains,
) -> tuple[LengthWaits, ...]:
    """Of the calls of each rank: what it waited, and for whom.

    Args:
        ranks: Events of each rank.
        edges: Of each rank: the ends of its steps, the first one of the step before.
        groups: Process groups with the rows of their ranks, on whatever host.
        compared: Of each collective (:attr:`Calls.what`), whether all wait for all in it.
        chains: What is known of their steps, which learns from these.
    """
    found = _Lengths(ranks, edges, compared, chains)
    for group, rows in groups:
        if len(rows) > 1:
            found.compare(group, rows)
    return tuple(found.waits)


class _Lengths:
    """The lengths of all ranks' calls, and what was found in them so far."""

    def __init__(
        self,
        ranks: Sequence[RankEvents],
        edges: Sequence[Times],
        compared: NDArray[np.bool_],
        chains: Chains,
    ) -> None:
        self._calls = [rank.calls for rank in ranks]
        self._lengths = [rank.lengths.of(rank.calls) for rank in ranks]
        self._edges, self._compared, self._chains = edges, compared, chains
        self.waits = [
            LengthWaits(
                np.zeros(len(calls), np.int64),
                np.full(len(calls), NOBODY, np.int64),
                np.zeros(len(calls), np.int64),
            )
            for calls in self._calls
        ]

    def compare(self, group: int, rows: Sequence[int]) -> None:
        """Find the waits in one group: of collectives whose length every rank knows, and that all
        called alike. Of unequal parts each takes its own time."""
        places = {row: np.flatnonzero(self._calls[row].group == group) for row in rows}
        numbers = {row: self._calls[row].sequence[mine] for row, mine in places.items()}
        if any(not len(mine) for mine in numbers.values()):
            return
        first = max(int(mine.min()) for mine in numbers.values())
        last = min(int(mine.max()) for mine in numbers.values())
        if last < first or last - first > _MOST_NUMBERS:
            return
        shape = (len(rows), last - first + 1)
        took, what = np.full(shape, NO_LENGTH, np.int64), np.full(shape, -1, np.int64)
        common = {}
        for place, row in enumerate(rows):
            inside = _last_of_each(numbers[row])
            inside &= (numbers[row] >= first) & (numbers[row] <= last)
            common[row] = places[row][inside], numbers[row][inside] - first
            mine, column = common[row]
            took[place, column] = self._lengths[row][mine]
            what[place, column] = self._calls[row].what[mine]
        known = (took >= 0).all(axis=0) & (what == what[0]).all(axis=0) & (what[0] >= 0)
        known[known] = self._compared[what[0][known]]
        step = np.full(shape[1], -1, np.int64)
        mine, column = common[rows[0]]
        step[column] = self._steps_of(rows[0], mine)
        counted = self._ends_of_chains(group, took, np.where(known, step, -1))
        shortest, latest = took.min(axis=0), np.array(rows)[took.argmin(axis=0)]
        for place, row in enumerate(rows):
            mine, column = (values[known[common[row][1]]] for values in common[row])
            waits = self.waits[row]
            waits.length[mine] = shortest[column]
            mine, column = mine[counted[column]], column[counted[column]]
            waits.wait[mine] = took[place, column] - shortest[column]
            waits.last[mine] = latest[column]

    def _steps_of(self, row: int, calls: NDArray[np.int64]) -> NDArray[np.int64]:
        """The step in which a rank made each of these calls; -1 outside of all."""
        edge = self._edges[row]
        step = np.searchsorted(edge, self._calls[row].time[calls], side="right") - 1
        return np.where(step < len(edge) - 1, step, -1)

    def _ends_of_chains(
        self, group: int, took: Times, step: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        """Of each collective: whether its wait is counted, and not a later one of its step.

        Args:
            group: The process group.
            took: Lengths by rank and collective.
            step: Of each collective; -1 for one that is not compared.
        """
        counted = np.zeros(len(step), np.bool_)
        columns = np.flatnonzero(step >= 0)
        if not len(columns):
            return counted
        _, begin, counts = np.unique(step[columns], return_index=True, return_counts=True)
        for count in np.unique(counts).tolist():
            chosen = begin[counts == count]
            of_step = columns[chosen[:, None] + np.arange(count)]
            lateness = -took[:, of_step].transpose(1, 0, 2).astype(np.float64)
            self._chains.learn(group, lateness)
            counted[of_step] = self._chains.ends(group, count)
        return counted


def _last_of_each(numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether no later call has the same number: the parts of a coalesced collective share it, and
    the whole comes last."""
    _, place = np.unique(numbers[::-1], return_index=True)
    last = np.zeros(len(numbers), np.bool_)
    last[len(numbers) - 1 - place] = True
    return last
