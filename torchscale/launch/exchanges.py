"""What the ranks of a launch noted of their collectives, paired over ranks: who waited for whom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import numpy as np
from pydantic import ValidationError

from torchscale.analysis.exchanges.arrivals import find_arrivals
from torchscale.analysis.exchanges.events import (
    Calls,
    CoreTime,
    MomentKind,
    Moments,
    RankEvents,
    Times,
)
from torchscale.analysis.exchanges.steps import step_edges, step_times
from torchscale.analysis.training.exchange_waits import PairedWaits
from torchscale.schema.launch.exchanges import ExchangeBatch, exchanges_file
from torchscale.schema.launch.rank import RankRecord
from torchscale.util.files import read_bounded

_MAX_BYTES = 256 << 20
"""Of a rank; the worker keeps some 10 MB."""
_LARGEST = 1 << 62
"""Above any of nanoseconds, and sums of two of them have 64 bits."""
_NO_TIMES: Times = np.zeros(0, np.int64)


def paired_waits(directory: Path, ranks: Sequence[RankRecord]) -> PairedWaits | None:
    """For whom each rank waited in each measured step.

    ``None`` where a rank noted nothing, where ranks are on several hosts, which have several clocks,
    and where a rank's file does not fit its record.
    """
    if len(ranks) < 2 or len({rank.hostname for rank in ranks}) > 1:
        return None
    noted = [_read(directory / exchanges_file(rank.rank)) for rank in ranks]
    batches = min(map(len, noted))
    sizes = ranks[0].batches.steps[:batches]
    if not sizes:
        return None
    shared = _Shared({rank.rank: row for row, rank in enumerate(ranks)})
    events = [shared.events(batches_of_rank[:batches]) for batches_of_rank in noted]
    edges = [step_edges(one.moments) for one in events]
    if any(len(edge) != sum(sizes) + batches for edge in edges):
        return None
    arrivals = find_arrivals([one.calls for one in events], shared.groups)
    times, _ = step_times(events, arrivals, edges, 0)
    # Between two batches lies a column that is no step.
    between = [*accumulate(size + 1 for size in sizes)][:-1]
    steps = np.delete(np.arange(len(times)), [end - 1 for end in between])
    whole = [all(of_rank[batch].lost == 0 for of_rank in noted) for batch in range(batches)]
    complete = np.repeat(whole, sizes)
    includes_sync = all(batch.includes_sync for of_rank in noted for batch in of_rank)
    transfer = (times.transfer + times.bubble)[:, steps]
    return PairedWaits(
        times.wait[:, steps], transfer, times.blame[:, steps], complete, includes_sync
    )


@dataclass
class _Shared:
    """Numbers of process groups and collectives that all ranks share."""

    rows: dict[int, int]

    def __post_init__(self) -> None:
        self._groups: dict[tuple[str, tuple[int, ...]], int] = {}
        self._names: dict[tuple[str, str, int], int] = {}

    @property
    def groups(self) -> list[tuple[int, list[int]]]:
        """Number of each group, and rows of its ranks."""
        return [
            (number, [self.rows[rank] for rank in members if rank in self.rows])
            for (_, members), number in self._groups.items()
        ]

    def events(self, batches: Sequence[ExchangeBatch]) -> RankEvents:
        """What a rank noted in these batches, with shared numbers."""
        marks = np.array([mark for batch in batches for mark in batch.marks], np.int64)
        calls = [self._call(batch, call) for batch in batches for call in batch.calls]
        table = np.array(calls, np.int64).reshape(-1, 4)
        order = np.argsort(table[:, 0], kind="stable")
        moments = Moments.unpacked(marks, batches[0].start_ns)
        numbered = Calls(*(table[order, column] for column in range(4)))
        if any(batch.includes_sync for batch in batches):
            moments = _from_last_call(moments, numbered)
        return RankEvents(moments, numbered, CoreTime(_NO_TIMES, _NO_TIMES))

    def _call(self, batch: ExchangeBatch, call: tuple[int, int, int]) -> tuple[int, int, int, int]:
        time, sequence, key = call
        name = batch.names[key]
        group = (name[0], batch.groups.get(name[0], ()))
        number = self._groups.setdefault(group, len(self._groups))
        return time, sequence, number, self._names.setdefault(name, len(self._names))


def _from_last_call(moments: Moments, calls: Calls) -> Moments:
    """With waits that begin with the last call within them: what DistributedDataParallel exchanges is
    called after the last gradient, from which on it was noted to wait."""
    begins = np.flatnonzero(moments.kind == MomentKind.WAIT)
    ends = np.flatnonzero(moments.kind == MomentKind.WAIT_END)
    if len(begins) != len(ends) or not len(calls.time):
        return moments
    place = np.searchsorted(calls.time, moments.time[ends], side="right") - 1
    last = calls.time[np.maximum(place, 0)]
    inside = (place >= 0) & (last > moments.time[begins])
    time = moments.time.copy()
    time[begins[inside]] = last[inside]
    return Moments(time, moments.kind, moments.detail)


def _read(path: Path) -> list[ExchangeBatch]:
    """Nothing where the file is missing or damaged: waits are then judged by their totals."""
    try:
        lines = read_bounded(path, _MAX_BYTES).splitlines()
        batches = [ExchangeBatch.model_validate_json(line) for line in lines]
    except (OSError, ValidationError):
        return []
    if all(_fits(batch) for batch in batches):
        return batches
    return []


def _fits(batch: ExchangeBatch) -> bool:
    """Whether its numbers are what a rank notes: keys that have names, moments of 64 bits."""
    keys = [key for _, _, key in batch.calls]
    numbers = [batch.start_ns, *batch.marks, *(number for call in batch.calls for number in call)]
    known = all(0 <= key < len(batch.names) for key in keys)
    return known and all(0 <= number < _LARGEST for number in numbers)
