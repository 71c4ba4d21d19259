"""A small network and a step of its training under any strategy, for the jobs beside this file.

Part of a step is a sleep that stands for kernels of a device, so that more ranks than cores do not
slow each other. None of it knows torchscale.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

STRATEGIES = ("ddp", "fsdp", "hsdp", "zero", "tensor", "pipeline", "plain", "no-optimizer")
MICRO_BATCHES = 4
LAYERS, WIDTH, ROWS = 4, 128, 32
"""Of the network, and of a batch: matrix products of 1 to 3 ms a step."""
END_SECONDS = 60
"""After which a collective fails that not all ranks call."""


class Kernels(torch.autograd.Function):
    """The identity, which takes a device's time for each row, twice as long backwards."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, row_seconds: float) -> Tensor:  # noqa: ANN401 - torch's own
        """``x`` itself."""
        ctx.seconds = row_seconds * len(x)
        time.sleep(ctx.seconds)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:  # noqa: ANN401 - torch's own
        """The gradient itself."""
        time.sleep(2 * ctx.seconds)
        return grads[0], None


class Network(nn.Module):
    """Square layers.

    Attributes:
        row_seconds: Of a device's time, for a row in the forward pass.
    """

    def __init__(self, layers: int = LAYERS, width: int = WIDTH, row_seconds: float = 0.0) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(layers)
        )
        self.row_seconds = row_seconds

    def forward(self, x: Tensor) -> Tensor:
        """The last layer's output."""
        for layer in self.layers:
            x = layer(x)
        if self.row_seconds:
            x = Kernels.apply(x, self.row_seconds)  # type: ignore[no-untyped-call]
        return x


class Rows(Dataset[Tensor]):
    """Random rows, without end."""

    def __init__(self, width: int = WIDTH) -> None:
        generator = torch.Generator().manual_seed(dist.get_rank())
        self.rows = torch.randn(4096, width, generator=generator)

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> Tensor:
        return self.rows[index % len(self.rows)]


@dataclass
class Job:
    """A model that is trained.

    Attributes:
        strategy: One of :data:`STRATEGIES`.
        model: Under the strategy.
        schedule: Of a pipeline.
        optimizer: ``None`` where parameters are updated by hand.
    """

    strategy: str
    model: nn.Module
    schedule: Any
    optimizer: torch.optim.Optimizer | None

    def train_step(self, batch: Tensor) -> Tensor | None:
        """The loss of a batch, before the step; ``None`` in a pipeline."""
        with around_step(self.model):
            loss = self.passes(batch)
            self.update()
        return loss

    def passes(self, batch: Tensor) -> Tensor | None:
        """The forward and backward pass, and the exchange of gradients in own loops."""
        rank, world = dist.get_rank(), dist.get_world_size()
        if self.schedule is not None:
            inputs = (batch,) if rank == 0 else ()
            target = {"target": batch} if rank == world - 1 else {}
            self.schedule.step(*inputs, **target)
            return None
        loss = squared_error(self.model(batch), batch)
        loss.backward()  # type: ignore[no-untyped-call]
        if self.strategy in ("plain", "no-optimizer"):
            for parameter in self.model.parameters():
                assert parameter.grad is not None
                dist.all_reduce(parameter.grad)
                parameter.grad /= world
        return loss.detach()

    def update(self) -> None:
        """Change the parameters."""
        if self.optimizer is not None:
            self.optimizer.step()
            self.optimizer.zero_grad()
            return
        with torch.no_grad():
            for parameter in self.model.parameters():
                assert parameter.grad is not None
                parameter.sub_(parameter.grad, alpha=1e-4)
                parameter.grad = None


def around_step(model: nn.Module) -> AbstractContextManager[None]:
    """What a tool asks users to put around a step; nothing here."""
    del model
    return contextlib.nullcontext()


def squared_error(output: Tensor, target: Tensor) -> Tensor:
    """The loss."""
    return (output - target).square().mean()


