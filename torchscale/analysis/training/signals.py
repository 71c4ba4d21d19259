"""The always-on signals of a launch: from the steps of all ranks to a digest, and from records to
what rules judge."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from torchscale.analysis.diagnosis.signals import (
    FetchedMemory,
    LengthLoad,
    LinkProbe,
    Matrix,
    Pauses,
    SignalOrigin,
    Signals,
    SignalSeries,
    Windows,
)
from torchscale.analysis.diagnosis.step_windows import rare_long_steps, step_windows
from torchscale.analysis.training.document_load import (
    LengthEffect,
    length_effect,
    waiting_for_length,
)
from torchscale.analysis.training.expert_load import (
    beyond_the_mean,
    expert_load,
    steps_beyond_the_mean,
)
from torchscale.analysis.training.flags import other_processes_shares
from torchscale.analysis.training.throughput import mean_step_seconds
from torchscale.config.strategies.model_parallel import PipelineBase
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.launch.rank import RankRecord
from torchscale.schema.launch.signals import LinkSample, RankSignals, SignalDigest, StepWindows
from torchscale.schema.launch.steps import StepSample
from torchscale.schema.launch.training import TrainingResult
from torchscale.util.optional import complete, optional

_DECIMALS = 9
"""Nanoseconds, below what any clock here resolves: half the digits of a record of many ranks."""


@dataclass(frozen=True)
class PairedWaits:
    """What ranks waited for within the phases of a step, by the moments at which each of them called
    each collective; seconds, a row a rank and a column a step.

    Attributes:
        wait: For ranks that called it later.
        transfer: Blocked once all had.
        blame: The others' waiting for this rank.
        complete: Whether all collectives of a step are known, by step.
        includes_sync: Whether the exchanges of gradients and buffers are among them.
    """

    wait: Matrix
    transfer: Matrix
    blame: Matrix
    complete: NDArray[np.bool_]
    includes_sync: bool = False


def digest_signals(
    ranks: Sequence[Sequence[StepSample]],
    batch_steps: Sequence[int],
    paired: PairedWaits | None = None,
) -> SignalDigest:
    """What the diagnosis needs of the steps of all ranks.

    The rank that waits least for an exchange is the one that came last to it, so its exposed time
    is the transfer, and what the others' exceed it by is waiting: no clock needs to be shared. The
    exchanges of a step are taken apart: that of the buffers before the forward pass, that of the
    gradients, and all that is waited for within the phases. The last are many, and each may have
    another last rank: where it is known who called each when (``paired``), that decides.
    Of a user's script waiting and transfer are known step by step.
    """
    compute = np.array([[step.compute for step in steps] for steps in ranks])
    data = np.array([[step.data_wait for step in steps] for steps in ranks])
    edges = list(itertools.pairwise([0, *itertools.accumulate(batch_steps)]))

    def by_batch(values: NDArray[np.float64]) -> tuple[tuple[float, ...], ...]:
        return tuple(
            tuple(round(float(row[begin:end].mean()), _DECIMALS) for begin, end in edges)
            for row in values
        )

    digest = SignalDigest(compute=by_batch(compute), data_wait=by_batch(data))
    experts = complete(step.experts for steps in ranks for step in steps)
    if experts is not None:
        tokens, took = (
            np.array([float(getattr(step, name)) for step in experts]).reshape(compute.shape)
            for name in ("tokens_per_rank", "seconds")
        )
        digest = digest.model_copy(
            update={"expert_tokens_per_rank": by_batch(tokens), "expert_seconds": by_batch(took)}
        )
    lengths = length_effect(ranks)
    even = compute
    if lengths is not None:
        explained = lengths.explained(compute)
        even = compute - explained
        digest = _with_lengths(digest, ranks, explained, by_batch(explained))
    unknown = any(step.sync is None for steps in ranks for step in steps)
    if len(ranks) > 1 and (unknown or _is_pipeline(ranks)):
        return digest.model_copy(update={"windows": _unsynchronized_windows(ranks, compute)})
    pauses = rare_long_steps(even + data)
    if pauses is not None:
        digest = digest.model_copy(
            update={
                "long_steps": pauses.count,
                "long_step_seconds": pauses.seconds_per_step,
                "long_step_seconds_by_rank": pauses.by_rank,
            }
        )
    if len(ranks) < 2:
        return digest
    waits = _own_waits(ranks) or _waits(ranks, paired)
    return digest.model_copy(
        update={
            "wait": by_batch(waits.wait),
            "transfer": by_batch(waits.transfer[None, :])[0],
            "blame": tuple(float(share) for share in waits.blame / max(waits.blame.sum(), 1e-12)),
            "exposed_p50": float(np.quantile(waits.transfer, 0.5)),
            "exposed_p95": float(np.quantile(waits.transfer, 0.95)),
            "windows": _windows(ranks, *_with_equal_load(ranks, compute, lengths)),
        }
    )


@dataclass(frozen=True)
class _Waits:
    """Waiting and transfer in the exchanges of each step, in seconds.

    Attributes:
        wait: Waiting for ranks that came later, by rank and step.
        transfer: Transfer once all ranks had come, by step.
        blame: The others' waiting for each rank, by rank.
    """

    wait: Matrix
    transfer: SignalSeries
    blame: SignalSeries


def _own_waits(ranks: Sequence[Sequence[StepSample]]) -> _Waits | None:
    """Of a user's script, where arrivals at collectives were seen; ``None`` for other launches."""
    own = complete(step.own for steps in ranks for step in steps)
    if own is None:
        return None
    wait, transfer, blame = (
        np.array([getattr(step, name) or 0.0 for step in own]).reshape(len(ranks), -1)
        for name in ("wait", "transfer", "blame")
    )
    return _Waits(wait, transfer.mean(axis=0), blame.sum(axis=1))


