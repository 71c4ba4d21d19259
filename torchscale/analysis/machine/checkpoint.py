"""Rates of saving and loading, and what training loses to them, from what ranks measured."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from torchscale.schema.cells.checkpoint import AsyncSaveSample, CheckpointRank, CheckpointResult
from torchscale.util.units import format_bytes, format_percent

MIN_STEPS = 3
"""Minimum number of steps during an asynchronous save for a rate of steps: of one or two, the first
has the copy's end in it."""
_RESIDENT_LIMIT = 0.01
"""Largest share of pages that may be in memory before a load: the kernel keeps a few that another
process has mapped, or that were read ahead; they make the rate at most as much too high."""
_FETCHED_LIMIT = 0.95
"""Smallest share of the files' bytes that must come from a device: besides them only metadata is
read, so that what is missing came from memory, or was not counted."""


class Coldness(str, Enum):
    """Whether a load came from the disk; values are what files show."""

    PROVED = "proved"
    """No page was in memory before, and the kernel counted every byte fetched from a device."""
    NOT_PROVED = "not proved"
    """Pages were dropped, but the kernel did not count what was fetched instead."""
    WARM = "warm"
    """Pages were in memory."""


@dataclass(frozen=True)
class SaveFigures:
    """A synchronous save of all ranks: bytes, seconds of the call (the slowest rank's), bytes per
    second over all ranks, and how long training stopped."""

    payload_bytes: int
    seconds: float
    bytes_per_second: float
    stop_seconds: float


@dataclass(frozen=True)
class LoadFigures:
    """A load by all ranks, as :class:`SaveFigures`; ``payload_bytes`` counts the checkpoint's files
    once. ``doubt`` says in words why it is not proved cold."""

    payload_bytes: int
    seconds: float
    bytes_per_second: float
    cold: Coldness
    doubt: str


@dataclass(frozen=True)
class AsyncSaveFigures:
    """An asynchronous save of all ranks.

    Attributes:
        payload_bytes: Bytes of all ranks.
        stop_seconds: How long training stopped: the slowest rank's.
        durable_seconds: From the stop's begin until the disk had all of it.
        steps_before, steps_during, steps_after: Number of steps.
        rate_before, rate_during, rate_after: Steps per second; ``None`` without steps.
        slowed: Share of the rate before and after that was missing during the save; ``None`` where
            it ended within too few steps.
        scatter: By which share the rates before and after differ from each other.
        host_bytes: Copies of the state in a host's memory, all its ranks together: the fullest
            host's.
    """

    payload_bytes: int
    stop_seconds: float
    durable_seconds: float
    steps_before: int
    steps_during: int
    steps_after: int
    rate_before: float
    rate_during: float | None
    rate_after: float
    slowed: float | None
    scatter: float
    host_bytes: int


@dataclass(frozen=True)
class RankRates:
    """Bytes per second of one rank while it wrote, and while it read; medians over repeats, ``None``
    where it had nothing to write or read. ``load`` is of loads that were not warm."""

    rank: int
    payload_bytes: int
    save: float | None
    load: float | None


