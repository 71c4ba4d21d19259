"""Who waited for whom: waits and transfers of paired collectives, and what of them no compute
hides."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from torchscale.analysis.trace.intervals import IntervalSet
from torchscale.analysis.trace.pairing import Paired
from torchscale.analysis.trace.windows import RankWindow


def in_windows(paired: Paired, ranks: list[RankWindow], offsets: NDArray[np.int64]) -> Paired:
    """Collectives that began inside the window of every rank that takes part, on one clock."""
    starts = np.array([rank.start for rank in ranks])
    ends = np.array([rank.end for rank in ranks])
    inside = ((paired.start >= starts) & (paired.start < ends)) | ~paired.takes_part
    kept = paired.only(np.flatnonzero(inside.all(axis=1)))
    shift = np.where(kept.takes_part, offsets, 0)
    return replace(kept, start=kept.start - shift, end=kept.end - shift)


class Waits:
    """Waits and transfers of every collective, and what of them no compute hides.

    Attributes:
        paired: The collectives, on one clock.
        wait, transfer: Nanoseconds, a row a collective and a column a rank.
        stalls: Per rank: waiting that no compute hides, on the rank's own clock.
        transfers: Per rank: from the last rank's arrival to the end, whether or not compute hides
            it, on its own clock.
        blame: Per rank: nanoseconds of all stalls for which it was the last to arrive.
        blame_shares: Blame as shares of all stalls; all 0 without stalls.
    """

    def __init__(self, ranks: list[RankWindow], paired: Paired, offsets: NDArray[np.int64]) -> None:
        self.paired = paired
        latest = paired.latest[:, None]
        present = paired.takes_part
        until = np.minimum(latest, paired.end)
        self.wait = np.where(present, np.maximum(0, until - paired.start), 0)
        self.transfer = np.where(
            present, np.maximum(0, paired.end - np.maximum(paired.start, latest)), 0
        )
        self.stalls: list[IntervalSet] = []
        self.transfers: list[IntervalSet] = []
        self.blame = np.zeros(len(ranks))
        last = paired.last
        for column, rank in enumerate(ranks):
            start = paired.start[:, column] + offsets[column]
            end = np.maximum(start, until[:, column] + offsets[column])
            waits = present[:, column]

            def exposed(which: NDArray[np.bool_], rank: RankWindow = rank, start: NDArray[np.int64] = start,
                        end: NDArray[np.int64] = end) -> IntervalSet:  # fmt: skip
                return (
                    IntervalSet(start[which], end[which])
                    .clipped(rank.start, rank.end)
                    .minus(rank.compute)
                )

            self.stalls.append(exposed(waits))
            done = np.maximum(end, paired.end[:, column] + offsets[column])
            self.transfers.append(
                IntervalSet(end[waits], done[waits]).clipped(rank.start, rank.end)
            )
            for other in np.unique(last[waits]):
                self.blame[other] += exposed(waits & (last == other)).length
        total = self.blame.sum()
        self.blame_shares = self.blame / total if total > 0 else self.blame