def _waits(ranks: Sequence[Sequence[StepSample]], paired: PairedWaits | None) -> _Waits:
    exchanges = {
        name: np.array([[getattr(step, name) or 0.0 for step in steps] for steps in ranks])
        for name in ("exposed_sync", "buffer_sync", "blocked")
    }
    if paired is not None and paired.includes_sync:
        exchanges = {"blocked": np.sum(list(exchanges.values()), axis=0)}
    wait = np.zeros_like(exchanges["blocked"])
    transfer = np.zeros(wait.shape[1])
    blame = np.zeros_like(wait)
    for name, synchronization in exchanges.items():
        parts = _by_least(synchronization)
        if name == "blocked" and paired is not None:
            parts = _where_paired(parts, paired)
        wait += parts.wait
        transfer += parts.transfer.mean(axis=0)
        blame += parts.blame
    return _Waits(wait, transfer, blame.sum(axis=1))


def _by_least(synchronization: Matrix) -> PairedWaits:
    """One exchange in each step, by rank and step: who waited least came last."""
    least = synchronization.min(axis=0)
    waited = synchronization - least
    blame = np.zeros_like(waited)
    blame[synchronization.argmin(axis=0), np.arange(len(least))] = waited.sum(axis=0)
    known = np.ones(len(least), dtype=np.bool_)
    return PairedWaits(waited, np.broadcast_to(least, waited.shape), blame, known)


def _where_paired(totals: PairedWaits, paired: PairedWaits) -> PairedWaits:
    """The pairs in the steps for which all are known, which may be the first ones alone."""
    count = len(totals.complete)
    known = np.zeros(count, dtype=np.bool_)
    known[: len(paired.complete)] = paired.complete[:count]

    def chosen(name: str) -> Matrix:
        values = np.array(getattr(totals, name))
        values[:, known] = getattr(paired, name)[:, paired.complete]
        return values

    return PairedWaits(chosen("wait"), chosen("transfer"), chosen("blame"), known)


def _is_pipeline(ranks: Sequence[Sequence[StepSample]]) -> bool:
    """Whether the ranks are stages, which wait for each other by design: what they are blocked for
    within their passes is taken apart, and blames nobody."""
    return all(step.bubble is not None and step.own is None for steps in ranks for step in steps)


def _unsynchronized_windows(
    ranks: Sequence[Sequence[StepSample]], compute: Matrix
) -> StepWindows | None:
    """Windows of the steps of a pipeline, whose ranks measure waits apart; ``None`` for ranks whose
    phases hold waits for other ranks, so that a pause of one would be seen in all. Copies that
    reduce gradients within the last backward pass wait there too: the forward pass has no waits."""
    if any(step.bubble is None for steps in ranks for step in steps):
        return None
    # Clipping waits for all ranks.
    optimizer = np.array([[step.optimizer or 0.0 for step in steps] for steps in ranks])
    return _windows(ranks, compute - optimizer, _phases(ranks, optimizer=False))


