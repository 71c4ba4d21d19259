"""From a recording to where the time went, and to the signals that the diagnosis judges. Definitions in
``docs/method.md``."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from torchscale.analysis.communication import bus_factor
from torchscale.analysis.diagnosis import diagnose
from torchscale.analysis.intervals import Cover, contains_any, outermost, union
from torchscale.analysis.pairing import Paired, clock_offsets, pair
from torchscale.analysis.signals import Origin, Signals, rare_long_steps
from torchscale.errors import TraceError
from torchscale.schema.finding import Confidence
from torchscale.schema.profile import (
    CollectiveSummary,
    Idle,
    KernelSummary,
    ProfileAnalysis,
    RankBreakdown,
    Timeline,
    TimelineBar,
    TimelineRank,
    Window,
    WindowKind,
)
from torchscale.schema.span import CopyKind, RankTrace, SpanKind, Steps, Trace

_MIN_COMPARED = 20
"""Collectives or steps below which a share of them is a coin flip."""
_MIN_HOST_GAP_NS = 500_000
_TOP = 15
_MAX_BARS = 400
_NS = 1e-9


class WindowChoice(str, Enum):
    """Which window to analyse."""

    AUTO = "auto"
    STEPS = "steps"
    DEVICE = "device"


@dataclass(frozen=True)
class _Rank:
    """One rank's unions. ``own`` is compute and, on devices, copies."""

    trace: RankTrace
    start: int
    end: int
    steps: Steps
    compute: Cover
    communication: Cover
    copies: Cover
    waiting_for_data: Cover
    chosen: NDArray[np.bool_]
    """Spans of compute: kernels, or on CPU the outermost operators without communication in them."""

    @property
    def length(self) -> int:
        return self.end - self.start


def analyse(trace: Trace, window: WindowChoice = WindowChoice.AUTO) -> ProfileAnalysis:
    """Everything that a recording tells.

    Raises:
        TraceError: it has no steps although they are asked for, or nothing at all in it; or it says that its backend is
            NCCL and holds no NCCL kernel, which is a recording without communication and not communication of 0 %.
    """
    _check(trace)
    pairing = pair(trace)
    offsets, clock_problems = clock_offsets(trace, pairing.paired)
    kind, numbers, left_out = _choose_window(trace, window)
    ranks = [_rank(rank, kind, numbers) for rank in trace.ranks]
    paired = _in_windows(pairing.paired, ranks, offsets)
    comparable = len(paired) > 0 and not clock_problems
    view = _View(ranks, paired, offsets) if comparable else None
    window_seconds = sum(rank.length for rank in ranks) * _NS
    reasons = _doubts(trace, ranks, paired, left_out, pairing.problems + clock_problems)
    signals = _signals(ranks, view, trusted=not reasons)
    diagnosis = diagnose(signals)
    stall = None if view is None else sum(cover.length for cover in view.stalls) * _NS / window_seconds * 100
    return ProfileAnalysis(
        recorder=trace.recorder,
        sources=tuple(rank.source for rank in trace.ranks),
        world_size=len(trace.ranks),
        sync_stall_percent=stall,
        window=Window(
            kind=kind,
            steps=len(ranks[0].steps) or None,
            seconds=window_seconds,
            first_step_left_out=left_out,
            confidence=Confidence.LOW if reasons else Confidence.HIGH,
            reasons=tuple(reasons),
        ),
        step_seconds=_step_seconds(ranks),
        per_rank=tuple(_breakdown(rank, column, view) for column, rank in enumerate(ranks)),
        collectives=_collectives(ranks, paired, view),
        kernels=_kernels(ranks),
        findings=diagnosis.findings,
        abstentions=diagnosis.abstentions,
        timeline=_timeline(ranks, view, offsets),
        notes=trace.notes,
    )


def _check(trace: Trace) -> None:
    for rank in trace.ranks:
        if not len(rank.spans) and not len(rank.collectives):
            raise TraceError(f"{rank.source}: an empty recording", hint="record at least one whole training step")
    silent = [rank for rank in trace.ranks if rank.backend == "nccl" and rank.on_device and not len(rank.collectives)]
    if silent and (silent[0].world_size or len(trace.ranks)) > 1:
        raise TraceError(
            f"{silent[0].source}: its backend is NCCL, but it holds no NCCL kernel",
            hint="communication was not recorded, or NCCL's kernels have names that are not known here; "
            "record several whole steps with CUDA activities",
        )