def make_job(strategy: str, make: Callable[[int], nn.Module], layers: int = LAYERS) -> Job:
    """A job.

    Args:
        strategy: One of :data:`STRATEGIES`.
        make: A network, from the number of its layers.
        layers: Of the whole network.
    """
    torch.manual_seed(0)
    model, schedule = _parallelized(strategy, make, layers)
    return Job(strategy, model, schedule, _optimizer(model, strategy))


def _parallelized(
    strategy: str, make: Callable[[int], nn.Module], layers: int
) -> tuple[nn.Module, Any]:
    world = dist.get_world_size()
    if strategy == "pipeline":
        from torch.distributed.pipelining import PipelineStage, Schedule1F1B  # noqa: PLC0415

        part = make(layers // world)
        stage = PipelineStage(part, dist.get_rank(), world, torch.device("cpu"))
        return part, Schedule1F1B(stage, n_microbatches=MICRO_BATCHES, loss_fn=squared_error)
    model = make(layers)
    if strategy in ("ddp", "zero"):
        return nn.parallel.DistributedDataParallel(model), None
    if strategy in ("fsdp", "hsdp"):
        _shard(model, strategy, world)
    if strategy == "tensor":
        _split(model, layers, world)
    return model, None


def _shard(model: nn.Module, strategy: str, world: int) -> None:
    from torch.distributed.device_mesh import init_device_mesh  # noqa: PLC0415
    from torch.distributed.fsdp import fully_shard  # noqa: PLC0415

    shape = (world,) if strategy == "fsdp" else (2, world // 2)
    names = ("shard",) if strategy == "fsdp" else ("copy", "shard")
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
    assert isinstance(model.layers, nn.ModuleList)
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)


def _split(model: nn.Module, layers: int, world: int) -> None:
    from torch.distributed.device_mesh import init_device_mesh  # noqa: PLC0415
    from torch.distributed.tensor.parallel import (  # noqa: PLC0415
        ColwiseParallel,
        ParallelStyle,
        RowwiseParallel,
        parallelize_module,
    )

    styles = (ColwiseParallel, RowwiseParallel)
    plan: dict[str, ParallelStyle] = {
        f"layers.{number}.0": styles[number % 2]() for number in range(layers)
    }
    parallelize_module(model, init_device_mesh("cpu", (world,)), plan)


def _optimizer(model: nn.Module, strategy: str) -> torch.optim.Optimizer | None:
    if strategy == "no-optimizer":
        return None
    if strategy == "zero":
        from torch.distributed.optim import ZeroRedundancyOptimizer  # noqa: PLC0415

        return ZeroRedundancyOptimizer(
            model.parameters(), optimizer_class=torch.optim.AdamW, lr=1e-4
        )
    return torch.optim.AdamW(model.parameters(), lr=1e-4)


def arguments(description: str | None) -> argparse.ArgumentParser:
    """Options that all jobs have."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--strategy", choices=STRATEGIES, default="ddp")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--step-ms", type=float, default=12.0, help="of kernels in a step")
    parser.add_argument("--rank", type=int, default=-1, help="that differs; -1 for all")
    return parser


def row_seconds(options: argparse.Namespace, rows: int = ROWS) -> float:
    """Kernels of the forward pass for a row, of a batch of ``rows``."""
    # A third of the step's kernels is forward; in a pipeline each stage has all rows once.
    return float(options.step_ms) / 1e3 / 3 / rows


def join(seconds: float = END_SECONDS) -> None:
    """Become a rank."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=seconds))


def is_chosen(options: argparse.Namespace) -> bool:
    """Whether this rank is the one that differs."""
    return options.rank in (-1, dist.get_rank())


def random_batches(rows: int = ROWS) -> Iterator[Tensor]:
    """Batches without end."""
    return iter(DataLoader(Rows(), batch_size=rows))


def leave() -> None:
    """End in order."""
    dist.barrier()
    dist.destroy_process_group()
