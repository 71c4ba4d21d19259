"""Trains a small network under one strategy, with one injected cause of lost time. It knows nothing
of torchscale: ``benchmarks/watch.py`` watches it as any user's program.

::

    torchrun --standalone --nproc-per-node 2 benchmarks/watched_program.py --strategy fsdp --cause forward
"""

from __future__ import annotations

import argparse
import contextlib
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

STRATEGIES = ("ddp", "fsdp", "hsdp", "zero", "tensor", "pipeline", "plain", "no-optimizer")
CAUSES = ("none", "forward", "backward", "loader", "host", "checkpoint", "evaluation")
SHAPES = ("always", "middle", "growing", "spells")
SPELL_SECONDS = 1.2
MICRO_BATCHES = 4


@dataclass
class Cause:
    """What this rank loses, and when.

    Attributes:
        name: One of :data:`CAUSES`.
        rank: Whose; -1 for all.
        seconds: A step, or a pause.
        shape: One of :data:`SHAPES`.
        burns: Whether it computes in Python meanwhile, or sleeps.
        steps: Of the whole run.
        every: Steps between pauses.
    """

    name: str
    rank: int
    seconds: float
    shape: str
    burns: bool
    steps: int
    every: int
    step: int = 0
    began: float = 0.0

    def lose(self, where: str) -> None:
        """Lose the time of this place, if it is the cause's."""
        if where != self.name or self.rank not in (-1, dist.get_rank()):
            return
        seconds = self.seconds
        if self.shape == "middle" and self.step < self.steps // 2:
            return
        if self.shape == "spells" and int((time.time() - self.began) / SPELL_SECONDS) % 2:
            return
        if self.shape == "growing":
            seconds *= 2 * self.step / self.steps
        if where in ("checkpoint", "evaluation") and self.step % self.every != self.every - 1:
            return
        if not self.burns:
            time.sleep(seconds)
            return
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            pass


class Rows(Dataset[Tensor]):
    """Random rows, without end."""

    def __init__(self, width: int) -> None:
        generator = torch.Generator().manual_seed(dist.get_rank())
        self.rows = torch.randn(4096, width, generator=generator)

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> Tensor:
        return self.rows[index % len(self.rows)]


class LoseBackward(torch.autograd.Function):
    """The identity, which loses the time of a cause in its backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cause: Cause) -> Tensor:  # noqa: ANN401 - torch's own
        """``x`` itself."""
        ctx.cause = cause
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:  # noqa: ANN401 - torch's own
        """The gradient itself, later."""
        ctx.cause.lose("backward")
        return grads[0], None


class Network(nn.Module):
    """Square layers."""

    def __init__(self, layers: int, width: int, cause: Cause) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(layers)
        )
        self.cause = cause

    def forward(self, x: Tensor) -> Tensor:
        """The last layer's output."""
        self.cause.lose("forward")
        for number, layer in enumerate(self.layers):
            x = layer(x)
            if number == len(self.layers) // 2:
                x = LoseBackward.apply(x, self.cause)  # type: ignore[no-untyped-call]
        return x


