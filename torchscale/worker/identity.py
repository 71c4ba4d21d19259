"""The fields that every rank's record begins with: rank, process, host, device, cores, versions."""

from __future__ import annotations

import os
import platform

import torch

from torchscale.schema.launch.task import LaunchTask
from torchscale.schema.node.environment import DeviceInfo, RankIdentity
from torchscale.util.cpu import cpu_name
from torchscale.worker.measure.host import usable_cpus
from torchscale.worker.memory.heap import host_allocator
from torchscale.worker.probe.devices import cuda_device
from torchscale.worker.probe.environment import collect_versions
from torchscale.worker.process_group import Ranks


def rank_identity(task: LaunchTask, ranks: Ranks) -> RankIdentity:
    """Rank, process, host, device, CPUs and software versions of this process."""
    return RankIdentity(
        rank=ranks.rank,
        local_rank=ranks.local_rank,
        node_rank=int(os.environ.get("GROUP_RANK", "0")),
        world_size=ranks.world_size,
        pid=os.getpid(),
        hostname=platform.node(),
        device=_device(task, ranks),
        backend=ranks.backend,
        threads=torch.get_num_threads(),
        cpus=usable_cpus(),
        versions=collect_versions(),
        allocator=host_allocator(),
        sockets=ranks.sockets,
    )


def _device(task: LaunchTask, ranks: Ranks) -> DeviceInfo:
    if task.device == "cuda":
        return cuda_device(task.device_indices[ranks.local_rank])
    if task.device != "cpu":
        return DeviceInfo(
            kind=task.device, index=task.device_indices[ranks.local_rank], name=task.device
        )
    return DeviceInfo(kind="cpu", index=usable_cpus()[0], name=cpu_name())
