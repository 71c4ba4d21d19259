"""Bounds of the delay of a launch by other processes, at least and at most. Definitions in
``docs/method.md``.

A thread that could run and has no core waits in the kernel's run queue, and the kernel counts that
time. It is the direct cost of sharing a core: a rank that sleeps while others use its core waits
for nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from torchscale.analysis.training.flags import gpus_are_shared, is_throttled, ranks_by_host
from torchscale.schema.launch.rank import HostLoad, RankRecord
from torchscale.schema.launch.record import LaunchRecord, payload
from torchscale.schema.launch.training import TrainingResult
from torchscale.util.optional import complete, optional


def delay_bounds(record: LaunchRecord) -> tuple[float, float] | None:
    """Shares of the measurement by which other processes delayed it: at least, and at most.

    ``None`` where nothing bounds it: processor time was not read, or a GPU was shared or lowered
    its clocks.
    """
    ranks = payload(record, TrainingResult).ranks
    loads = [rank.host_load for rank in ranks]
    if not loads or any(load.wall_seconds <= 0 or load.cores <= 0 for load in loads):
        return None
    if gpus_are_shared(record.machine_telemetry, ranks) or is_throttled(
        record.machine_telemetry, ranks
    ):
        return None
    wall = max(load.wall_seconds for load in loads)
    most = min(1.0, math.fsum(_most_of_host(host) for host in ranks_by_host(ranks)) / wall)
    return min(_least(ranks) / wall, most), most


def fixed_work(ranks: Sequence[RankRecord]) -> tuple[float, float] | None:
    """Processor time of the fixed work between batches, in seconds: its matrix products and its
    copy, of the rank where each took longest; ``None`` unless all ranks did it, and where a clock
    of processor time is too coarse for it."""
    known = [
        load.fixed_work_seconds
        for rank in ranks
        if (load := rank.host_load).fixed_work_seconds is not None
    ]
    if not known or len(known) < len(ranks) or not all(map(min, known)):
        return None
    return max(products for products, _ in known), max(copies for _, copies in known)


def _least(ranks: Sequence[RankRecord]) -> float:
    """Seconds that every rank waited for others' threads on its main thread. One rank alone may
    have waited while it would have waited for another rank anyway; a GPU computes on while its
    process waits."""
    if any(rank.device.kind != "cpu" for rank in ranks):
        return 0.0
    return min(_own_wait(rank.host_load) for rank in ranks)


def _own_wait(load: HostLoad) -> float:
    """Seconds that the main thread waited for a core, without the time that the rank's other
    threads and its loader may have kept it waiting."""
    queue = load.run_queue
    if queue is None:
        return 0.0
    by_own_threads = max(0.0, load.process_seconds - queue.main_cpu_seconds)
    return max(0.0, min(queue.main_seconds - by_own_threads, _foreign(load)))


def _most_of_host(ranks: Sequence[RankRecord]) -> float:
    """Seconds. What each rank lost adds up, since the others wait for it each time."""
    loads = [rank.host_load for rank in ranks]
    if all(load.pinned for load in loads):
        return math.fsum(_most(load, _foreign(load)) for load in loads)
    used = math.fsum(load.process_seconds for load in loads)
    foreign = max(0.0, loads[0].busy_seconds - used)
    waited = optional(math.fsum, complete(_waited(load) for load in loads))
    return _delay(waited, foreign, loads[0].interrupted_seconds or 0.0)


def _most(load: HostLoad, foreign: float) -> float:
    return _delay(_waited(load), foreign, load.interrupted_seconds or 0.0)


def _waited(load: HostLoad) -> float | None:
    """Seconds in run queues; ``None`` where the kernel does not say."""
    if load.run_queue is None:
        return None
    return load.run_queue.seconds


def _delay(waited: float | None, foreign: float, interrupted: float) -> float:
    """Threads lose no more than they waited, nor than others used of their cores. What a hypervisor
    or an interrupt took is seen in no run queue."""
    if waited is None:
        return foreign
    return min(waited, foreign) + interrupted


def _foreign(load: HostLoad) -> float:
    """Seconds that others used of a pinned rank's cores."""
    return max(0.0, load.busy_seconds - load.process_seconds)
