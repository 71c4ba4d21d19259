"""The process group of a launch: joining it, and small collectives besides those of training."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from torchscale.catalog.backends import NCCL
from torchscale.config.strategies.data_parallel import Fsdp
from torchscale.schema.cells.checkpoint import CheckpointCell
from torchscale.schema.cells.kinds import AnyCell, as_kind, training_workload
from torchscale.schema.launch.task import LaunchTask
from torchscale.schema.node.environment import RankSocket
from torchscale.worker.sockets import connections, new_sockets

T = TypeVar("T")


@dataclass(frozen=True)
class Ranks:
    """Rank, device and backend of this process. ``backend`` is ``None`` for a single rank without a
    process group. ``sockets`` are gloo's, where it moves the data."""

    rank: int
    local_rank: int
    world_size: int
    device: torch.device
    backend: str | None
    sockets: tuple[RankSocket, ...] = ()

    def broadcast_scalar(self, value: float) -> float:
        """Rank 0's ``value``, on every rank. Uses CPU tensors, so that it does not wait for the
        GPU."""
        if self.backend is None:
            return value
        message = torch.tensor([value], dtype=torch.float64)
        dist.broadcast(message, src=0)
        return float(message.item())

    def gather(self, values: torch.Tensor) -> list[torch.Tensor]:
        """The ``values`` of every rank, in the order of ranks: CPU tensors, of the same shape on
        all ranks."""
        if self.backend is None:
            return [values]
        gathered = [torch.empty_like(values) for _ in range(self.world_size)]
        dist.all_gather(gathered, values)
        return gathered

    def add_up(self, values: torch.Tensor) -> torch.Tensor:
        """The sum of the ``values`` of all ranks: CPU tensors, of the same shape on all ranks."""
        if self.backend is None:
            return values
        total = values.clone()
        dist.all_reduce(total)
        return total

    def gather_objects(self, value: T) -> list[T]:
        """The ``value`` of every rank, in the order of ranks; anything that can be pickled."""
        if self.backend is None:
            return [value]
        gathered: list[Any] = [None] * self.world_size
        dist.all_gather_object(gathered, value)
        return gathered

    def barrier(self) -> None:
        """Return once every rank has called this, so that all start together."""
        if self.backend is not None:
            # dist.barrier would run on NCCL and block the GPU; an all-reduce of a CPU tensor does
            # not.
            dist.all_reduce(torch.zeros(1))


def local_rank() -> int:
    """Rank within this machine, from torchrun's environment variable ``LOCAL_RANK``."""
    return int(os.environ["LOCAL_RANK"])


def local_world_size(world_size: int) -> int:
    """Ranks on this machine, from torchrun's environment variable ``LOCAL_WORLD_SIZE``; all of them
    without it."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", world_size))


@contextmanager
def joined_ranks(task: LaunchTask, name: str = "", *, is_last: bool = False) -> Iterator[Ranks]:
    """Join the process group of this launch (gloo for CPU tensors, the device's own backend for its
    tensors) and leave it at the end; gloo is not left where the process ends after this
    (``is_last``), which closes its sockets.

    Several launches of one torchrun need different values of ``name``: each group then has its own
    prefix in torchrun's store and does not read keys of an earlier one.
    """
    rank, local, world_size = int(os.environ["RANK"]), local_rank(), int(os.environ["WORLD_SIZE"])
    device = _device(task, local)
    if world_size == 1 and not _needs_group_of_one(task.cell):
        yield Ranks(rank, local, world_size, device, None)
        return
    device_backend = None if device.type == "cpu" or task.oversubscribed else _BACKENDS[device.type]
    options: dict[str, Any] = {}
    if name:
        options = {"store": _store(name), "rank": rank, "world_size": world_size}
    before = connections()
    dist.init_process_group(
        "gloo" if device_backend is None else f"cpu:gloo,{device.type}:{device_backend}",
        timeout=timedelta(seconds=task.collective_timeout_seconds),
        **options,
    )
    sockets = () if device_backend is not None else new_sockets(before, _store_port())
    yield Ranks(rank, local, world_size, device, device_backend or "gloo", sockets)
    # Not on an error: the others may hang in a collective, and the process is about to end anyway.
    if device_backend is not None or not is_last:
        dist.destroy_process_group()


def _needs_group_of_one(cell: AnyCell) -> bool:
    """Whether one rank by itself needs a process group: FSDP shards over a mesh of one as well, and
    checkpoints are planned over a group."""
    training = training_workload(cell)
    is_sharded = training is not None and isinstance(training.strategy, Fsdp)
    return is_sharded or as_kind(cell, CheckpointCell) is not None


_BACKENDS = {"cuda": NCCL, "xpu": "xccl"}


def _device(task: LaunchTask, local: int) -> torch.device:
    """This rank's device, set as the current one."""
    if task.device == "cpu":
        return torch.device("cpu")
    if task.device == "mps":
        return torch.device("mps")
    device = torch.device(task.device, task.device_indices[local])
    accelerator = torch.cuda if task.device == "cuda" else torch.xpu
    accelerator.set_device(device)
    accelerator.init()  # a device mesh would otherwise make the device of the local rank's number the current one
    return device


def _store_port() -> int | None:
    """Port of torchrun's store, from its environment variable ``MASTER_PORT``."""
    port = os.environ.get("MASTER_PORT", "")
    return int(port) if port.isdecimal() else None


def _store(name: str) -> Store:
    return PrefixStore(f"torchscale/{name}", _base_store())


@functools.cache
def _base_store() -> Store:
    """The store of torchrun's rendezvous, one per process."""
    store, _, _ = next(rendezvous("env://"))
    assert isinstance(store, Store)  # noqa: S101 - torch does not type it
    return store
