"""Who came last to each collective, and when: from the calls of all ranks of one clock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from torchscale.analysis.exchanges.events import Calls, Times

NOBODY = -1
_MOST_NUMBERS = 1 << 24
"""Of collectives in one group that are compared at once: more than are held of a rank, so that numbers
further apart are damage."""


@dataclass(frozen=True)
class Arrivals:
    """Of the calls of one rank.

    Attributes:
        latest: When the last rank of the group called the same collective; 0 where a rank's call is
            missing.
        last: Row of that rank; :data:`NOBODY` where a call is missing.
    """

    latest: Times
    last: NDArray[np.int64]


def find_arrivals(
    ranks: Sequence[Calls], groups: Iterable[tuple[int, Sequence[int]]]
) -> tuple[Arrivals, ...]:
    """Of the calls of each rank: when the last rank of its group came to the same collective.

    Args:
        ranks: Calls of each rank.
        groups: Process groups with the rows of ranks that share a clock. Several entries of one
            group are compared by themselves.
    """
    found = [
        Arrivals(np.zeros(len(calls), np.int64), np.full(len(calls), NOBODY, np.int64))
        for calls in ranks
    ]
    for group, rows in groups:
        if len(rows) < 2:
            continue
        places = {row: np.flatnonzero(ranks[row].group == group) for row in rows}
        if any(not len(mine) for mine in places.values()):
            continue
        _fill(found, ranks, places)
    return tuple(found)


def _fill(
    found: Sequence[Arrivals], ranks: Sequence[Calls], places: Mapping[int, NDArray[np.int64]]
) -> None:
    """For one group, whose calls each rank has at ``places``."""
    rows = list(places)
    numbers = {row: ranks[row].sequence[places[row]] for row in rows}
    first = max(int(mine[0]) for mine in numbers.values())
    last = min(int(mine[-1]) for mine in numbers.values())
    if last < first or last - first > _MOST_NUMBERS:
        return
    times = np.zeros((len(rows), last - first + 1), dtype=np.int64)
    for place, row in enumerate(rows):
        inside = (numbers[row] >= first) & (numbers[row] <= last)
        times[place, numbers[row][inside] - first] = ranks[row].time[places[row][inside]]
    complete = (times > 0).all(axis=0)
    latest = np.where(complete, times.max(axis=0), 0)
    who = np.where(complete, np.array(rows)[times.argmax(axis=0)], NOBODY)
    for row in rows:
        inside = (numbers[row] >= first) & (numbers[row] <= last)
        mine = places[row][inside]
        found[row].latest[mine] = latest[numbers[row][inside] - first]
        found[row].last[mine] = who[numbers[row][inside] - first]
