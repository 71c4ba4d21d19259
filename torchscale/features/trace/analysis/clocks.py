"""Whether paired collectives end together on all ranks, and how far the clocks of hosts are
apart."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from torchscale.features.trace.analysis.paired import Paired
from torchscale.features.trace.span import GROUPED_SEND_RECV, SEND_RECV, Trace
from torchscale.util.units import format_percent

_ROOTED = frozenset(("broadcast", "reduce", SEND_RECV, GROUPED_SEND_RECV, "gather", "scatter"))
"""Collectives that do not end at the same moment on every rank, so that their ends do not show a
clock's offset."""
SAME_HOST_SPREAD_NS = 100_000
_BETWEEN_HOSTS_SPREAD_NS = 5_000_000
"""Ranks' ends of a symmetric collective may lie this far apart (docs/diagnosis.md): what is left of
the clocks between hosts after the offset is removed is that of NTP, some milliseconds; one host has
one clock."""
_RELATIVE_SPREAD = 0.10
"""Share of the collective's duration: a spread below it cannot change a wait by more than a
tenth."""
_SAME_COLLECTIVE_NS = 500_000
"""Ends of one collective lie within tens of microseconds on the GPUs of a host; those of unrelated
ones lie a part of a step apart, which is milliseconds."""
_LEFT_OUT_SHARE = 0.10
"""More collectives than this left out, and the rest may not stand for all."""


def ending_together(trace: Trace, paired: Paired) -> tuple[Paired, tuple[str, ...]]:
    """Leave out the collectives that order alone paired and whose ends show that they are not one.
    Also returns why that is a problem, if it is. An export may lack which process group a kernel is
    of: with several groups, kernels of different ones are paired."""
    # One export has one clock; between exports, ends lie apart as clocks do.
    if trace.recorder != "nsys" or len({rank.host for rank in trace.ranks}) > 1 or not len(paired):
        return paired, ()
    is_unnamed = np.array([not group for group in paired.groups], dtype=bool)
    spread = paired.highest(paired.end) - paired.lowest(paired.end)
    duration = paired.highest(paired.end - paired.start)
    symmetric = is_unnamed[paired.group] & ~paired.are(_ROOTED)
    apart = symmetric & (spread > _SAME_COLLECTIVE_NS) & (spread > _RELATIVE_SPREAD * duration)
    count, of = int(apart.sum()), int(symmetric.sum())
    if not count:
        return paired, ()
    problem = f"{count} of {of} collectives do not end together on the ranks and are left out"
    hint = (
        "the recording does not say which process group a kernel is of; torch.profiler does (--tool "
        "kineto)"
    )
    kept = paired.only(np.flatnonzero(~apart))
    if count > _LEFT_OUT_SHARE * of:
        return kept, (f"{problem}; {hint}",)
    return kept, ()


def clock_offsets(trace: Trace, paired: Paired) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """What to subtract from each rank's clock, and why waits are not to be trusted, if they are
    not.

    Ranks of one host share a clock. Between hosts: the median over blocking, unrooted collectives
    of a rank's end minus that of the group's lowest rank.
    """
    hosts = [rank.host for rank in trace.ranks]
    if len(set(hosts)) == 1 and hosts[0] is not None and not trace.ranks[0].on_device:
        # One clock by construction; and a collective on CPU ends when each rank's thread gets to
        # run.
        return np.zeros(len(hosts), dtype=np.int64), ()
    several = len({host for host in hosts if host is not None}) > 1
    offsets = np.zeros(len(hosts), dtype=np.int64)
    symmetric = ~paired.are(_ROOTED) & (paired.sizes == len(hosts))
    if several and not symmetric.any():
        return offsets, ("no collective that shows the clocks of several hosts",)
    if not symmetric.any():
        return offsets, ()
    members = paired.members(np.flatnonzero(symmetric))
    start = paired.start[members].reshape(-1, len(hosts))
    ends = paired.end[members].reshape(-1, len(hosts))
    duration = float(np.median((ends - start).max(axis=1)))
    limit = SAME_HOST_SPREAD_NS
    if several:
        limit = _BETWEEN_HOSTS_SPREAD_NS
        offsets = _host_offsets(hosts, ends)
    ends = ends - offsets
    spread = float(np.median(ends.max(axis=1) - ends.min(axis=1)))
    if spread > limit and spread > _RELATIVE_SPREAD * duration:
        return offsets, (
            f"the ranks' clocks do not agree: collectives end {spread / 1e6:.2f} ms apart "
            f"(median), {format_percent(spread / max(duration, 1.0), 0)} of their duration; those "
            "of ranks that share a device do so too",
        )
    return offsets, ()


def _host_offsets(hosts: Sequence[str | None], ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """How far the clock of each rank's host is ahead of the first rank's, in nanoseconds, by rank;
    ``ends`` are those of collectives of all ranks, a column a rank."""
    offsets = np.zeros(len(hosts), dtype=np.int64)
    columns: dict[str | None, list[int]] = defaultdict(list)
    for column, host in enumerate(hosts):
        columns[host].append(column)
        if host != hosts[0]:
            offsets[column] = int(np.median(ends[:, column] - ends[:, 0]))
    for same in columns.values():  # one clock a host
        offsets[same] = int(np.median(offsets[same]))
    return offsets