@dataclass(frozen=True)
class CheckpointFigures:
    """What a checkpoint costs. Single figures are medians over the repeats of all launches, which
    are all here.

    Attributes:
        place, filesystem: Directory that was judged, and its type.
        state_bytes: Values of the state: what was predicted.
        saves, loads, async_saves: Each repeat.
        ranks: Each rank's own rates.
        not_async: Why asynchronous saves were not measured; empty where they were or not asked for.
    """

    place: str
    filesystem: str
    state_bytes: int
    saves: tuple[SaveFigures, ...]
    loads: tuple[LoadFigures, ...]
    async_saves: tuple[AsyncSaveFigures, ...]
    ranks: tuple[RankRates, ...]
    not_async: str = ""

    @property
    def payload_bytes(self) -> int:
        """Bytes of a checkpoint."""
        return self.saves[0].payload_bytes

    @property
    def save_bytes_per_second(self) -> float:
        """Rate of a synchronous save over all ranks."""
        return statistics.median(save.bytes_per_second for save in self.saves)

    @property
    def stop_seconds(self) -> float:
        """How long training stops for a synchronous save."""
        return statistics.median(save.stop_seconds for save in self.saves)

    @property
    def coldness(self) -> Coldness:
        """The worst of all loads."""
        found = {load.cold for load in self.loads}
        return next(
            one for one in (Coldness.WARM, Coldness.NOT_PROVED, Coldness.PROVED) if one in found
        )

    @property
    def doubt(self) -> str:
        """Why a load is not proved cold; empty where all are."""
        return next((load.doubt for load in self.loads if load.cold is self.coldness), "")

    @property
    def load_bytes_per_second(self) -> float | None:
        """Rate of a load over all ranks; ``None`` where one was warm, so that it says nothing of the
        disk."""
        if self.coldness is Coldness.WARM:
            return None
        return statistics.median(load.bytes_per_second for load in self.loads)

    @property
    def cold_bytes_per_second(self) -> float | None:
        """The same where every load is proved cold."""
        if self.coldness is not Coldness.PROVED:
            return None
        return self.load_bytes_per_second

    @property
    def async_stop_seconds(self) -> float | None:
        """How long training stops for an asynchronous save; ``None`` where none was measured."""
        return _median(save.stop_seconds for save in self.async_saves)

    @property
    def durable_seconds(self) -> float | None:
        """How long until an asynchronous save is on the disk."""
        return _median(save.durable_seconds for save in self.async_saves)

    @property
    def slowed(self) -> float | None:
        """Share of the rate of steps that an asynchronous save takes; ``None`` where each ended
        within too few steps."""
        return _median(save.slowed for save in self.async_saves if save.slowed is not None)

    @property
    def is_slowing_shown(self) -> bool:
        """Whether the slowing is more than rates before and after scatter."""
        scatter = max((save.scatter for save in self.async_saves), default=0.0)
        return self.slowed is not None and abs(self.slowed) > scatter

    @property
    def scatter(self) -> float:
        """The most by which rates before and after a save differ."""
        return max((save.scatter for save in self.async_saves), default=0.0)

    @property
    def host_bytes(self) -> int | None:
        """Memory that the copies of an asynchronous save take of a host; ``None`` where none was
        measured."""
        return max((save.host_bytes for save in self.async_saves), default=None)


def checkpoint_figures(results: Sequence[CheckpointResult]) -> CheckpointFigures:
    """The figures of ``ok`` launches, with every repeat of each."""
    launches = [result.ranks for result in results]
    first = launches[0][0]
    return CheckpointFigures(
        place=first.place,
        filesystem=first.filesystem,
        state_bytes=first.state_bytes,
        saves=tuple(
            _save(ranks, number) for ranks in launches for number in range(len(ranks[0].saves))
        ),
        loads=tuple(
            _load(ranks, number) for ranks in launches for number in range(len(ranks[0].loads))
        ),
        async_saves=tuple(
            _async_save(ranks, number)
            for ranks in launches
            for number in range(len(ranks[0].async_saves))
        ),
        ranks=tuple(
            _rank_rates([ranks[number] for ranks in launches]) for number in range(len(launches[0]))
        ),
        not_async=first.not_async,
    )


def _save(ranks: Sequence[CheckpointRank], number: int) -> SaveFigures:
    samples = [rank.saves[number] for rank in ranks]
    payload, seconds = (
        sum(one.payload_bytes for one in samples),
        max(one.seconds for one in samples),
    )
    stop = max(one.stop_seconds for one in samples)
    return SaveFigures(payload, seconds, payload / seconds, stop)