def _choose_window(trace: Trace, choice: WindowChoice) -> tuple[WindowKind, list[int], bool]:
    """The window's kind, the numbers of its steps, and whether the first recorded step was left out."""
    recorded = [{int(number) for number in rank.steps.number} for rank in trace.ranks]
    common = sorted(set.intersection(*recorded)) if recorded else []
    if choice is WindowChoice.STEPS and not common:
        raise TraceError("the recording has no step that all ranks share", hint="use --window device")
    if choice is WindowChoice.DEVICE or not common:
        return WindowKind.DEVICE_SPAN, [], False
    if len(common) > 1:
        return WindowKind.STEPS, common[1:], True
    return WindowKind.STEPS, common, False


def _rank(trace: RankTrace, kind: WindowKind, numbers: list[int]) -> _Rank:
    spans = trace.spans
    chosen = spans.of(SpanKind.COMPUTE) if trace.on_device else _host_work(trace)
    copies = spans.of(SpanKind.COPY)
    work = chosen | copies
    in_window = np.isin(trace.steps.number, numbers)
    steps = Steps(trace.steps.start[in_window], trace.steps.end[in_window], trace.steps.number[in_window])
    if kind is WindowKind.STEPS:
        start, end = int(steps.start.min()), int(steps.end.max())
    else:
        start = int(np.concatenate([spans.start[work], trace.collectives.start]).min())
        end = int(np.concatenate([spans.end[work], trace.collectives.end]).max())
    inputs = spans.of(SpanKind.INPUT)

    def cover(which: NDArray[np.bool_]) -> Cover:
        return Cover(spans.start[which], spans.end[which]).clipped(start, end)

    return _Rank(
        trace=trace,
        start=start,
        end=end,
        steps=steps,
        compute=cover(chosen),
        communication=Cover(trace.collectives.start, trace.collectives.end).clipped(start, end),
        copies=cover(copies),
        waiting_for_data=cover(inputs),
        chosen=chosen & (spans.end > start) & (spans.start < end),
    )


def _host_work(trace: RankTrace) -> NDArray[np.bool_]:
    """The operators that compute: all that hand nothing to the network, the outermost of them. An operator's time is
    not that of the operators it calls (a convolution asks for memory, then works), so the innermost would miss most."""
    spans, collectives = trace.spans, trace.collectives
    chosen = np.zeros(len(spans), dtype=bool)
    operators = np.flatnonzero(spans.of(SpanKind.OPERATOR, SpanKind.READBACK))
    start, end, lane = spans.start[operators], spans.end[operators], spans.lane[operators]
    quiet = operators[~contains_any(start, end, lane, collectives.start, collectives.lane)]
    chosen[quiet[outermost(spans.start[quiet], spans.end[quiet], spans.lane[quiet])]] = True
    return chosen


def _in_windows(paired: Paired, ranks: list[_Rank], offsets: NDArray[np.int64]) -> Paired:
    """Collectives that began inside the window of every rank that takes part, on one clock."""
    starts = np.array([rank.start for rank in ranks])
    ends = np.array([rank.end for rank in ranks])
    inside = ((paired.start >= starts) & (paired.start < ends)) | ~paired.takes_part
    kept = paired.only(np.flatnonzero(inside.all(axis=1)))
    shift = np.where(kept.takes_part, offsets, 0)
    return replace(kept, start=kept.start - shift, end=kept.end - shift)


class _View:
    """Waits and transfers of every collective, and what of them no compute hides."""

    def __init__(self, ranks: list[_Rank], paired: Paired, offsets: NDArray[np.int64]) -> None:
        self.paired = paired
        latest = paired.latest[:, None]
        present = paired.takes_part
        until = np.minimum(latest, paired.end)
        self.wait = np.where(present, np.maximum(0, until - paired.start), 0)
        self.transfer = np.where(present, np.maximum(0, paired.end - np.maximum(paired.start, latest)), 0)
        self.stalls: list[Cover] = []
        self.charge = np.zeros(len(ranks))
        last = paired.last
        for column, rank in enumerate(ranks):
            start = paired.start[:, column] + offsets[column]
            end = np.maximum(start, until[:, column] + offsets[column])
            waits = present[:, column]

            def exposed(which: NDArray[np.bool_], rank: _Rank = rank, start: NDArray[np.int64] = start,
                        end: NDArray[np.int64] = end) -> Cover:  # fmt: skip
                return Cover(start[which], end[which]).clipped(rank.start, rank.end).minus(rank.compute)

            self.stalls.append(exposed(waits))
            for other in range(len(ranks)):
                self.charge[other] += exposed(waits & (last == other)).length
        total = self.charge.sum()
        self.shares = self.charge / total if total > 0 else self.charge


