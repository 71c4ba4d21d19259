"""What is read beside the ranks of an acceptance: counters of links and GPUs, CPUs that were held
back, and ranks far from their GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torchscale.features.validate.acceptance.figures import rank_devices
from torchscale.launch.counters import CounterReading, gpu_counters, network_counters
from torchscale.schema.launch.record import LaunchRecord
from torchscale.schema.launch.telemetry import GpuUse
from torchscale.schema.node.acceptance import Conditions, Counter
from torchscale.schema.node.environment import RankIdentity, bare_uuid
from torchscale.schema.node.probe import NodeFacts
from torchscale.util.control_groups import CpuQuota, cpu_quota


def numbers_of_gpus(facts: NodeFacts) -> dict[str, int]:
    """Number of each GPU as ``nvidia-smi`` shows it, by UUID as torch gives it."""
    gpus = facts.driver.gpus if facts.driver is not None else ()
    return {bare_uuid(gpu.uuid): gpu.index for gpu in gpus if gpu.uuid}


def read_counters(facts: NodeFacts) -> list[CounterReading]:
    """Counters of errors of all GPUs and network cards."""
    return [*gpu_counters(numbers_of_gpus(facts)), *network_counters()]


def outside_conditions(
    records: Sequence[LaunchRecord],
    gpus: tuple[GpuUse, ...],
    before: CpuQuota,
    seconds: float,
    node_cores: Mapping[int, tuple[int, ...]],
) -> Conditions:
    """Under what a round was measured, as far as ranks do not tell.

    Args:
        records: Its launches.
        gpus: What the driver reported of the GPUs meanwhile.
        before: The CPU quota when it began.
        seconds: What it took.
        node_cores: Cores of each NUMA node.
    """
    now, ranks = cpu_quota(), list(rank_devices(records))
    cpus = len({cpu for rank in ranks for cpu in rank.cpus})
    held_back = None
    if before.held_back_seconds is not None and now.held_back_seconds is not None and cpus:
        held_back = max(0.0, now.held_back_seconds - before.held_back_seconds)
        held_back /= seconds * cpus
    return Conditions(
        quota_cpus=now.cpus,
        held_back_share=held_back,
        far_uuids=_far(ranks, node_cores),
        gpus=tuple(use.model_copy(update={"uuid": bare_uuid(use.uuid)}) for use in gpus),
    )


def _far(
    ranks: Sequence[RankIdentity], node_cores: Mapping[int, tuple[int, ...]]
) -> tuple[str, ...]:
    """UUIDs of the GPUs whose ranks ran on cores of another NUMA node."""
    far: dict[str, None] = {}
    for rank in ranks:
        near = node_cores.get(-1 if rank.device.numa_node is None else rank.device.numa_node)
        if len(node_cores) > 1 and rank.device.uuid and near and not set(rank.cpus) <= set(near):
            far[bare_uuid(rank.device.uuid)] = None
    return tuple(far)


def counted(
    before: Sequence[CounterReading], after: Sequence[CounterReading]
) -> tuple[Counter, ...]:
    """Counters that were there at both ends; one that was set back meanwhile counts from 0."""
    now = {(each.part, each.counter): each.value for each in after}
    return tuple(
        Counter(
            part=each.part,
            counter=each.counter,
            uuid=each.uuid,
            before=min(each.value, now[each.part, each.counter]),
            after=now[each.part, each.counter],
        )
        for each in before
        if (each.part, each.counter) in now
    )
