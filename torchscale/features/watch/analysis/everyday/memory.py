"""Memory that grows as long as the job runs, and memory that the allocator of a device holds in
pieces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from torchscale.features.watch.analysis.everyday.cause import EverydayCause, finding_of
from torchscale.features.watch.analysis.everyday.trend import BESIDE_OTHERS, MemoryTrend, growth
from torchscale.features.watch.analysis.everyday.watched import WatchedSteps
from torchscale.features.watch.analysis.evidence import UNKNOWN, MemorySeries
from torchscale.schema.profiles.finding import Confidence, Finding, FindingKind
from torchscale.util.interval_text import format_ends, with_interval
from torchscale.util.text import ranks_label
from torchscale.util.units import format_bytes, format_coarse_seconds, format_percent

_LEAST_BYTES = 16 << 20
"""Growth below this is what a process's own allocator, its caches and its threads may take."""
_LEAST_SHARE = 0.03
"""Of the level at the start: the same for large processes."""
_CERTAIN = 0.95
"""Correlation with time from which the growth is certain; few of its readings are out of order."""
_LONGEST_SHARE = 20.0
"""Times that the growth has been seen for which it is foretold at most."""
_PIECES = 0.5
"""Share of the growth of what is reserved by which what is allocated grows, for the rest to be in
pieces."""
_HOUR = 3600.0


@dataclass(frozen=True)
class MemoryLimits:
    """Memory that there is, where it is known.

    Attributes:
        device: Bytes of the device of each row; ``None`` where not known.
        host: Host → bytes that its processes may take together.
    """

    device: tuple[int | None, ...] = ()
    host: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class _Growing:
    """A row whose memory grows.

    Attributes:
        row: Which.
        trend: How.
        is_beside: Whether the trend is that of what it has more than the other rows.
    """

    row: int
    trend: MemoryTrend
    is_beside: bool = False


def find_memory_growth(
    watched: WatchedSteps, limits: MemoryLimits | None = None
) -> list[EverydayCause]:
    """Memory of ranks that grows from step to step, to the end of what was seen."""
    limits = limits or MemoryLimits()
    series = [rank.memory for rank in watched.evidence]
    host = _growing(watched, series, [one.resident for one in series])
    device = _growing(watched, series, [one.allocated for one in series])
    reserved = _growing(watched, series, [one.reserved for one in series])
    held = {item.row: item.trend.grown for item in device}
    pieces = [item for item in reserved if held.get(item.row, 0.0) < _PIECES * item.trend.grown]
    found = []
    if device:
        found.append(_finding(watched, device, "device", _device_limit(device, limits)))
    elif pieces:
        found.append(_in_pieces(watched, pieces))
    if host:
        found.append(_finding(watched, host, "host", _host_limit(watched, host, limits)))
    nothing = np.zeros(len(watched.table))
    return [EverydayCause(one, nothing) for one in found]


def _growing(
    watched: WatchedSteps, series: Sequence[MemorySeries], values: Sequence[NDArray[np.int64]]
) -> list[_Growing]:
    """Rows whose values grow, by enough to matter; the one that grows most first."""
    found = []
    for row, (one, readings) in enumerate(zip(series, values, strict=True)):
        known = (readings != UNKNOWN) & (one.step >= watched.first)
        time_ns, steps = one.time_ns[known], one.step[known]
        trend = growth(time_ns, steps, readings[known].astype(float))
        others = _grown_elsewhere(series, values, row, time_ns)
        is_beside = trend is None and others is not None
        if trend is None and others is not None:
            trend = growth(time_ns, steps, readings[known] - others, BESIDE_OTHERS)
        if trend is not None and trend.grown >= max(_LEAST_BYTES, _LEAST_SHARE * trend.level):
            found.append(_Growing(row, trend, is_beside))
    return sorted(found, key=lambda item: -item.trend.per_second)


def _grown_elsewhere(
    series: Sequence[MemorySeries],
    values: Sequence[NDArray[np.int64]],
    row: int,
    time_ns: NDArray[np.int64],
) -> NDArray[np.float64] | None:
    """By how many bytes the median of the other rows had grown at these times; ``None`` where one
    of them is not known."""
    grown = []
    for place, (one, readings) in enumerate(zip(series, values, strict=True)):
        known = readings != UNKNOWN
        if place == row:
            continue
        if not known.any() or not len(time_ns):
            return None
        mine = np.interp(time_ns, one.time_ns[known], readings[known])
        grown.append(mine - mine[0])
    return np.median(grown, axis=0) if grown else None


def _device_limit(found: Sequence[_Growing], limits: MemoryLimits) -> tuple[float, str] | None:
    """The least bytes that are left on the device of one of them, and of what."""
    left = [
        (limit - item.trend.peak, f"the device's {format_bytes(limit)}")
        for item in found
        for limit in limits.device[item.row : item.row + 1]
        if limit is not None
    ]
    return min(left, default=None)