def _step_seconds(ranks: list[_Rank]) -> float | None:
    if not len(ranks[0].steps):
        return None
    return float(np.mean(_period(ranks).max(axis=0))) * _NS


def _period(ranks: list[_Rank]) -> NDArray[np.int64]:
    """From the start of each step to the start of the next (the last: to its end), a row a rank."""
    rows = []
    for rank in ranks:
        edges = np.append(rank.steps.start, rank.end)
        rows.append(np.diff(edges))
    return np.array(rows)


def _doubts(trace: Trace, ranks: list[_Rank], paired: Paired, left_out: bool, problems: tuple[str, ...]) -> list[str]:
    """Why shares of this recording are to be taken with care."""
    doubts = list(problems)
    if len(ranks) < 2:
        doubts.append("one rank alone: nobody to compare it with")
    if len(ranks) > 1 and len(paired) < _MIN_COMPARED:
        doubts.append(f"{len(paired)} collectives could be compared; fewer than {_MIN_COMPARED} say little")
    steps = len(ranks[0].steps)
    if steps and not left_out:
        doubts.append("one step was recorded, and the first carries the skew of the profiler's start")
    if not steps:
        doubts.append("no steps are marked in it; shares are of the time from first to last span")
    sizes = {rank.world_size for rank in trace.ranks if rank.world_size is not None}
    if len(sizes) == 1 and len(trace.ranks) < min(sizes):
        doubts.append(f"{len(trace.ranks)} of {min(sizes)} ranks are here; the others may arrive later still")
    return doubts


def _breakdown(rank: _Rank, column: int, view: _View | None) -> RankBreakdown:
    compute, communication = rank.compute, rank.communication
    exposed = communication.minus(compute)
    stall = None if view is None else view.stalls[column].length * _NS
    late = None
    if view is not None and view.paired.takes_part[:, column].any():
        mine = view.paired.takes_part[:, column]
        first = np.where(view.paired.takes_part, view.paired.start, np.iinfo(np.int64).max).min(axis=1)
        late = float(np.mean((view.paired.start[:, column] - first)[mine])) * _NS
    return RankBreakdown(
        rank=rank.trace.rank,
        host=rank.trace.host,
        source=rank.trace.source,
        window_seconds=rank.length * _NS,
        compute_seconds=compute.length * _NS,
        communication_seconds=communication.length * _NS,
        exposed_communication_seconds=exposed.length * _NS,
        overlap=1 - exposed.length / communication.length if communication.length else None,
        sync_stall_seconds=stall,
        transfer_seconds=None if stall is None else max(0.0, exposed.length * _NS - stall),
        copy_seconds=rank.copies.length * _NS if rank.trace.on_device else None,
        idle=_idle(rank),
        charge_percent=None if view is None or not view.charge.sum() else float(view.shares[column]) * 100,
        arrives_late_seconds=late,
    )


def _idle(rank: _Rank) -> Idle:
    gaps = _gaps(rank)
    total = gaps.length
    waiting = sum_of(gaps, rank.waiting_for_data)
    host = _host_bound(rank, gaps)
    if host is None:
        return Idle(total_seconds=total * _NS, host_bound_seconds=None, input_seconds=None, other_seconds=None)
    host_alone = host.minus(rank.waiting_for_data).length
    return Idle(
        total_seconds=total * _NS,
        host_bound_seconds=host_alone * _NS,
        input_seconds=waiting * _NS,
        other_seconds=max(0, total - waiting - host_alone) * _NS,
    )


def sum_of(cover: Cover, other: Cover) -> int:
    """How much of ``cover`` lies under ``other``."""
    return int(other.within(cover.start, cover.end).sum())


def _gaps(rank: _Rank) -> Cover:
    whole = Cover(np.array([rank.start]), np.array([rank.end]))
    return whole.minus(union([rank.compute, rank.communication, rank.copies]))