def _load(ranks: Sequence[CheckpointRank], number: int) -> LoadFigures:
    seconds = max(rank.loads[number].seconds for rank in ranks)
    payload = sum(rank.saves[number].payload_bytes for rank in ranks)
    cold, doubt = judge_cold(ranks, number)
    return LoadFigures(payload, seconds, payload / seconds, cold, doubt)


def judge_cold(ranks: Sequence[CheckpointRank], number: int) -> tuple[Coldness, str]:
    """Whether load ``number`` came from the disk, by the kernel's counters; and why not in words."""
    samples = [rank.loads[number] for rank in ranks]
    known = [one.resident_share for one in samples if one.resident_share is not None]
    resident = max(known, default=0.0)
    if resident > _RESIDENT_LIMIT:
        share = format_percent(resident, 0)
        return Coldness.WARM, f"{share} of its pages were still in memory when it began"
    if len(known) < len(samples):
        return Coldness.NOT_PROVED, "the kernel does not say which pages were in memory"
    fetched = [one.device_bytes for one in samples if one.device_bytes is not None]
    if len(fetched) < len(samples):
        return Coldness.NOT_PROVED, "the kernel does not count here what is fetched from devices"
    needed = sum(rank.saves[number].payload_bytes for rank in ranks)
    if sum(fetched) < _FETCHED_LIMIT * needed:
        return Coldness.NOT_PROVED, (
            f"no page was in memory when it began, but the kernel counted "
            f"{format_bytes(sum(fetched))} of {format_bytes(needed)} fetched from a device: network "
            "and memory file systems are not counted"
        )
    return Coldness.PROVED, ""


def _async_save(ranks: Sequence[CheckpointRank], number: int) -> AsyncSaveFigures:
    samples = [rank.async_saves[number] for rank in ranks]
    before = _rate(one.before for one in samples)
    after = _rate(one.after for one in samples)
    first, during = samples[0], None
    if first.during:
        during = _rate(one.during for one in samples)
    usual = _rate((*one.before, *one.after) for one in samples)
    slowed = None
    if during is not None and len(first.during) >= MIN_STEPS:
        slowed = 1 - during / usual
    return AsyncSaveFigures(
        payload_bytes=sum(one.payload_bytes for one in samples),
        stop_seconds=max(one.stop_seconds for one in samples),
        durable_seconds=max(one.durable_seconds for one in samples),
        steps_before=len(first.before),
        steps_during=len(first.during),
        steps_after=len(first.after),
        rate_before=before,
        rate_during=during,
        rate_after=after,
        slowed=slowed,
        scatter=abs(before - after) / usual,
        host_bytes=_host_bytes(ranks, samples),
    )


def _rate(steps: Iterable[Sequence[float]]) -> float:
    """Steps per second of the slowest rank."""
    return min(len(seconds) / math.fsum(seconds) for seconds in steps)


def _host_bytes(ranks: Sequence[CheckpointRank], samples: Sequence[AsyncSaveSample]) -> int:
    by_host: dict[str, int] = {}
    for rank, sample in zip(ranks, samples, strict=True):
        by_host[rank.hostname] = by_host.get(rank.hostname, 0) + sample.host_bytes
    return max(by_host.values())


def _rank_rates(records: Sequence[CheckpointRank]) -> RankRates:
    """One rank's rates over its records of all launches."""
    saves = [save for record in records for save in record.saves]
    loads = [load for record in records for load in record.loads]
    warm = any((load.resident_share or 0.0) > _RESIDENT_LIMIT for load in loads)
    load_rate = None
    if not warm:
        load_rate = _median(
            one.payload_bytes / one.read_seconds for one in loads if one.read_seconds > 0
        )
    return RankRates(
        records[0].rank,
        saves[0].payload_bytes,
        _median(one.payload_bytes / one.write_seconds for one in saves if one.payload_bytes),
        load_rate,
    )


def _median(values: Iterable[float]) -> float | None:
    known = list(values)
    if known:
        return statistics.median(known)
    return None
