"""Who was waited for at collectives on a device: from the length of each on every rank.

A rank's kernel of a collective runs from when its stream is ready for it until all ranks are
through. So the rank that came last has the shortest one, and what each other rank takes longer is
what it waited. Clocks do not matter, and ranks of several hosts are compared as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from torchscale.analysis.exchanges.arrivals import NOBODY
from torchscale.analysis.exchanges.events import NO_LENGTH, RankEvents, Times
from torchscale.features.watch.analysis.chains import Chains

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
_MOST_NUMBERS = 1 << 24
"""Of collectives in one group that are compared at once: numbers further apart are damage."""


@dataclass(frozen=True)
class LengthWaits:
    """Of the calls of one rank.

    Attributes:
        wait: Nanoseconds that it waited in each for the rank that came last; 0 where that is not
            known. Where later collectives hide how late that rank is, with an estimate of that
            (:mod:`~torchscale.features.watch.analysis.chains`).
        seen: The same without the estimate.
        last: Row of that rank; :data:`NOBODY` where it is not known, and where the same wait is
            counted at another collective of the step.
        length: Nanoseconds that each took, where all ranks had come; 0 where that is not known.
    """

    wait: Times
    seen: Times
    last: NDArray[np.int64]
    length: Times


def is_compared(operation: str) -> bool:
    """Whether every rank waits for every other one in it."""
    return operation.startswith(_COMPARED)


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
        called = np.full(shape, np.nan)
        common = {}
        for place, row in enumerate(rows):
            inside = _last_of_each(numbers[row])
            inside &= (numbers[row] >= first) & (numbers[row] <= last)
            common[row] = places[row][inside], numbers[row][inside] - first
            mine, column = common[row]
            took[place, column] = self._lengths[row][mine]
            what[place, column] = self._calls[row].what[mine]
            called[place, column] = self._calls[row].time[mine]
        known = (took >= 0).all(axis=0) & (what == what[0]).all(axis=0) & (what[0] >= 0)
        known[known] = self._compared[what[0][known]]
        mine, column = common[rows[0]]
        step = np.full(shape[1], -1, np.int64)
        step[column] = self._steps_of(rows[0], mine)
        scale = self._scales(group, rows, np.where(known, took, np.nan), called, step)
        shortest, latest = took.min(axis=0), np.array(rows)[took.argmin(axis=0)]
        for place, row in enumerate(rows):
            mine, column = (values[known[common[row][1]]] for values in common[row])
            waits = self.waits[row]
            waits.length[mine] = shortest[column]
            counts = scale[column] > 0
            mine, column = mine[counts], column[counts]
            waited = took[place, column] - shortest[column]
            waits.wait[mine] = waited * scale[column]
            waits.seen[mine] = np.minimum(waited, waits.wait[mine])
            waits.last[mine] = latest[column]

    def _steps_of(self, row: int, calls: NDArray[np.int64]) -> NDArray[np.int64]:
        """The step in which a rank made each of these calls; -1 outside of all."""
        edge = self._edges[row]
        step = np.searchsorted(edge, self._calls[row].time[calls], side="right") - 1
        return np.where(step < len(edge) - 1, step, -1)

    def _scales(
        self,
        group: int,
        rows: Sequence[int],
        took: NDArray[np.float64],
        called: NDArray[np.float64],
        step: NDArray[np.int64],
    ) -> NDArray[np.float64]:
        """Of each collective: by how much its waits count; 0 outside of all steps.

        Args:
            group: The process group.
            rows: Its ranks.
            took: Lengths by rank and collective; NaN for one that is not compared.
            called: When, by rank and collective.
            step: Of each collective; -1 outside of all.
        """
        scales = np.zeros(len(step))
        columns = np.flatnonzero(step >= 0)
        if not len(columns):
            return scales
        edges = np.stack([self._edges[row] for row in rows])
        since = called - edges[:, step]
        period = np.diff(edges, axis=1).mean(axis=0)
        _, begin, counts = np.unique(step[columns], return_index=True, return_counts=True)
        for count in np.unique(counts).tolist():
            chosen = begin[counts == count]
            of_step = columns[chosen[:, None] + np.arange(count)]
            scales[of_step] = self._chains.scales(
                group,
                took[:, of_step].transpose(1, 0, 2),
                since[:, of_step].transpose(1, 0, 2),
                period[step[columns[chosen]]],
            )
        return scales


def _last_of_each(numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether no later call has the same number: the parts of a coalesced collective share it, and
    the whole comes last."""
    _, place = np.unique(numbers[::-1], return_index=True)
    last = np.zeros(len(numbers), np.bool_)
    last[len(numbers) - 1 - place] = True
    return last