def _with_lengths(
    digest: SignalDigest,
    ranks: Sequence[Sequence[StepSample]],
    explained: Matrix,
    by_batch: tuple[tuple[float, ...], ...],
) -> SignalDigest:
    tokens = [
        float(
            np.mean([step.documents.computed_tokens_per_rank for step in steps if step.documents])
        )
        for steps in ranks
    ]
    return digest.model_copy(
        update={
            "length_seconds": by_batch,
            "length_wait_seconds": max(0.0, waiting_for_length(explained)),
            "computed_tokens_per_rank": tuple(tokens),
        }
    )


def _with_equal_load(
    ranks: Sequence[Sequence[StepSample]], compute: Matrix, lengths: LengthEffect | None
) -> tuple[Matrix, Matrix]:
    """Compute, and what of it no exchange disturbs, as if all samples were of one length and the
    experts of all ranks took as long."""
    own, quiet = _with_equal_experts(ranks, compute)
    if lengths is None:
        return own, quiet
    even = np.maximum(own - lengths.explained(own), 0.0)
    if quiet is own:
        return even, even
    return even, np.maximum(quiet - lengths.explained(quiet), 0.0)


def _with_equal_experts(
    ranks: Sequence[Sequence[StepSample]], compute: Matrix
) -> tuple[Matrix, Matrix]:
    """Compute, and what of it no exchange disturbs, as if the experts of all ranks took as long: a
    rank whose experts get many tokens is not slow by itself."""
    quiet = _quiet(ranks, compute)
    beyond = steps_beyond_the_mean(ranks)
    in_forward = steps_beyond_the_mean(ranks, forward_only=True)
    if beyond is None or in_forward is None:
        return compute, quiet
    own = np.maximum(compute - beyond, 0.0)
    if quiet is compute:
        return own, own
    return own, np.maximum(quiet - in_forward, 0.0)


def _quiet(ranks: Sequence[Sequence[StepSample]], compute: Matrix) -> Matrix:
    """Per rank and step, what no exchange disturbs: with gradients that travel during the backward
    pass, forward pass and optimizer; where each exchange is waited for at once, all compute."""
    own = complete(step.own for steps in ranks for step in steps)
    if own is not None:
        return np.array([step.calm for step in own]).reshape(compute.shape)
    if any(step.exposed_sync is None for steps in ranks for step in steps):
        return compute
    return _phases(ranks, optimizer=True)


def _phases(ranks: Sequence[Sequence[StepSample]], *, optimizer: bool) -> Matrix:
    """Time of the phases in which no gradient is in transfer, per rank and step."""
    return np.array(
        [
            [(step.forward or 0.0) + (step.optimizer or 0.0) * optimizer for step in steps]
            for steps in ranks
        ]
    )


def _windows(
    ranks: Sequence[Sequence[StepSample]], compute: Matrix, quiet: Matrix
) -> StepWindows | None:
    wall = np.array([[step.seconds for step in steps] for steps in ranks]).mean(axis=0)
    windows = step_windows(compute, wall, quiet)
    if windows is None or windows.quiet is None:
        return None

    def microseconds(values: NDArray[np.float64]) -> tuple[int, ...]:
        return tuple(int(value) for value in np.rint(values * 1e6))

    return StepWindows(
        steps=tuple(int(count) for count in windows.steps),
        wall_us=microseconds(windows.wall),
        compute_us=tuple(microseconds(row) for row in windows.compute),
        quiet_us=tuple(microseconds(row) for row in windows.quiet),
    )


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
        other_processes=optional(np.array, other_processes_shares(ranks)),
        fetched_memory=_fetched_memory(ranks),
        on_device=ranks[0].device.kind != "cpu",
        split_sequences=cell is not None and cell.degrees.context > 1,
        staged=cell is not None and cell.degrees.pipeline > 1,
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
    signals = replace(
        signals,
        probe=_slowest(links),
        link_bytes_per_second=_lowest_rating(links),
        pauses=_pauses(digest, collection_seconds),
        page_faults=max(item.page_faults for item in counted) / signals.steps,
    )
    if retries:
        signals = replace(signals, allocation_retries=sum(retries))
    if beside[0] is not None:
        signals = replace(signals, bucket_bytes=beside[0].bucket_bytes)
    if len(counted) < len(beside):
        return signals
    unsynchronized = complete(item.unsynchronized_seconds for item in counted)
    return replace(
        signals,
        unsynchronized=optional(_series, unsynchronized),
        throttled=optional(tuple, complete(item.throttle_reasons for item in counted)),
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