def _host_bound(rank: _Rank, gaps: Cover) -> Cover | None:
    """Gaps before device work whose launch call began after the gap did. On CPU, where the host is the device, gaps
    longer than Python takes from one operator to the next; ``None`` where launches were not recorded."""
    if not rank.trace.on_device:
        long = gaps.end - gaps.start >= _MIN_HOST_GAP_NS
        return Cover(gaps.start[long], gaps.end[long])
    spans = rank.trace.spans
    launches = spans.of(SpanKind.LAUNCH) & (spans.link != 0)
    work = (spans.of(SpanKind.COMPUTE, SpanKind.COPY)) & (spans.link != 0)
    if not launches.any():
        return None
    links, first = np.unique(spans.link[launches], return_index=True)
    called = spans.start[launches][first]
    starts, their_links = spans.start[work], spans.link[work]
    order = np.argsort(starts)
    starts, their_links = starts[order], their_links[order]
    place = np.minimum(np.searchsorted(starts, gaps.end), max(0, len(starts) - 1))
    if not len(starts):
        return None
    follows = starts[place] == gaps.end
    where = np.minimum(np.searchsorted(links, their_links[place]), len(links) - 1)
    known = links[where] == their_links[place]
    late = follows & known & (called[where] > gaps.start)
    return Cover(gaps.start[late], gaps.end[late])


def _signals(ranks: list[_Rank], view: _View | None, *, trusted: bool) -> Signals:
    """Per step where the recording has steps, else per window."""
    if len(ranks[0].steps):
        begin = [rank.steps.start for rank in ranks]
        finish = [np.append(rank.steps.start[1:], rank.end) for rank in ranks]
    else:
        begin = [np.array([rank.start]) for rank in ranks]
        finish = [np.array([rank.end]) for rank in ranks]
    steps = len(begin[0]) if len(ranks[0].steps) else 0
    exposed = [rank.communication.minus(rank.compute) for rank in ranks]

    def rows(covers: list[Cover]) -> NDArray[np.float64]:
        return np.array([cover.within(b, f) for cover, b, f in zip(covers, begin, finish, strict=True)]) * _NS

    lengths = np.array([f - b for b, f in zip(begin, finish, strict=True)]) * _NS
    out = rows(exposed)
    data = rows([_input_wait(rank) for rank in ranks])
    wait = None if view is None else rows(view.stalls)
    host = [_host_bound(rank, _gaps(rank)) for rank in ranks]
    per_step = float(lengths.max(axis=0).mean())
    has_steps = steps >= _MIN_COMPARED
    on_device = ranks[0].trace.on_device
    return Signals(
        origin=Origin.TRACE,
        ranks=tuple(rank.trace.rank for rank in ranks),
        step_seconds=per_step,
        steps=steps,
        collectives=None if view is None else len(view.paired),
        own=lengths - out - data if steps > 1 else None,
        data_wait=data if any(len(rank.waiting_for_data.start) for rank in ranks) else None,
        wait=wait,
        charge=None if view is None else view.shares,
        transfer=None if wait is None else (out - wait).clip(0).mean(axis=0),
        exposed_p50=float(np.quantile(out.mean(axis=0), 0.5)) if has_steps and len(ranks) > 1 else None,
        exposed_p95=float(np.quantile(out.mean(axis=0), 0.95)) if has_steps and len(ranks) > 1 else None,
        overlap=_overlap(ranks),
        bucket_bytes=_buckets(ranks[0], steps),
        pauses=rare_long_steps(lengths - out, _collection_seconds(ranks, steps)),
        host_bound=_mean_host_bound(host, ranks, begin, finish),
        readbacks=_readbacks(ranks, steps) if on_device and steps else None,
        readback_wait=_readback_wait(ranks, steps) if on_device and steps else None,
        on_device=on_device,
        pageable=_pageable(ranks) * _NS / max(1, len(begin[0])) if on_device else None,
        trusted=trusted,
    )


def _input_wait(rank: _Rank) -> Cover:
    """On CPU the whole call of the loader; on a device, what of it leaves the device idle."""
    if not rank.trace.on_device:
        return rank.waiting_for_data
    return rank.waiting_for_data.minus(union([rank.compute, rank.communication, rank.copies]))


def _mean_host_bound(
    host: list[Cover | None], ranks: list[_Rank], begin: list[NDArray[np.int64]], finish: list[NDArray[np.int64]]
) -> NDArray[np.float64] | None:
    """Per rank, seconds a step; without the waits for data."""
    values = []
    for cover, rank, b, f in zip(host, ranks, begin, finish, strict=True):
        if cover is None:
            return None
        values.append(float(cover.minus(rank.waiting_for_data).within(b, f).mean()) * _NS)
    return np.array(values)


