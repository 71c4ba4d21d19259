"""Bounds of the delay of a launch by other processes, at least and at most. Definitions in
``docs/method.md``.

A thread that could run and has no core waits in the kernel's run queue, and the kernel counts that
time. It is the direct cost of sharing a core: a rank that sleeps while others use its core waits
for nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from torchscale.schema.launch.rank import HostLoad, RankRecord
from torchscale.schema.launch.record import LaunchRecord, payload
from torchscale.schema.launch.training import TrainingResult
from torchscale.util.optional import complete, optional


def delay_bounds(record: LaunchRecord) -> tuple[float, float] | None:
    """Shares of the measurement by which other processes delayed it on its cores: at least, and at
    most; ``None`` where processor time was not read."""
    result = payload(record, TrainingResult)
    most = most_delay(result.ranks)
    if most is None:
        return None
    wall = max(rank.host_load.wall_seconds for rank in result.ranks)
    return min(_least(result) / wall, most), most


def most_delay(ranks: Sequence[RankRecord]) -> float | None:
    """Share of the measurement by which other processes delayed it on its cores, at most; ``None``
    where processor time was not read."""
    loads = [rank.host_load for rank in ranks]
    if not loads or any(load.wall_seconds <= 0 or load.cores <= 0 for load in loads):
        return None
    wall = max(load.wall_seconds for load in loads)
    by_hosts = math.fsum(_most_of_host(host) for host in ranks_by_host(ranks))
    return max(0.0, min(by_hosts, wall - _least_alone(ranks)) / wall)


def ranks_by_host(ranks: Sequence[RankRecord]) -> list[list[RankRecord]]:
    """Ranks of each host, in the order in which hosts appear."""
    hosts: dict[str, list[RankRecord]] = {}
    for rank in ranks:
        hosts.setdefault(rank.hostname, []).append(rank)
    return list(hosts.values())


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


def _least_alone(ranks: Sequence[RankRecord]) -> float:
    """Seconds that the measurement would have taken alone, at least: what the main thread of the
    busiest rank computed, without what the hypervisor took, which some kernels charge to it."""
    computed = (
        load.run_queue.main_cpu_seconds - (load.stolen_seconds or 0.0)
        for load in (rank.host_load for rank in ranks)
        if load.run_queue is not None
    )
    return max(0.0, *computed, 0.0)


def _least(result: TrainingResult) -> float:
    """Seconds by which others delayed every rank: each waited for its own core, or for a rank that
    waited for its core. One rank alone may have waited for its core while it would have waited for
    another rank anyway; a GPU computes on while its process waits."""
    if any(rank.device.kind != "cpu" for rank in result.ranks):
        return 0.0
    own = [_own_wait(rank.host_load) for rank in result.ranks]
    for_others = _waits_for_ranks(result)
    return min(
        waited + min(waited_for, math.fsum(own) - waited)
        for waited, waited_for in zip(own, for_others, strict=True)
    )


def _waits_for_ranks(result: TrainingResult) -> list[float]:
    """Seconds that each rank waited for the last one to arrive; 0 where that was not measured."""
    signals = result.signals
    if signals is None or signals.wait is None:
        return [0.0] * len(result.ranks)
    steps = result.ranks[0].batches.steps
    return [
        math.fsum(wait * count for wait, count in zip(waits, steps, strict=False))
        for waits in signals.wait
    ]


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
    foreign = max(0.0, loads[0].occupied_seconds - used)
    waited = optional(math.fsum, complete(_waited(load) for load in loads))
    return _delay(waited, foreign, loads[0].stolen_seconds or 0.0)


def _most(load: HostLoad, foreign: float) -> float:
    return _delay(_waited(load), foreign, load.stolen_seconds or 0.0)


def _waited(load: HostLoad) -> float | None:
    """Seconds in run queues; ``None`` where the kernel does not say."""
    if load.run_queue is None:
        return None
    return load.run_queue.seconds


def _delay(waited: float | None, foreign: float, stolen: float) -> float:
    """Threads lose no more than they waited, nor than others used of their cores. What a hypervisor
    took is seen in no run queue."""
    if waited is None:
        return foreign
    return min(waited, foreign) + stolen


def _foreign(load: HostLoad) -> float:
    """Seconds that others used of a pinned rank's cores."""
    return max(0.0, load.occupied_seconds - load.process_seconds)
