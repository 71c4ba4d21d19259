"""Signals that the diagnosis judges, computed from a recording."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from torchscale.analysis.diagnosis.periods import slow_periods
from torchscale.analysis.diagnosis.shared import MIN_SAMPLES
from torchscale.analysis.diagnosis.signals import MIN_COMPARED, Matrix, SignalOrigin, Signals
from torchscale.analysis.diagnosis.step_signals import step_signals, with_transfer
from torchscale.analysis.diagnosis.step_windows import rare_long_steps, step_windows
from torchscale.analysis.exchanges.steps import JobSteps, table_of
from torchscale.analysis.stats.intervals import IntervalSet
from torchscale.features.trace.analysis.copies import copy_uses
from torchscale.features.trace.analysis.micro_batches import find_micro_batches
from torchscale.features.trace.analysis.stages import StageLayout
from torchscale.features.trace.analysis.waits import Waits
from torchscale.features.trace.analysis.windows import NS, RankWindow
from torchscale.features.trace.span import SpanCopyKind, SpanKind

_SLICES = 24
"""Parts of equal length of a recording with few steps or none, by which the ranks of a stage are
compared: enough for an interval and for quarters, and each long beside a micro-batch."""


def trace_signals(
    ranks: list[RankWindow], view: Waits | None, layout: StageLayout, *, trusted: bool
) -> Signals:
    """Signals of a recording, per step where the recording has steps, else for the whole window."""
    signals = _group_signals(ranks, view, trusted=trusted)
    if layout.stages is None:
        return replace(signals, staged=_is_staged(ranks), why_no_stages=layout.reason)
    return _staged_signals(signals, ranks, layout)


@dataclass(frozen=True)
class _Steps:
    """When each rank's steps begin and end; where the recording has none, the window as one.

    Attributes:
        begin, finish: Start and end of each step, by rank, in nanoseconds.
        count: Steps of a rank; 0 where the recording has none.
    """

    begin: list[NDArray[np.int64]]
    finish: list[NDArray[np.int64]]
    count: int

    @property
    def lengths(self) -> Matrix:
        """Seconds, by rank and step."""
        spans = zip(self.begin, self.finish, strict=True)
        return np.asarray(np.array([finish - begin for begin, finish in spans]) * NS)

    def seconds_within(self, covers: list[IntervalSet]) -> Matrix:
        """How much of each step its rank's intervals cover, in seconds."""
        spans = zip(covers, self.begin, self.finish, strict=True)
        return np.asarray(
            np.array([cover.within(begin, finish) for cover, begin, finish in spans]) * NS
        )


def _steps(ranks: list[RankWindow]) -> _Steps:
    count = len(ranks[0].steps)
    if not count:
        return _Steps(
            [np.array([rank.start]) for rank in ranks], [np.array([rank.end]) for rank in ranks], 0
        )
    return _Steps(
        [rank.steps.start for rank in ranks],
        [np.append(rank.steps.start[1:], rank.end) for rank in ranks],
        count,
    )


def _group_signals(ranks: list[RankWindow], view: Waits | None, *, trusted: bool) -> Signals:
    steps = _steps(ranks)
    exposed = steps.seconds_within([rank.exposed for rank in ranks])
    table = _step_table(ranks, view, steps, exposed)
    signals = replace(
        step_signals(table, tuple(rank.trace.rank for rank in ranks), SignalOrigin.TRACE),
        step_seconds=float(steps.lengths.max(axis=0).mean()),
        steps=steps.count,
        overlap=_overlap(ranks),
        bucket_bytes=_buckets(ranks[0], steps.count),
        pauses=rare_long_steps(table.own + table.data, _collection_seconds(ranks, steps.count)),
        host_bound=_mean_host_bound(ranks, steps),
        busy=steps.seconds_within([rank.compute for rank in ranks]).mean(axis=1),
        on_device=ranks[0].trace.on_device,
        trusted=trusted,
        job_ranks=_job_ranks(ranks),
    )
    if not any(len(rank.waiting_for_data.start) for rank in ranks):
        signals = replace(signals, data_wait=None)
    if steps.count < 2:
        signals = replace(signals, compute=None, windows=None)
    elif view is not None and not signals.on_device:
        signals = replace(signals, unsynchronized=tuple(table.quiet))
    elif signals.windows is not None:
        signals = replace(signals, windows=replace(signals.windows, quiet=None))
    if view is not None:
        signals = replace(signals, collectives=len(view.paired), blame=view.blame_shares)
    elif exposed.any() and (signals.job_ranks or len(ranks)) > 1:
        together = exposed.mean(axis=0)
        signals = replace(with_transfer(signals, together), transfer=None, exposed=together)
    if steps.count >= MIN_COMPARED:
        signals = replace(signals, periods=slow_periods(table))
    if signals.on_device:
        signals = _with_device_signals(signals, ranks, steps)
    return signals