def parallelized(model: Network, strategy: str, layers: int, width: int) -> tuple[nn.Module, Any]:
    """The model under a strategy, and the schedule of a pipeline."""
    world = dist.get_world_size()
    if strategy in ("ddp", "zero"):
        return nn.parallel.DistributedDataParallel(model), None
    if strategy in ("fsdp", "hsdp"):
        from torch.distributed.device_mesh import init_device_mesh  # noqa: PLC0415
        from torch.distributed.fsdp import fully_shard  # noqa: PLC0415

        shape = (world,) if strategy == "fsdp" else (2, world // 2)
        names = ("shard",) if strategy == "fsdp" else ("copy", "shard")
        mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
        for layer in model.layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        return model, None
    if strategy == "tensor":
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
        return parallelize_module(model, init_device_mesh("cpu", (world,)), plan), None
    if strategy == "pipeline":
        from torch.distributed.pipelining import PipelineStage, Schedule1F1B  # noqa: PLC0415

        part = Network(layers // world, width, model.cause)
        stage = PipelineStage(part, dist.get_rank(), world, torch.device("cpu"))
        return part, Schedule1F1B(stage, n_microbatches=MICRO_BATCHES, loss_fn=_loss)
    return model, None


def _loss(output: Tensor, target: Tensor) -> Tensor:
    return (output - target).square().mean()


def _optimizer(model: nn.Module, strategy: str) -> torch.optim.Optimizer | None:
    if strategy == "no-optimizer":
        return None
    if strategy == "zero":
        from torch.distributed.optim import ZeroRedundancyOptimizer  # noqa: PLC0415

        return ZeroRedundancyOptimizer(
            model.parameters(), optimizer_class=torch.optim.AdamW, lr=1e-4
        )
    return torch.optim.AdamW(model.parameters(), lr=1e-4)


def _passes(model: nn.Module, schedule: Any, batch: Tensor, strategy: str) -> None:  # noqa: ANN401 - of torch's pipelining
    """The forward and backward pass of a step, and the exchange of gradients in own loops."""
    rank, world = dist.get_rank(), dist.get_world_size()
    if schedule is not None:
        inputs = (batch,) if rank == 0 else ()
        target = {"target": batch} if rank == world - 1 else {}
        schedule.step(*inputs, **target)
        return
    _loss(model(batch), batch).backward()  # type: ignore[no-untyped-call]
    if strategy in ("plain", "no-optimizer"):
        for parameter in model.parameters():
            assert parameter.grad is not None
            dist.all_reduce(parameter.grad)
            parameter.grad /= world


def _update(model: nn.Module, optimizer: torch.optim.Optimizer | None) -> None:
    if optimizer is not None:
        optimizer.step()
        optimizer.zero_grad()
        return
    with torch.no_grad():
        for parameter in model.parameters():
            assert parameter.grad is not None
            parameter.sub_(parameter.grad, alpha=1e-4)
            parameter.grad = None


def around_step(model: nn.Module) -> AbstractContextManager[None]:
    """What a tool asks users to put around a step; nothing here."""
    del model
    return contextlib.nullcontext()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--strategy", choices=STRATEGIES, default="ddp")
    parser.add_argument("--cause", choices=CAUSES, default="none")
    parser.add_argument("--shape", choices=SHAPES, default="always")
    parser.add_argument("--rank", type=int, default=1)
    parser.add_argument("--milliseconds", type=float, default=6.0)
    parser.add_argument("--burn", action="store_true")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--every", type=int, default=60)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=128)
    return parser.parse_args()


def main() -> None:
    """Train, and print the mean step of all but the first steps on rank 0."""
    options = _arguments()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    cause = Cause(
        options.cause,
        options.rank,
        options.milliseconds / 1e3,
        options.shape,
        options.burn,
        options.steps,
        options.every,
        began=time.time(),
    )
    network = Network(options.layers, options.width, cause)
    model, schedule = parallelized(network, options.strategy, options.layers, options.width)
    optimizer = _optimizer(model, options.strategy)

    def collate(rows: list[Tensor]) -> Tensor:
        cause.lose("loader")
        return torch.stack(rows)

    batches = iter(
        DataLoader(Rows(options.width), batch_size=options.batch_size, collate_fn=collate)
    )
    began, skipped = 0.0, min(20, options.steps // 4)
    for step in range(options.steps):
        if step == skipped:
            began = time.perf_counter()
        cause.step = step
        batch = next(batches)
        with around_step(model):
            _passes(model, schedule, batch, options.strategy)
            _update(model, optimizer)
            cause.lose("host")
        cause.lose("checkpoint")
        with contextlib.ExitStack() as stack:
            if options.cause == "evaluation" and step % options.every == options.every - 1:
                model.eval()
                stack.callback(model.train)
            cause.lose("evaluation")
    seconds = (time.perf_counter() - began) / (options.steps - skipped)
    if dist.get_rank() == 0:
        print(f"{seconds * 1e3:.3f} ms a step", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
