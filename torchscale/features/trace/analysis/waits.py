"""Who waited for whom: waits and transfers of paired collectives, and what of them no compute
hides."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from torchscale.analysis.stats.intervals import IntervalSet
from torchscale.features.trace.analysis.paired import Paired, Places
from torchscale.features.trace.analysis.windows import RankWindow

_MOST_NS = 1 << 62
"""Times of several unions are laid out one after the other up to here, in 64 bits."""


def in_windows(paired: Paired, ranks: list[RankWindow], offsets: NDArray[np.int64]) -> Paired:
    """Collectives that began inside the window of every rank that takes part, on one clock."""
    starts = np.array([rank.start for rank in ranks], dtype=np.int64)
    ends = np.array([rank.end for rank in ranks], dtype=np.int64)
    inside = (paired.start >= starts[paired.column]) & (paired.start < ends[paired.column])
    outside = np.unique(paired.row[~inside])
    kept = paired
    if len(outside):
        kept = paired.only(np.setdiff1d(np.arange(len(paired)), outside, assume_unique=True))
    shift = offsets[kept.column]
    return replace(kept, start=kept.start - shift, end=kept.end - shift)


@dataclass(frozen=True)
class Charges:
    """Stalls of a rank.

    Attributes:
        last: Rank that was last in each, by its place among all.
        begin: When each began, on the rank's own clock.
        exposed: Nanoseconds of it that no compute hides.
    """

    last: Places
    begin: NDArray[np.int64]
    exposed: NDArray[np.int64]


class Waits:
    """Waits and transfers of every collective, and what of them no compute hides.

    Attributes:
        paired: The collectives, on one clock.
        members: Members of each rank among them, by rank.
        wait, transfer: Nanoseconds, by member.
        stalls: Per rank: waiting that no compute hides, on the rank's own clock.
        transfers: Per rank: from the last rank's arrival to the end, whether or not compute hides
            it, on its own clock.
        charges: Per rank: its stalls one by one, each with the rank that was last in it.
        blame: Per rank: nanoseconds of all stalls for which it was the last to arrive.
        blame_shares: Blame as shares of all stalls; all 0 without stalls.
    """

    def __init__(self, ranks: list[RankWindow], paired: Paired, offsets: NDArray[np.int64]) -> None:
        self.paired = paired
        self.members = paired.by_rank(len(ranks))
        latest = paired.latest[paired.row]
        until = np.minimum(latest, paired.end)
        self.wait = np.maximum(0, until - paired.start)
        self.transfer = np.maximum(0, paired.end - np.maximum(paired.start, latest))
        self.stalls: list[IntervalSet] = []
        self.transfers: list[IntervalSet] = []
        self.charges: list[list[Charges]] = []
        self.blame = np.zeros(len(ranks))
        for column, (rank, mine) in enumerate(zip(ranks, self.members, strict=True)):
            start = paired.start[mine] + offsets[column]
            end = np.maximum(start, until[mine] + offsets[column])
            waiting = IntervalSet(start, end).clipped(rank.start, rank.end)
            self.stalls.append(waiting.minus(rank.compute))
            done = np.maximum(end, paired.end[mine] + offsets[column])
            self.transfers.append(IntervalSet(end, done).clipped(rank.start, rank.end))
            self.charges.append([])
            self._charge(rank, start, end, paired.last[paired.row[mine]])
        total = self.blame.sum()
        self.blame_shares = self.blame / total if total > 0 else self.blame

    def _charge(
        self, rank: RankWindow, start: NDArray[np.int64], end: NDArray[np.int64], last: Places
    ) -> None:
        """Charge a rank's waits, from ``start`` to ``end``, to the rank that was ``last`` in each:
        what of the union of all that one is charged with no compute hides."""
        others, number = np.unique(last, return_inverse=True)
        number = np.ravel(number)
        # The unions of all others lie one after the other, so that they are made at once.
        stride = rank.length + 1
        at_once = max(1, _MOST_NS // stride)
        for first in range(0, len(others), at_once):
            chosen = (number >= first) & (number < first + at_once)
            lane = (number[chosen] - first) * stride
            start_within = np.clip(start[chosen] - rank.start, 0, rank.length) + lane
            end_within = np.clip(end[chosen] - rank.start, 0, rank.length) + lane
            union = IntervalSet(start_within, end_within)
            which = union.start // stride
            begin = union.start - which * stride + rank.start
            finish = union.end - which * stride + rank.start
            exposed = (finish - begin) - rank.compute.within(begin, finish)
            self.charges[-1].append(Charges(others[first + which], begin, exposed))
            charged = np.bincount(which, weights=exposed, minlength=1)
            self.blame[others[first : first + len(charged)]] += charged
