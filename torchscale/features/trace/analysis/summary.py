"""What a recording says of each rank, collective and kernel, and one step of it as a picture."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np
from numpy.typing import NDArray

from torchscale.analysis.machine.bus_factor import bus_factor
from torchscale.analysis.stats.intervals import IntervalSet, union
from torchscale.features.trace.analysis.paired import Paired, Places
from torchscale.features.trace.analysis.waits import Waits
from torchscale.features.trace.analysis.windows import NS, RankWindow, step_periods
from torchscale.schema.profiles.analysis import (
    CollectiveSummary,
    Idle,
    KernelSummary,
    RankBreakdown,
    Timeline,
    TimelineBar,
    TimelineRank,
)

_TOP = 15
"""Kernels that are listed. Chosen to fit a screen."""
_MAX_BARS = 400
"""Maximum number of bars of a rank in the timeline. Chosen: about one for two pixels of the
picture."""
_MAX_LANES = 64
"""Ranks in the timeline. Chosen: as many lanes as a page holds; the bars of 1,024 ranks would take
more memory than all else."""


def breakdown(rank: RankWindow, column: int, view: Waits | None) -> RankBreakdown:
    """Where a rank's time went; ``column`` is its place in ``view``."""
    compute, communication = rank.compute, rank.communication
    exposed = communication.minus(compute)
    overlap = copies = exposed_copies = stall = transfer = blame_percent = late = None
    if communication.length:
        overlap = 1 - exposed.length / communication.length
    if rank.trace.on_device:
        copies, exposed_copies = rank.copies.length * NS, rank.exposed_copies.length * NS
    if view is not None:
        stall = view.stalls[column].length * NS
        transfer = max(0.0, exposed.length * NS - stall)
        late = _arrives_late(view, column)
    if view is not None and view.blame.sum():
        blame_percent = float(view.blame_shares[column]) * 100
    return RankBreakdown(
        rank=rank.trace.rank,
        host=rank.trace.host,
        source=rank.trace.source,
        window_seconds=rank.length * NS,
        compute_seconds=compute.length * NS,
        communication_seconds=communication.length * NS,
        exposed_communication_seconds=exposed.length * NS,
        overlap=overlap,
        sync_stall_seconds=stall,
        transfer_seconds=transfer,
        copy_seconds=copies,
        exposed_copy_seconds=exposed_copies,
        idle=_idle(rank),
        blame_percent=blame_percent,
        arrives_late_seconds=late,
        peak_memory_bytes=rank.trace.peak_bytes,
    )


def _arrives_late(view: Waits, column: int) -> float | None:
    """Seconds after the first rank, mean over the rank's collectives; ``None`` without any."""
    paired, mine = view.paired, view.members[column]
    if not len(mine):
        return None
    return float(np.mean(paired.start[mine] - paired.earliest[paired.row[mine]])) * NS


def _idle(rank: RankWindow) -> Idle:
    gaps = rank.gaps
    total = gaps.length
    waiting = int(rank.waiting_for_data.within(gaps.start, gaps.end).sum())
    host = rank.host_bound
    if host is None:
        return Idle(
            total_seconds=total * NS,
            host_bound_seconds=None,
            input_seconds=None,
            other_seconds=None,
        )
    host_alone = host.minus(rank.waiting_for_data).length
    return Idle(
        total_seconds=total * NS,
        host_bound_seconds=host_alone * NS,
        input_seconds=waiting * NS,
        other_seconds=max(0, total - waiting - host_alone) * NS,
    )


def collective_summaries(
    ranks: list[RankWindow], paired: Paired, view: Waits | None
) -> tuple[CollectiveSummary, ...]:
    """Summaries of the collectives of each operation, group and size; the costliest first."""
    summaries = [_paired_summary(ranks, paired, view, rows) for rows in _alike(paired)]
    if not summaries:
        summaries = _unpaired_summaries(ranks)
    summaries.sort(key=lambda item: -item.count * item.mean_seconds)
    return tuple(summaries)


def _alike(paired: Paired) -> list[Places]:
    """Rows of each operation, group and size, by their first."""
    if not len(paired):
        return []
    kinds = np.stack([paired.op, paired.group, paired.payload_bytes], axis=1)
    _, first, kind = np.unique(kinds, axis=0, return_index=True, return_inverse=True)
    kind = np.ravel(kind)
    order = np.argsort(kind, kind="stable")
    rows = np.split(order, np.flatnonzero(np.diff(kind[order])) + 1)
    return [rows[number] for number in np.argsort(first).tolist()]


def _paired_summary(
    ranks: list[RankWindow], paired: Paired, view: Waits | None, rows: Places
) -> CollectiveSummary:
    op, group = paired.ops[paired.op[rows[0]]], paired.groups[paired.group[rows[0]]]
    size = int(paired.payload_bytes[rows[0]])
    members = paired.members(rows)
    durations = paired.end[members] - paired.start[members]
    wait = transfer = bus_bytes_per_second = last_rank = last_percent = None
    if view is not None:
        wait = float(view.wait[members].mean()) * NS
        transfer = float(view.transfer[members].mean()) * NS
        last, times = Counter(paired.last[rows].tolist()).most_common(1)[0]
        last_rank, last_percent = ranks[last].trace.rank, times / len(rows) * 100
    factor = bus_factor(op, int(paired.sizes[rows[0]]))
    if size >= 0 and factor is not None and transfer:
        bus_bytes_per_second = size * factor / transfer
    return CollectiveSummary(
        op=op,
        group=group,
        payload_bytes=_known_size(size),
        count=len(rows),
        mean_seconds=float(durations.mean()) * NS,
        wait_seconds=wait,
        transfer_seconds=transfer,
        bus_bytes_per_second=bus_bytes_per_second,
        last_rank=last_rank,
        last_percent=last_percent,
    )


