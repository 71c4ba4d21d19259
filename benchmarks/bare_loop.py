"""A hand-written training loop without torchscale: the reference for torchscale's figures.

Under torchrun it warms up and times a number of steps; rank 0 writes the throughput::

    torchrun --standalone --nproc-per-node=2 benchmarks/bare_loop.py OUT.json --steps 200
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import json
import os
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from transformers import ResNetConfig, ResNetForImageClassification

TINY: dict[str, Any] = {
    "embedding_size": 16,
    "hidden_sizes": [16, 32, 64, 128],
    "depths": [1, 1, 1, 1],
    "layer_type": "basic",
}
RESNET18: dict[str, Any] = {
    "hidden_sizes": [64, 128, 256, 512],
    "depths": [2, 2, 2, 2],
    "layer_type": "basic",
}
MODELS = {"tiny-resnet": (TINY, 32, 10), "resnet18": (RESNET18, 224, 1000)}


@dataclass
class BareLoop:
    """Model, optimizer and four batches that are used in turn; ``run`` is the loop."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    batches: list[dict[str, torch.Tensor]]
    done: int = 0
    dtype: torch.dtype | None = None

    @classmethod
    def build(cls, name: str, batch_size: int, image_size: int | None = None) -> BareLoop:
        """A loop as a training script sets it up."""
        rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        config, default_size, classes = MODELS[name]
        size = image_size or default_size
        torch.manual_seed(0)
        model: nn.Module = ResNetForImageClassification(
            ResNetConfig(num_labels=classes, **config)
        ).train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
        generator = torch.Generator().manual_seed(rank)
        batches = [
            {
                "pixel_values": torch.randn(batch_size, 3, size, size, generator=generator),
                "labels": torch.randint(classes, (batch_size,), generator=generator),
            }
            for _ in range(4)
        ]
        return cls(DistributedDataParallel(model) if world_size > 1 else model, optimizer, batches)

    @classmethod
    def of_builder(
        cls, path: str, options: dict[str, Any], batch_size: int, optimizer: str, precision: str
    ) -> BareLoop:
        """A loop over a model that ``module:function``, in this directory, returns and that draws
        its batches."""
        rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        module_name, _, function = path.partition(":")
        torch.manual_seed(0)
        model: Any = getattr(importlib.import_module(module_name), function)(**options).train()
        generator = torch.Generator().manual_seed(rank)
        batches = [model.make_batch(batch_size, generator) for _ in range(4)]
        update: torch.optim.Optimizer
        if optimizer == "sgd":
            update = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
        else:
            update = torch.optim.AdamW(model.parameters(), lr=1e-4)
        dtype = torch.bfloat16 if precision == "bf16" else None
        return cls(
            DistributedDataParallel(model) if world_size > 1 else model,
            update,
            batches,
            dtype=dtype,
        )

    def passes(self, batch: dict[str, torch.Tensor]) -> None:
        """Forward and backward pass."""
        with (
            contextlib.nullcontext()
            if self.dtype is None
            else torch.autocast("cpu", dtype=self.dtype)
        ):
            output = self.model(**batch)
        loss: torch.Tensor = output if isinstance(output, torch.Tensor) else output.loss
        loss.backward()  # type: ignore[no-untyped-call]

    def run(self, steps: int) -> float:
        """Seconds that ``steps`` steps took on this rank; ranks start together."""
        if dist.is_initialized():
            dist.barrier()
        start = time.perf_counter()
        for _ in range(steps):
            self.passes(self.batches[self.done % 4])
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            self.done += 1
        return time.perf_counter() - start


class BarePipeline(BareLoop):
    """The same loop over one stage of a pipeline, with torch's own schedule."""

    schedule: Any

    def passes(self, batch: dict[str, torch.Tensor]) -> None:
        """The first rank gets the tokens, the last the labels."""
        if dist.get_rank() == 0:
            self.schedule.step(batch["input_ids"])
        else:
            self.schedule.step(target=batch["labels"], losses=[], return_outputs=False)


def pipeline(
    loop: BareLoop, stage: nn.Module, loss: Callable[..., torch.Tensor], pieces: int
) -> BarePipeline:
    """A bare loop over ``stage``, the stage of this rank."""
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B  # noqa: PLC0415 - slow, and used here alone

    found = BarePipeline(loop.model, loop.optimizer, loop.batches)
    whole = PipelineStage(stage, dist.get_rank(), dist.get_world_size(), torch.device("cpu"))
    found.schedule = Schedule1F1B(whole, pieces, loss_fn=loss)
    return found


def pin(threads: int) -> None:
    """Bind the rank to its cores and set its threads, as torchscale does on a CPU without
    hyper-threads."""
    local = int(os.environ["LOCAL_RANK"])
    cpus = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cpus[local * threads : (local + 1) * threads])
    torch.set_num_threads(threads)


def main() -> None:
    """Warm up, measure, and write ``{"samples_per_second": …, "minor_faults_per_step": …}``."""
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument(
        "--model", default="tiny-resnet", help=f"{', '.join(MODELS)}, or module:function"
    )
    parser.add_argument("--options", type=json.loads, default={}, help="of the function, as JSON")
    parser.add_argument(
        "--optimizer", default="adamw", choices=("sgd", "adamw"), help="of a model of a function"
    )
    parser.add_argument(
        "--precision", default="fp32", choices=("fp32", "bf16"), help="of a model of a function"
    )
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--image-size", type=int)
    parser.add_argument("--warmup", type=int, default=40)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    pin(arguments.threads)
    world_size = int(os.environ["WORLD_SIZE"])
    if world_size > 1:
        dist.init_process_group("gloo")
    if ":" in arguments.model:
        how = arguments.optimizer, arguments.precision
        loop = BareLoop.of_builder(arguments.model, arguments.options, arguments.batch_size, *how)
    else:
        loop = BareLoop.build(arguments.model, arguments.batch_size, arguments.image_size)
    loop.run(arguments.warmup)
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    seconds = torch.tensor([loop.run(arguments.steps)], dtype=torch.float64)
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults
    if world_size > 1:
        dist.all_reduce(seconds, op=dist.ReduceOp.MAX)
    if int(os.environ["RANK"]) == 0:
        rate = arguments.batch_size * world_size * arguments.steps / seconds.item()
        figures = {"samples_per_second": rate, "minor_faults_per_step": faults / arguments.steps}
        arguments.out.write_text(json.dumps(figures))
    del loop
    gc.collect()
    if world_size > 1:
        dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