def _step_table(
    ranks: list[RankWindow], view: Waits | None, steps: _Steps, exposed: Matrix
) -> JobSteps:
    """The steps of the recording; without a view of who waited for whom, what is exposed is in no
    column."""
    wall = steps.lengths
    data = steps.seconds_within([rank.input_wait for rank in ranks])
    own = wall - exposed - data
    known: dict[str, Matrix] = {"own": own, "quiet": own, "data": data}
    if view is not None:
        wait = steps.seconds_within(view.stalls)
        known |= {"wait": wait, "transfer": (exposed - wait).clip(0), "blame": _blame(view, steps)}
        if not ranks[0].trace.on_device:
            known["quiet"] = own - steps.seconds_within(_hidden(view.transfers, ranks))
    return table_of(wall, known)


def _blame(view: Waits, steps: _Steps) -> Matrix:
    """Stalls of the others for which each rank was last, by step; seconds."""
    blame = np.zeros(steps.lengths.shape)
    for begin, charges in zip(steps.begin, view.charges, strict=True):
        for part in charges:
            step = np.searchsorted(begin, part.begin, side="right") - 1
            np.add.at(blame, (part.last, np.maximum(step, 0)), part.exposed * NS)
    return blame


def _with_device_signals(signals: Signals, ranks: list[RankWindow], steps: _Steps) -> Signals:
    """Add what the host and a device beside it exchange."""
    signals = replace(signals, copies=copy_uses(ranks, max(1, steps.count)))
    if steps.count:
        signals = replace(signals, readback_wait=_readback_wait(ranks, steps.count))
    if steps.count and _tells_operators(ranks):
        signals = replace(signals, readbacks=_readbacks(ranks, steps.count))
    if _tells_memory(ranks):
        signals = replace(signals, pageable=_pageable(ranks) * NS / max(1, len(steps.begin[0])))
    return signals


def _staged_signals(signals: Signals, ranks: list[RankWindow], layout: StageLayout) -> Signals:
    """Add the time that each rank computes by itself, in samples by which the ranks of a stage can
    be compared.

    On devices that is the time in which kernels run; what else a rank waits for does not matter
    then. On CPUs it is all but waits for data, receives and collectives: a send does not hold up
    the rank that computes on, and operators are not all that a rank does.
    """
    steps = signals.steps
    sliced = steps < MIN_SAMPLES
    count = steps
    if sliced:
        count = _SLICES
    units = max(1, steps) / count
    if sliced:
        edges = [
            np.linspace(rank.start, rank.end, count + 1).round().astype(np.int64) for rank in ranks
        ]
    else:
        edges = [np.append(rank.steps.start, rank.end) for rank in ranks]
    compute = (
        np.array([_computing(rank, edge) for rank, edge in zip(ranks, edges, strict=True)])
        * NS
        / units
    )
    wall = np.array([np.diff(edge) for edge in edges]).mean(axis=0) * NS / units
    operations = [
        int(
            (
                (rank.trace.collectives.start >= rank.start)
                & (rank.trace.collectives.start < rank.end)
            ).sum()
        )
        for rank in ranks
    ]
    staged = replace(
        signals,
        collectives=min(operations),
        compute=compute,
        windows=None,
        staged=True,
        stages=layout.stages,
        micro_batches=_micro_batches(ranks, steps),
    )
    micro_batches = find_micro_batches(ranks, layout)
    if micro_batches is not None:
        staged = replace(staged, micro_batch_lengths=micro_batches.lengths)
    if sliced:
        return staged
    staged = replace(staged, windows=step_windows(compute, wall))
    if signals.on_device:
        return staged
    return replace(staged, pauses=rare_long_steps(compute, _collection_seconds(ranks, steps)))


def _computing(rank: RankWindow, edges: NDArray[np.int64]) -> Matrix:
    begin, finish = edges[:-1], edges[1:]
    if rank.trace.on_device:
        return rank.compute.within(begin, finish).astype(np.float64)
    collectives = rank.trace.collectives
    waits = collectives.direction <= 0
    waiting = IntervalSet(collectives.start[waits], collectives.end[waits]).clipped(
        rank.start, rank.end
    )
    idle = waiting.minus(rank.compute).within(begin, finish) + rank.input_wait.within(begin, finish)
    return (finish - begin - idle).astype(np.float64)


def _micro_batches(ranks: list[RankWindow], steps: int) -> int | None:
    """The first and the last stage send and receive once for each micro-batch, or more often where
    several tensors pass; ``None`` without steps."""
    if not steps:
        return None
    counts = []
    for rank in ranks:
        collectives = rank.trace.collectives
        inside = (collectives.start >= rank.start) & (collectives.start < rank.end)
        counts.append(int((collectives.point_to_point & inside).sum()))
    return max(1, round(min(counts) / steps / 2))


def _hidden(transfers: list[IntervalSet], ranks: list[RankWindow]) -> list[IntervalSet]:
    """What of each rank's transfers runs under its compute. On CPUs the threads that transfer use
    the cores of the operators, so these take longer meanwhile, on whichever rank the scheduler
    favours less."""
    return [
        moving.minus(moving.minus(rank.compute))
        for moving, rank in zip(transfers, ranks, strict=True)
    ]


