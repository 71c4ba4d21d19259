"""Where a rank that is slower than its peers loses the time, and so where to look."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np

from torchscale.analysis.diagnosis.shared import EXPLAINED_SHARE
from torchscale.analysis.diagnosis.signals import SignalOrigin, Signals, SignalSeries
from torchscale.util.units import format_percent, format_seconds


class SlowPart(Enum):
    """What takes longer on a slow rank."""

    HOST = "host code"
    WORK = "kernels or operators"
    UNKNOWN = "not known"
    """Signals of a launch time phases: what runs in them only a recording tells."""


@dataclass(frozen=True)
class SlowRank:
    """A rank beside its peers.

    Attributes:
        row: Row of the rank, in the signals.
        peers: Rows of ranks with equal work.
        excess: Seconds a step that the rank takes longer by itself.
    """

    row: int
    peers: tuple[int, ...]
    excess: float

    def place(self, signals: Signals) -> SlowPart:
        """Where more than half of the excess is."""
        if self._exceeds(signals.host_bound):
            return SlowPart.HOST
        return SlowPart.WORK if self._exceeds(signals.busy) else SlowPart.UNKNOWN

    def where(self, signals: Signals) -> str:
        """``its operators take 46 % longer than the others'``: the times are those of the table of
        ranks. Empty where the place is not known."""
        if signals.host_bound is not None and self._exceeds(signals.host_bound):
            mine, others = self._beside(signals.host_bound)
            what = "its host code between operators takes"
            if signals.on_device:
                what = "the device waits for its host"
            return f"{what} {format_seconds(mine)} a step, the others' {format_seconds(others)}"
        if signals.busy is not None and self._exceeds(signals.busy):
            mine, others = self._beside(signals.busy)
            what = "kernels" if signals.on_device else "operators"
            longer = format_percent(mine / others - 1, 0) if others else format_seconds(mine)
            return f"its {what} take {longer} longer than the others'"
        return ""

    def advice(self, signals: Signals, peers: str) -> str:
        """What to look at; ``peers`` are whom to compare the rank with, such as ``the others``."""
        rank = signals.ranks[self.row]
        place = self.place(signals)
        if place is SlowPart.HOST:
            return (
                f"look at what rank {rank}'s process does between operators: Python code that only "
                "this rank runs (logging, checks, metrics), loading and preparing data, garbage "
                "collection, other processes on its cores, CPU frequency and binding; py-spy shows "
                "the line"
            )
        share = "its share of the data"
        if signals.on_device:
            return (
                f"compare rank {rank}'s device with {peers} (clocks, temperature, ECC, PCIe width, "
                f"NUMA binding, other processes) and {share}; swap it to see whether slowness "
                "moves with the device"
            )
        look = (
            f"compare rank {rank}'s cores with {peers} (other processes, frequency, number of "
            f"threads, NUMA binding) and {share}"
        )
        if place is SlowPart.WORK or signals.origin is SignalOrigin.TRACE:
            return look
        return f"{look}; torchscale profile tells operators from Python code"

    def _exceeds(self, values: SignalSeries | None) -> bool:
        if values is None:
            return False
        mine, others = self._beside(values)
        return mine - others > EXPLAINED_SHARE * self.excess

    def _beside(self, values: SignalSeries) -> tuple[float, float]:
        """The rank's value and the median of its peers'."""
        return float(values[self.row]), float(np.median(values[list(self.peers)]))