def _host_limit(
    watched: WatchedSteps, found: Sequence[_Growing], limits: MemoryLimits
) -> tuple[float, str] | None:
    """The bytes that are left on the host of the one that grows most, per rank that grows there."""
    hosts = watched.log.hosts
    if hosts is None:
        return None
    host = hosts[found[0].row]
    limit = limits.host.get(host)
    if limit is None:
        return None
    used = sum(
        float(one.memory.resident[-1])
        for one, place in zip(watched.evidence, hosts, strict=True)
        if place == host and len(one.memory.resident)
    )
    sharing = sum(hosts[item.row] == host for item in found)
    return (limit - used) / sharing, f"the {format_bytes(limit)} that its processes may take"


def _finding(
    watched: WatchedSteps,
    found: Sequence[_Growing],
    what: str,
    limit: tuple[float, str] | None,
) -> Finding:
    """Of growing memory of the host or the device."""
    rows = [item.row for item in found]
    most = found[0].trend
    hourly = format_bytes(most.per_second * _HOUR)
    ends = [format_bytes(value * _HOUR) for value in (most.least, most.most)]
    who = _who(watched, rows)
    evidence = [
        f"{with_interval(f'{hourly} an hour', format_ends(*ends))}, from "
        f"{format_bytes(most.level)} on; correlation with time {most.correlation:.2f}"
    ]
    if len(found) > 1:
        shown = ", ".join(
            f"{watched.ranks[item.row]}: {format_bytes(item.trend.per_step)}" for item in found[:16]
        )
        evidence.append(f"a step, by rank: {shown}")
    beside = _beside(found)
    if not beside:  # how much it grows in all is not known there
        evidence += _full_at(most, limit)
    return finding_of(
        FindingKind.MEMORY_GROWTH,
        watched,
        0.0,
        rank=watched.rank_of(rows),
        period=None,
        confidence=Confidence.HIGH if most.correlation >= _CERTAIN else Confidence.MEDIUM,
        summary=f"the {what} memory of {who} grows by {format_bytes(most.per_step)} a step"
        f"{beside}, {hourly} an hour, and goes on",
        evidence=evidence,
        advice=_ADVICE[what],
    )


_ADVICE = {
    "device": "look for tensors that are kept from step to step: losses summed or listed with "
    "their graph (use loss.detach() or loss.item()), outputs in lists, caches; "
    "torch.cuda.memory._record_memory_history() names the lines that allocate them",
    "host": "look for what is kept from step to step: losses listed with their graph, lists of "
    "metrics or batches, caches without a limit, data sets that keep what they read; tracemalloc "
    "names the lines that allocate Python objects",
}


def _in_pieces(watched: WatchedSteps, found: Sequence[_Growing]) -> Finding:
    """Of memory that the device's allocator reserves and does not use."""
    most = found[0]
    readings = watched.evidence[most.row].memory
    reserved, allocated = int(readings.reserved[-1]), int(readings.allocated.max())
    rows = [item.row for item in found]
    return finding_of(
        FindingKind.MEMORY_GROWTH,
        watched,
        0.0,
        rank=watched.rank_of(rows),
        period=None,
        confidence=Confidence.MEDIUM,
        summary=f"the allocator of {_who(watched, rows)} reserves more and more of the device, "
        f"{format_bytes(most.trend.per_second * _HOUR)} an hour{_beside(found)}, while tensors "
        "take no more",
        evidence=(
            f"{format_bytes(reserved)} are reserved; tensors took at most "
            f"{format_bytes(allocated)} when they were read "
            f"({format_percent(allocated / reserved, 0)})",
        ),
        advice="the free memory is in pieces that are too small: set "
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, or keep sizes to a few fixed ones",
    )


def _beside(found: Sequence[_Growing]) -> str:
    """What the rates are compared with; empty where they are those of the memory itself."""
    return " more than that of the others" if any(item.is_beside for item in found) else ""


def _who(watched: WatchedSteps, rows: Sequence[int]) -> str:
    if len(rows) == len(watched.ranks) > 1:
        return "every rank"
    return ranks_label([watched.ranks[row] for row in rows])


def _full_at(trend: MemoryTrend, limit: tuple[float, str] | None) -> list[str]:
    """When memory is full at this rate, where that is not much longer than the growth was seen."""
    if limit is None:
        return []
    left, name = limit
    after = max(0.0, left) / trend.per_second
    if after > _LONGEST_SHARE * trend.grown / trend.per_second or trend.least <= 0:
        return []
    ends = [format_coarse_seconds(max(0.0, left) / rate) for rate in (trend.most, trend.least)]
    when = with_interval(format_coarse_seconds(after), format_ends(*ends))
    return [f"at this rate {name} are full in {when}"]