def _overlap(ranks: list[_Rank]) -> float | None:
    total = sum(rank.communication.length for rank in ranks)
    if not total:
        return None
    return 1 - sum(rank.communication.minus(rank.compute).length for rank in ranks) / total


def _buckets(rank: _Rank, steps: int) -> tuple[int, ...] | None:
    """Payloads of the all-reduces of a typical step; ``None`` without steps or sizes."""
    collectives = rank.trace.collectives
    if not steps or "all_reduce" not in collectives.ops:
        return None
    chosen = (collectives.op == collectives.ops.index("all_reduce")) & (collectives.start >= rank.start)
    chosen &= collectives.start < rank.end
    sizes = collectives.payload_bytes[chosen]
    per_step = round(len(sizes) / steps)
    if not per_step or (sizes < 0).any():
        return None
    return tuple(int(size) for size in sizes[:per_step])


def _collection_seconds(ranks: list[_Rank], steps: int) -> float | None:
    """Garbage collection per step of the rank with most; ``None`` unless the recording marks it."""
    lengths = []
    for rank in ranks:
        spans = rank.trace.spans
        pauses = spans.of(SpanKind.PAUSE)
        if pauses.any():
            lengths.append(Cover(spans.start[pauses], spans.end[pauses]).clipped(rank.start, rank.end).length)
    return max(lengths) * _NS / steps if lengths and steps else None


def _readbacks(ranks: list[_Rank], steps: int) -> float:
    counts = []
    for rank in ranks:
        spans = rank.trace.spans
        chosen = spans.of(SpanKind.READBACK) & (spans.start >= rank.start) & (spans.start < rank.end)
        counts.append(int(chosen.sum()))
    return float(np.mean(counts)) / steps


def _readback_wait(ranks: list[_Rank], steps: int) -> float:
    """Time that the host waits for the device in the step while, because of it, the device runs dry afterwards."""
    total = 0
    for rank in ranks:
        spans = rank.trace.spans
        waits = spans.of(SpanKind.HOST_SYNC)
        if not waits.any():
            continue
        ends = np.sort(spans.end[waits & (spans.start >= rank.start) & (spans.start < rank.end)])
        gaps = _gaps(rank)
        if not len(ends) or not len(gaps.start):
            continue
        # A gap in which a host wait ends is the device waiting for the host that waited for it.
        inside = np.searchsorted(ends, gaps.end, side="right") > np.searchsorted(ends, gaps.start, side="left")
        total += int((gaps.end - gaps.start)[inside].sum())
    return total * _NS / len(ranks) / steps


def _pageable(ranks: list[_Rank]) -> float:
    total = 0
    for rank in ranks:
        spans = rank.trace.spans
        pageable = (spans.detail == CopyKind.HOST_TO_DEVICE_PAGEABLE) | (
            spans.detail == CopyKind.DEVICE_TO_HOST_PAGEABLE
        )
        which = spans.of(SpanKind.COPY) & pageable
        cover = Cover(spans.start[which], spans.end[which]).clipped(rank.start, rank.end)
        total += cover.minus(rank.compute).length
    return total / len(ranks)


def _collectives(ranks: list[_Rank], paired: Paired, view: _View | None) -> tuple[CollectiveSummary, ...]:
    rows: dict[tuple[str, str, int], list[int]] = defaultdict(list)
    for row in range(len(paired)):
        rows[paired.op[row], paired.group[row], int(paired.payload_bytes[row])].append(row)
    summaries = [_paired_summary(ranks, paired, view, key, np.array(chosen)) for key, chosen in rows.items()]
    if not summaries:
        summaries = _unpaired_summaries(ranks)
    summaries.sort(key=lambda item: -item.count * item.mean_seconds)
    return tuple(summaries)