def _known_size(size: int) -> int | None:
    if size < 0:
        return None
    return size


def _unpaired_summaries(ranks: list[RankWindow]) -> list[CollectiveSummary]:
    """What one rank, or ranks that cannot be compared, did."""
    durations: dict[tuple[str, str, int], list[int]] = defaultdict(list)
    for rank in ranks:
        collectives = rank.trace.collectives
        for place in range(len(collectives)):
            if rank.start <= collectives.start[place] < rank.end:
                group, op = (
                    collectives.groups[collectives.group[place]],
                    collectives.ops[collectives.op[place]],
                )
                length = int(collectives.end[place] - collectives.start[place])
                durations[op, group, int(collectives.payload_bytes[place])].append(length)
    return [
        CollectiveSummary(
            op=op,
            group=group,
            payload_bytes=_known_size(size),
            count=len(lengths),
            mean_seconds=float(np.mean(lengths)) * NS,
        )
        for (op, group, size), lengths in durations.items()
    ]


def kernel_summaries(ranks: list[RankWindow]) -> tuple[KernelSummary, ...]:
    """Kernels, or on CPU outermost operators, summed over ranks; the costliest first."""
    seconds: dict[str, float] = defaultdict(float)
    counts: Counter[str] = Counter()
    for rank in ranks:
        spans, names = rank.trace.spans, rank.trace.names
        chosen = rank.chosen
        lengths = (spans.end - spans.start)[chosen]
        summed = np.bincount(spans.name[chosen], weights=lengths, minlength=len(names))
        times = np.bincount(spans.name[chosen], minlength=len(names))
        for number in np.flatnonzero(times):
            seconds[names[number]] += float(summed[number]) * NS
            counts[names[number]] += int(times[number])
    together = sum(seconds.values())
    return tuple(
        KernelSummary(
            name=name[:200],
            count=counts[name],
            seconds=value,
            percent_of_compute=value / together * 100,
        )
        for name, value in sorted(seconds.items(), key=lambda item: -item[1])[:_TOP]
        if together > 0
    )


def _drawn(ranks: list[RankWindow], view: Waits | None) -> list[int]:
    """Columns of the ranks of a picture: all where they are few, else those that others waited for
    most, those that waited most, and others evenly over all."""
    if len(ranks) <= _MAX_LANES:
        return list(range(len(ranks)))
    chosen = dict.fromkeys(
        np.linspace(0, len(ranks) - 1, _MAX_LANES // 2).round().astype(np.int64).tolist()
    )
    if view is not None:
        waited = np.array([cover.length for cover in view.stalls])
        for order in (np.argsort(-view.blame, kind="stable"), np.argsort(-waited, kind="stable")):
            chosen |= dict.fromkeys(order[: _MAX_LANES // 4].tolist())
    return sorted(chosen)


def worst_step(
    ranks: list[RankWindow], view: Waits | None, offsets: NDArray[np.int64]
) -> Timeline | None:
    """The longest step; without steps, the whole window."""
    step: int | None = None
    starts = np.array([rank.start for rank in ranks]) - offsets
    ends = np.array([rank.end for rank in ranks]) - offsets
    if len(ranks[0].steps):
        period = step_periods(ranks).max(axis=0)
        worst = int(period.argmax())
        step = int(ranks[0].steps.number[worst])
        starts = np.array([rank.steps.start[worst] for rank in ranks]) - offsets
        ends = starts + np.array([row[worst] for row in step_periods(ranks)])
    origin, finish = int(starts.min()), int(ends.max())
    if finish <= origin:
        return None
    lanes = []
    for column in _drawn(ranks, view):
        rank, shift = ranks[column], int(offsets[column])
        stall = IntervalSet(rank.compute.start[:0], rank.compute.end[:0])
        if view is not None:
            stall = view.stalls[column]
        exposed = rank.exposed.minus(stall)
        data = rank.input_wait.minus(union([rank.compute, rank.communication]))
        bars: list[TimelineBar] = []
        for kind, cover in (
            ("compute", rank.compute),
            ("wait", stall),
            ("transfer", exposed),
            ("input", data),
        ):
            clipped = _coarse(cover.clipped(origin + shift, finish + shift), finish - origin)
            bars += [
                TimelineBar(
                    kind=kind,
                    start=(int(start) - shift - origin) * NS,
                    end=(int(end) - shift - origin) * NS,
                )
                for start, end in zip(clipped.start, clipped.end, strict=True)
            ]
        lanes.append(TimelineRank(rank=rank.trace.rank, bars=tuple(bars)))
    return Timeline(step=step, seconds=(finish - origin) * NS, ranks=tuple(lanes))


def _coarse(cover: IntervalSet, whole: int) -> IntervalSet:
    """Stretches with smaller gaps between them than a picture can show become one."""
    gap = whole // _MAX_BARS
    widened = IntervalSet(cover.start, cover.end + gap)
    return IntervalSet(widened.start, widened.end - gap)
