"""The always-on signals of a launch: from its record to what rules judge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from torchscale.analysis.diagnosis.signals import (
    FetchedMemory,
    LengthLoad,
    LinkProbe,
    Pauses,
    SignalOrigin,
    Signals,
    SignalSeries,
    SlowPeriod,
    Windows,
)
from torchscale.analysis.training.expert_load import (
    beyond_the_mean,
    expert_load,
)
from torchscale.analysis.training.flags import other_processes_shares
from torchscale.analysis.training.throughput import mean_step_seconds
from torchscale.config.strategies.model_parallel import PipelineBase
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.launch.rank import RankRecord
from torchscale.schema.launch.signals import (
    LinkSample,
    PeriodDigest,
    RankSignals,
    SignalDigest,
    StepWindows,
)
from torchscale.schema.launch.training import TrainingResult
from torchscale.util.optional import complete, optional


def launch_signals(result: TrainingResult, cell: TrainingCell | None = None) -> Signals | None:
    """What the rules judge of an ``ok`` launch; ``None`` where its ranks left no steps.

    Args:
        result: Result of the launch.
        cell: Whose launch it is; without it the stages of a pipeline are not known.

    Raises:
        ValueError: the signals are of another number of ranks, or of none of the batches.
    """
    digest, ranks = result.signals, result.ranks
    if digest is None or not ranks:
        return None
    _check_form(digest, len(ranks))
    compute, experts = np.array(digest.compute), expert_load(result, cell, digest)
    if experts is not None:
        compute = compute - beyond_the_mean(experts.seconds)
    if digest.length_seconds is not None:
        compute = compute - np.array(digest.length_seconds)
    degrees = optional(lambda known: known.degrees, cell)
    signals = Signals(
        origin=SignalOrigin.LAUNCH,
        ranks=tuple(rank.rank for rank in ranks),
        step_seconds=mean_step_seconds(result),
        steps=result.measured_steps,
        weights=_batch_steps(result, digest),
        compute=compute,
        data_wait=np.array(digest.data_wait),
        wait=optional(np.array, digest.wait),
        blame=optional(np.array, digest.blame),
        transfer=optional(np.array, digest.transfer),
        exposed_p50=digest.exposed_p50,
        exposed_p95=digest.exposed_p95,
        windows=_read_windows(digest.windows),
        periods=tuple(map(_read_period, digest.periods)),
        other_processes=optional(np.array, other_processes_shares(ranks)),
        fetched_memory=_fetched_memory(ranks),
        on_device=ranks[0].device.kind != "cpu",
        split_sequences=degrees is not None and degrees.context > 1,
        staged=degrees is not None and degrees.pipeline > 1,
        stages=_stages(cell, result),
        why_no_stages="forward passes contain collectives of the ranks that share a stage, and so "
        "waits for others",
        micro_batches=_micro_batches(cell),
        hosts=tuple(rank.hostname for rank in ranks),
        experts=experts,
        lengths=_length_load(digest),
    )
    beside = [rank.signals for rank in ranks]
    return _with_counters(signals, digest, beside)


def _length_load(digest: SignalDigest) -> LengthLoad | None:
    if digest.length_wait_seconds is None or digest.computed_tokens_per_rank is None:
        return None
    return LengthLoad(digest.length_wait_seconds, digest.computed_tokens_per_rank)


def _with_counters(
    signals: Signals, digest: SignalDigest, beside: Sequence[RankSignals | None]
) -> Signals:
    """Add what each rank recorded beside its steps."""
    counted = [item for item in beside if item is not None]
    if not counted:
        return replace(signals, pauses=_pauses(digest, None))
    links = [item.link for item in counted if item.link is not None]
    retries = [item.allocation_retries for item in counted if item.allocation_retries is not None]
    collection_seconds = max(item.collection_seconds for item in counted) / signals.steps
    unsynchronized = throttled = None
    if len(counted) == len(beside):
        unsynchronized = complete(item.unsynchronized_seconds for item in counted)
        throttled = complete(item.throttle_reasons for item in counted)
    return replace(
        signals,
        probe=_slowest(links),
        link_bytes_per_second=_lowest_rating(links),
        pauses=_pauses(digest, collection_seconds),
        page_faults=max(item.page_faults for item in counted) / signals.steps,
        allocation_retries=sum(retries) if retries else None,
        bucket_bytes=None if beside[0] is None else beside[0].bucket_bytes,
        unsynchronized=optional(_series, unsynchronized),
        throttled=optional(tuple, throttled),
    )


def _series(by_rank: Sequence[Sequence[float]]) -> tuple[SignalSeries, ...]:
    return tuple(np.array(values) for values in by_rank)


def _pauses(digest: SignalDigest, collection_seconds: float | None) -> Pauses | None:
    if digest.long_steps is None or digest.long_step_seconds is None:
        return None
    return Pauses(
        digest.long_steps,
        digest.long_step_seconds,
        collection_seconds,
        digest.long_step_seconds_by_rank,
    )


def _lowest_rating(links: Sequence[LinkSample]) -> float | None:
    """Bytes per second; ``None`` where a link is not rated."""
    ratings = complete(link.rated_bytes_per_second for link in links)
    if not ratings:
        return None
    return min(ratings)


def _micro_batches(cell: TrainingCell | None) -> int | None:
    if cell is None or cell.degrees.pipeline == 1 or not isinstance(cell.strategy, PipelineBase):
        return None
    return cell.strategy.pieces(cell.degrees)


def _stages(
    cell: TrainingCell | None, result: TrainingResult
) -> tuple[tuple[int, ...], ...] | None:
    """Ranks of each stage; ``None`` without a pipeline, and where forward passes wait for parts of
    other ranks and that was not taken apart."""
    if cell is None:
        return None
    degrees = cell.degrees
    if degrees.pipeline == 1:
        return None
    is_apart = result.steps is not None and result.steps.mean_sync is not None
    if max(degrees.shard, degrees.tensor, degrees.expert, degrees.context) > 1 and not is_apart:
        return None
    ranks = range(degrees.world_size)
    return tuple(
        tuple(rank for rank in ranks if degrees.coordinate(rank).pipeline == stage)
        for stage in range(degrees.pipeline)
    )


def _read_windows(windows: StepWindows | None) -> Windows | None:
    if windows is None:
        return None
    steps, wall, compute, quiet = (
        np.array(series, dtype=np.float64)
        for series in (windows.steps, windows.wall_us, windows.compute_us, windows.quiet_us)
    )
    if (
        min(compute.min(initial=0), quiet.min(initial=0)) < 0
    ):  # a bound on each of many values takes as long as reading
        raise ValueError("times of its windows below 0")
    return Windows(steps, wall * 1e-6, compute * 1e-6, quiet * 1e-6)


def _read_period(period: PeriodDigest) -> SlowPeriod:
    return SlowPeriod(
        row=period.rank,
        steps=period.steps,
        excess=period.excess_seconds,
        cost=period.cost_seconds,
        times=period.times,
        length=period.length,
        is_exact=period.is_exact,
        first=period.first_step,
    )


def _fetched_memory(ranks: Sequence[RankRecord]) -> FetchedMemory | None:
    """Memory that the rank that loses most by it fetched anew in each step; ``None`` on devices,
    and where a rank did not count."""
    found = []
    for rank in ranks:
        if rank.signals is None or rank.device.kind != "cpu":
            return None
        faults = rank.signals.minor_faults
        if faults is None:
            return None
        pages = max(0.0, faults.per_step - faults.grown_pages_per_step)
        seconds = min(pages * faults.seconds_each, faults.kernel_seconds_per_step)
        lost = FetchedMemory(rank.rank, pages, seconds)
        if rank.allocator is not None:
            lost = replace(lost, setting=rank.allocator.setting)
        found.append(lost)
    return max(found, key=lambda item: item.seconds_per_step)


def _batch_steps(result: TrainingResult, digest: SignalDigest) -> NDArray[np.float64]:
    """Steps of each batch: what it counts in a mean."""
    steps = result.ranks[0].batches.steps
    if len(steps) != len(digest.compute[0]):
        raise ValueError(
            f"signals of {len(digest.compute[0])} batches for {len(steps)} timed batches"
        )
    return np.array(steps, dtype=float)


def _check_form(digest: SignalDigest, ranks: int) -> None:
    further = (
        digest.wait,
        digest.expert_tokens_per_rank,
        digest.expert_seconds,
        digest.length_seconds,
    )
    by_rank = [digest.compute, digest.data_wait, *(one for one in further if one is not None)]
    counts = {len(series) for matrix in by_rank for series in matrix}
    if any(len(matrix) != ranks for matrix in by_rank) or len(counts) != 1 or 0 in counts:
        raise ValueError(f"its signals are not of {ranks} ranks with as many batches each")
    if digest.transfer is not None and {len(digest.transfer)} != counts:
        raise ValueError(
            f"{len(digest.transfer)} batches of transfer for {counts.pop()} of compute"
        )
    if digest.blame is not None and len(digest.blame) != ranks:
        raise ValueError(f"{len(digest.blame)} shares of the blame for {ranks} ranks")
    loads = digest.computed_tokens_per_rank
    if loads is not None and len(loads) != ranks:
        raise ValueError(f"loads of {len(loads)} ranks for {ranks}")
    if any(period.rank is not None and period.rank >= ranks for period in digest.periods):
        raise ValueError(f"a period of a rank beyond its {ranks}")
    windows = digest.windows
    if windows is not None:
        lengths = {len(windows.wall_us), *map(len, windows.compute_us), *map(len, windows.quiet_us)}
        if (
            len(windows.compute_us) != ranks
            or len(windows.quiet_us) != ranks
            or lengths != {len(windows.steps)}
        ):
            raise ValueError(f"its windows are not of {ranks} ranks with as many windows each")


def _slowest(links: Sequence[LinkSample]) -> LinkProbe | None:
    """The group's: an all-reduce is over when its slowest rank is done."""
    if not links:
        return None
    return LinkProbe(
        links[0].payload_bytes,
        max(link.as_bucketed_seconds for link in links),
        max(link.merged_seconds for link in links),
    )
