"""This process's place among the ranks, and the few words the ranks exchange besides gradients."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

from torchscale.schema.cell import LaunchTask


@dataclass(frozen=True)
class Ranks:
    """Who this process is. ``backend`` is ``None`` for a single rank, which needs no process group."""

    rank: int
    local_rank: int
    world_size: int
    device: torch.device
    backend: str | None

    def agree(self, value: float) -> float:
        """Rank 0's ``value``, on every rank. Goes over CPU tensors, so that it never waits for the GPU."""
        if self.backend is None:
            return value
        message = torch.tensor([value], dtype=torch.float64)
        dist.broadcast(message, src=0)
        return float(message.item())

    def gather(self, values: torch.Tensor) -> list[torch.Tensor]:
        """Every rank's ``values`` (a CPU tensor of one shape everywhere), by rank."""
        if self.backend is None:
            return [values]
        gathered = [torch.empty_like(values) for _ in range(self.world_size)]
        dist.all_gather(gathered, values)
        return gathered

    def align(self) -> None:
        """Return once every rank has come here, so that a batch starts together."""
        if self.backend is not None:
            # A barrier would run on NCCL and hold the GPU; an all-reduce of a CPU tensor does not.
            dist.all_reduce(torch.zeros(1))


def local_rank() -> int:
    """Rank within this machine, as torchrun says."""
    return int(os.environ["LOCAL_RANK"])


@contextmanager
def joined_ranks(task: LaunchTask) -> Iterator[Ranks]:
    """Join the process group of this launch (gloo for CPU tensors, NCCL for CUDA ones) and leave it at the end."""
    rank, local, world_size = int(os.environ["RANK"]), local_rank(), int(os.environ["WORLD_SIZE"])
    device = torch.device("cpu")
    if task.device == "cuda":
        device = torch.device("cuda", task.device_indices[local])
        torch.cuda.set_device(device)
    if world_size == 1:
        yield Ranks(rank, local, world_size, device, None)
        return
    timeout = timedelta(seconds=task.collective_timeout_seconds)
    if device.type == "cuda":
        dist.init_process_group("cpu:gloo,cuda:nccl", timeout=timeout)
    else:
        dist.init_process_group("gloo", timeout=timeout)
    yield Ranks(rank, local, world_size, device, "nccl" if device.type == "cuda" else "gloo")
    # Not on an error: the others may hang in a collective, and the process is about to end anyway.
    dist.destroy_process_group()
