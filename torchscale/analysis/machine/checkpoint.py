"""Rates of saving and loading, and what training loses to them, from what ranks measured."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence

from torchscale.schema.cells.checkpoint import AsyncSaveSample, CheckpointRank, CheckpointResult
from torchscale.schema.exports.checkpoint import (
    AsyncSaveFigures,
    CheckpointFigures,
    Coldness,
    LoadFigures,
    RankRates,
    SaveFigures,
    worst,
)
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


_BUSY = 0.7
"""Share of the time in which ranks compute, from which the processor is said to limit them: at most
30 % of the time then went to waiting for the disk, so that a disk without any wait would make
little difference."""


def checkpoint_figures(results: Sequence[CheckpointResult]) -> CheckpointFigures:
    """The figures of ``ok`` launches, with every repeat of each."""
    launches = [result.ranks for result in results]
    first = launches[0][0]
    saves = tuple(
        _save(ranks, number) for ranks in launches for number in range(len(ranks[0].saves))
    )
    loads = tuple(
        _load(ranks, number) for ranks in launches for number in range(len(ranks[0].loads))
    )
    asyncs = tuple(
        _async_save(ranks, number)
        for ranks in launches
        for number in range(len(ranks[0].async_saves))
    )
    ranks = tuple(
        _rank_rates([ranks[number] for ranks in launches]) for number in range(len(launches[0]))
    )
    coldness, load_rate = worst(loads).cold, _median(load.bytes_per_second for load in loads)
    return CheckpointFigures(
        place=first.place,
        filesystem=first.filesystem,
        state_bytes=first.state_bytes,
        payload_bytes=saves[0].payload_bytes,
        save_bytes_per_second=statistics.median(save.bytes_per_second for save in saves),
        load_bytes_per_second=None if coldness is Coldness.WARM else load_rate,
        cold_bytes_per_second=load_rate if coldness is Coldness.PROVED else None,
        stop_seconds=statistics.median(save.stop_seconds for save in saves),
        async_stop_seconds=_median(save.stop_seconds for save in asyncs),
        durable_seconds=_median(save.durable_seconds for save in asyncs),
        slowed=_median(save.slowed for save in asyncs if save.slowed is not None),
        host_bytes=max((save.host_bytes for save in asyncs), default=None),
        busy_ways=_busy_ways(ranks),
        saves=saves,
        loads=loads,
        async_saves=asyncs,
        ranks=ranks,
        not_async=first.not_async,
    )


def _busy_ways(ranks: Sequence[RankRates]) -> tuple[str, ...]:
    shares = {
        "saving": [one.save_cpu for one in ranks if one.save_cpu is not None],
        "loading": [one.load_cpu for one in ranks if one.load_cpu is not None],
    }
    return tuple(
        way for way, found in shares.items() if found and statistics.median(found) >= _BUSY
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
            one.payload_bytes / one.read_seconds for one in loads if one.payload_bytes
        )
    return RankRates(
        records[0].rank,
        saves[0].payload_bytes,
        _median(one.payload_bytes / one.write_seconds for one in saves if one.payload_bytes),
        load_rate,
        _median(one.write_cpu_seconds / one.write_seconds for one in saves if one.payload_bytes),
        _median(one.read_cpu_seconds / one.read_seconds for one in loads if one.payload_bytes),
    )


def _median(values: Iterable[float]) -> float | None:
    known = list(values)
    if known:
        return statistics.median(known)
    return None