def _is_staged(ranks: list[RankWindow]) -> bool:
    """Whether sends and receives take most of the time of all communication."""
    total = point_to_point = 0
    for rank in ranks:
        collectives = rank.trace.collectives
        lengths = collectives.end - collectives.start
        total += int(lengths.sum())
        point_to_point += int(lengths[collectives.point_to_point].sum())
    return 2 * point_to_point > total


def _mean_host_bound(ranks: list[RankWindow], steps: _Steps) -> NDArray[np.float64] | None:
    """Mean host-bound time of each rank, in seconds per step, without the waits for data."""
    values = []
    for rank, begin, finish in zip(ranks, steps.begin, steps.finish, strict=True):
        host_bound = rank.host_bound
        if host_bound is None:
            return None
        alone = host_bound.minus(rank.waiting_for_data)
        values.append(float(alone.within(begin, finish).mean()) * NS)
    return np.array(values)


def _job_ranks(ranks: list[RankWindow]) -> int | None:
    return max((rank.trace.world_size or 0 for rank in ranks), default=0) or None


def _overlap(ranks: list[RankWindow]) -> float | None:
    total = sum(rank.communication.length for rank in ranks)
    if not total:
        return None
    return 1 - sum(rank.exposed.length for rank in ranks) / total


def _buckets(rank: RankWindow, steps: int) -> tuple[int, ...] | None:
    """Payloads of the all-reduces of a typical step; ``None`` without steps or sizes."""
    collectives = rank.trace.collectives
    if not steps or "all_reduce" not in collectives.ops:
        return None
    chosen = (collectives.op == collectives.ops.index("all_reduce")) & (
        collectives.start >= rank.start
    )
    chosen &= collectives.start < rank.end
    sizes = collectives.payload_bytes[chosen]
    per_step = round(len(sizes) / steps)
    if not per_step or (sizes < 0).any():
        return None
    return tuple(int(size) for size in sizes[:per_step])


def _collection_seconds(ranks: list[RankWindow], steps: int) -> float | None:
    """Garbage collection per step of the rank with most; ``None`` unless the recording marks it."""
    lengths = []
    for rank in ranks:
        spans = rank.trace.spans
        pauses = spans.of(SpanKind.PAUSE)
        if pauses.any():
            lengths.append(
                IntervalSet(spans.start[pauses], spans.end[pauses])
                .clipped(rank.start, rank.end)
                .length
            )
    if not lengths or not steps:
        return None
    return max(lengths) * NS / steps


def _tells_operators(ranks: list[RankWindow]) -> bool:
    """nsys knows no operators, so that it sees no value read back."""
    return any(rank.trace.spans.of(SpanKind.OPERATOR, SpanKind.READBACK).any() for rank in ranks)


def _tells_memory(ranks: list[RankWindow]) -> bool:
    """Whether copies from and to the host say what memory they use; where there are none, there is
    nothing to say."""
    untold = (
        SpanCopyKind.OTHER,
        SpanCopyKind.HOST_TO_DEVICE_UNKNOWN,
        SpanCopyKind.DEVICE_TO_HOST_UNKNOWN,
    )
    kinds = [
        np.unique(rank.trace.spans.detail[rank.trace.spans.of(SpanKind.COPY)]) for rank in ranks
    ]
    seen = {SpanCopyKind(kind) for of_rank in kinds for kind in of_rank}
    return not seen or not seen.issubset(untold)


def _readbacks(ranks: list[RankWindow], steps: int) -> float:
    counts = []
    for rank in ranks:
        spans = rank.trace.spans
        chosen = (
            spans.of(SpanKind.READBACK) & (spans.start >= rank.start) & (spans.start < rank.end)
        )
        counts.append(int(chosen.sum()))
    return float(np.mean(counts)) / steps


def _readback_wait(ranks: list[RankWindow], steps: int) -> float:
    """Time that the host waits for the device in the step while, because of it, the device runs dry
    afterwards."""
    total = 0
    for rank in ranks:
        spans = rank.trace.spans
        waits = spans.of(SpanKind.HOST_SYNC)
        if not waits.any():
            continue
        ends = np.sort(spans.end[waits & (spans.start >= rank.start) & (spans.start < rank.end)])
        gaps = rank.gaps
        if not len(ends) or not len(gaps.start):
            continue
        # A gap in which a host wait ends is the device waiting for the host that waited for it.
        inside = np.searchsorted(ends, gaps.end, side="right") > np.searchsorted(
            ends, gaps.start, side="left"
        )
        total += int((gaps.end - gaps.start)[inside].sum())
    return total * NS / len(ranks) / steps


def _pageable(ranks: list[RankWindow]) -> float:
    total = 0
    for rank in ranks:
        spans = rank.trace.spans
        pageable = (spans.detail == SpanCopyKind.HOST_TO_DEVICE_PAGEABLE) | (
            spans.detail == SpanCopyKind.DEVICE_TO_HOST_PAGEABLE
        )
        which = spans.of(SpanKind.COPY) & pageable
        cover = IntervalSet(spans.start[which], spans.end[which]).clipped(rank.start, rank.end)
        total += cover.minus(rank.compute).length
    return total / len(ranks)
