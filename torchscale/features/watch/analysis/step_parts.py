"""Parts of a step of a rank, by the moment that came last: before its first forward pass, in it, in
the backward pass, after it, loading, waiting."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from torchscale.analysis.exchanges.events import MomentKind, Moments, Times

_BEGIN = (
    MomentKind.STEP,
    MomentKind.REPLICATED,
    MomentKind.BACKWARD,
    MomentKind.BACKWARD_END,
    MomentKind.DATA,
    MomentKind.DATA_END,
    MomentKind.WAIT,
    MomentKind.WAIT_END,
)
"""Moments with which a part begins."""
PARTS = len(_BEGIN)
WHOLE = 255
"""Of a step: its parts are kept in a byte each."""
OWN = (
    "after the optimizer's step",
    "in the forward pass",
    "in the backward pass",
    "after the backward pass",
    "",
    "after loading",
    "",
    "after waiting",
)
"""What is done in each part; empty for what a rank only waits in."""
_BYTES = np.dtype(np.uint8)


@dataclass(frozen=True)
class PartBegins:
    """When parts begin.

    Attributes:
        time: Ascending.
        part: Which.
    """

    time: Times
    part: NDArray[np.int64]

    @classmethod
    def of(cls, moments: Moments, waits: Times) -> PartBegins:
        """Of these moments, and of waits that begin at these times and end by the next moment."""
        chosen = np.isin(moments.kind, _BEGIN)
        by_kind = np.argsort(_BEGIN)
        part = by_kind[np.searchsorted(_BEGIN, moments.kind[chosen], sorter=by_kind)]
        time = np.concatenate([moments.time[chosen], waits])
        part = np.concatenate([part, np.full(len(waits), _BEGIN.index(MomentKind.WAIT))])
        order = np.argsort(time, kind="stable")
        return cls(time[order], part[order])

    def until(self, time: int, later: PartBegins) -> PartBegins:
        """Before a time these, from then on others."""
        count = int(np.searchsorted(self.time, time))
        return PartBegins(
            np.concatenate([self.time[:count], later.time]),
            np.concatenate([self.part[:count], later.part]),
        )


_NOTHING = np.zeros(0, np.int64)
NO_BEGINS = PartBegins(_NOTHING, _NOTHING)


class StepShares:
    """Parts of some steps of a rank.

    Args:
        begins: At least of these steps.
        edges: When they ended, the first one of the step before.
    """

    def __init__(self, begins: PartBegins, edges: Times) -> None:
        self._time, self._part, self._edges = begins.time, begins.part, edges

    def at(self, times: Times) -> NDArray[np.int64]:
        """The part at each time."""
        if not len(self._time):
            return np.zeros(len(times), np.int64)
        place = np.searchsorted(self._time, times, side="right") - 1
        return np.where(place >= 0, self._part[place], 0)

    def shares(self, times: Times) -> NDArray[np.int64]:
        """Of each time the shares that parts have of its step, in 255ths, packed into a number."""
        bounds = np.sort(np.concatenate([self._time, self._edges]))
        bounds = bounds[(bounds >= self._edges[0]) & (bounds <= self._edges[-1])]
        seconds = np.zeros((len(self._edges) - 1, PARTS))
        step = np.searchsorted(self._edges, bounds[:-1], side="right") - 1
        known = step < len(seconds)  # several edges at one time end the last step
        np.add.at(seconds, (step[known], self.at(bounds[:-1])[known]), np.diff(bounds)[known])
        whole = np.maximum(seconds.sum(axis=1, keepdims=True), 1.0)
        packed = np.rint(seconds / whole * WHOLE).astype(_BYTES).view(np.int64)[:, 0]
        mine = np.searchsorted(self._edges, times, side="right") - 1
        inside = (mine >= 0) & (mine < len(packed))
        return np.where(inside, packed[np.clip(mine, 0, len(packed) - 1)], 0)


def mean_shares(packed: NDArray[np.int64]) -> NDArray[np.float64]:
    """The mean share of each part, of times without any of the first one. Samples come at a steady
    rate, so that a step counts by its length."""
    shares = np.ascontiguousarray(packed).view(_BYTES).reshape(-1, PARTS) / WHOLE
    shares[shares.sum(axis=1) == 0, 0] = 1.0
    return shares.mean(axis=0) if len(shares) else np.zeros(PARTS)