def _paired_summary(
    ranks: list[_Rank], paired: Paired, view: _View | None, key: tuple[str, str, int], rows: NDArray[np.int64]
) -> CollectiveSummary:
    op, group, size = key
    present = paired.takes_part[rows]
    durations = (paired.end - paired.start)[rows][present]
    last, times = Counter(paired.last[rows].tolist()).most_common(1)[0]
    transfer = None if view is None else float(view.transfer[rows][present].mean()) * _NS
    members = int(present[0].sum())
    factor = bus_factor(op, members)
    return CollectiveSummary(
        op=op,
        group=group,
        payload_bytes=size if size >= 0 else None,
        count=len(rows),
        mean_seconds=float(durations.mean()) * _NS,
        wait_seconds=None if view is None else float(view.wait[rows][present].mean()) * _NS,
        transfer_seconds=transfer,
        bus_bytes_per_second=size * factor / transfer if size >= 0 and factor is not None and transfer else None,
        last_rank=ranks[last].trace.rank if view is not None else None,
        last_percent=times / len(rows) * 100 if view is not None else None,
    )


def _unpaired_summaries(ranks: list[_Rank]) -> list[CollectiveSummary]:
    """What one rank, or ranks that cannot be compared, did."""
    durations: dict[tuple[str, str, int], list[int]] = defaultdict(list)
    for rank in ranks:
        collectives = rank.trace.collectives
        for place in range(len(collectives)):
            if rank.start <= collectives.start[place] < rank.end:
                group, op = collectives.groups[collectives.group[place]], collectives.ops[collectives.op[place]]
                length = int(collectives.end[place] - collectives.start[place])
                durations[op, group, int(collectives.payload_bytes[place])].append(length)
    return [
        CollectiveSummary(
            op=op,
            group=group,
            payload_bytes=size if size >= 0 else None,
            count=len(lengths),
            mean_seconds=float(np.mean(lengths)) * _NS,
        )
        for (op, group, size), lengths in durations.items()
    ]


def _kernels(ranks: list[_Rank]) -> tuple[KernelSummary, ...]:
    seconds: dict[str, float] = defaultdict(float)
    counts: Counter[str] = Counter()
    for rank in ranks:
        spans, names = rank.trace.spans, rank.trace.names
        chosen = rank.chosen
        lengths = (spans.end - spans.start)[chosen]
        summed = np.bincount(spans.name[chosen], weights=lengths, minlength=len(names))
        times = np.bincount(spans.name[chosen], minlength=len(names))
        for number in np.flatnonzero(times):
            seconds[names[number]] += float(summed[number]) * _NS
            counts[names[number]] += int(times[number])
    together = sum(seconds.values())
    return tuple(
        KernelSummary(name=name[:200], count=counts[name], seconds=value, percent_of_compute=value / together * 100)
        for name, value in sorted(seconds.items(), key=lambda item: -item[1])[:_TOP]
        if together > 0
    )


def _timeline(ranks: list[_Rank], view: _View | None, offsets: NDArray[np.int64]) -> Timeline | None:
    """The longest step; without steps, the whole window."""
    step: int | None = None
    starts = np.array([rank.start for rank in ranks]) - offsets
    ends = np.array([rank.end for rank in ranks]) - offsets
    if len(ranks[0].steps):
        period = _period(ranks).max(axis=0)
        worst = int(period.argmax())
        step = int(ranks[0].steps.number[worst])
        starts = np.array([rank.steps.start[worst] for rank in ranks]) - offsets
        ends = starts + np.array([row[worst] for row in _period(ranks)])
    origin, finish = int(starts.min()), int(ends.max())
    if finish <= origin:
        return None
    lanes = []
    for column, rank in enumerate(ranks):
        shift = int(offsets[column])
        stall = view.stalls[column] if view is not None else Cover(rank.compute.start[:0], rank.compute.end[:0])
        exposed = rank.communication.minus(rank.compute).minus(stall)
        data = _input_wait(rank).minus(union([rank.compute, rank.communication]))
        bars: list[TimelineBar] = []
        for kind, cover in (("compute", rank.compute), ("wait", stall), ("transfer", exposed), ("input", data)):
            clipped = _coarse(cover.clipped(origin + shift, finish + shift), finish - origin)
            bars += [
                TimelineBar(kind=kind, start=(int(start) - shift - origin) * _NS, end=(int(end) - shift - origin) * _NS)
                for start, end in zip(clipped.start, clipped.end, strict=True)
            ]
        lanes.append(TimelineRank(rank=rank.trace.rank, bars=tuple(bars)))
    return Timeline(step=step, seconds=(finish - origin) * _NS, ranks=tuple(lanes))


def _coarse(cover: Cover, whole: int) -> Cover:
    """Stretches with smaller gaps between them than a picture can show become one."""
    gap = whole // _MAX_BARS
    widened = Cover(cover.start, cover.end + gap)
    return Cover(widened.start, widened.end - gap)
