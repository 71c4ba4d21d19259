"""A training program that ``gpu_check.py`` starts, as a user has one: it knows nothing of torchscale.

Run it with torchrun. Each rank takes the GPU of its local rank, and several ranks share one where
there are fewer. ``build`` is the same model for ``torchscale benchmark`` and ``profile``.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

WIDTH, LAYERS = 512, 4
LATE_SECONDS = 0.006
"""What the last rank of a model that :func:`build` made sleeps in each forward pass."""
PAIRS, OPERATIONS, STEPS_OF_PAIR = 5, 2_000, 200


class Late(nn.Module):
    """A perceptron whose last rank sleeps before its forward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.network = network()

    def forward(self, x: Tensor) -> Tensor:
        """The loss."""
        if dist.is_initialized() and dist.get_rank() == dist.get_world_size() - 1:
            time.sleep(LATE_SECONDS)
        loss: Tensor = self.network(x).square().mean()
        return loss

    def make_batch(self, batch_size: int, generator: torch.Generator) -> dict[str, Tensor]:
        """Random rows."""
        return {"x": torch.randn(batch_size, WIDTH, generator=generator)}


def build() -> nn.Module:
    """A model whose last rank is late."""
    return Late()


def network() -> nn.Sequential:
    """Layers of 1 MB."""
    return nn.Sequential(*[nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)])


def main() -> None:
    """Train, and do what the options say."""
    options = parsed()
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if (
        options.apart
    ):  # NCCL refuses two ranks of one host on one GPU, and takes these for two hosts
        os.environ["NCCL_HOSTID"] = f"gpu-check-{rank}"
    device = torch.device("cpu")
    if torch.cuda.is_available():
        count = torch.cuda.device_count()
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % count)
        torch.cuda.set_device(device)
    backend = options.backend if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, timeout=timedelta(seconds=options.timeout))
    if options.cost:
        dist.destroy_process_group()
        cost_of_timing(device, backend)
        return
    train(options, device)
    if options.capture:
        capture(device)
    if options.hang:
        if rank == world_size - 1:
            time.sleep(options.hang)
        dist.all_reduce(torch.ones(1 << 16, device=device))
        wait_for(device)
    if options.dump is not None:
        wait_for(device)
        time.sleep(2.0)  # torch's watchdog notes what has ended
        dump(options.dump, f"{backend}-rank-{rank}")
    dist.destroy_process_group()


def train(options: argparse.Namespace, device: torch.device) -> None:
    """The steps."""
    model: Any = network().to(device)
    if options.strategy == "ddp":
        model = nn.parallel.DistributedDataParallel(model)
    else:
        from torch.distributed.fsdp import fully_shard  # noqa: PLC0415 - takes a second

        for layer in model:
            fully_shard(layer)
        fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters())
    x = torch.randn(64, WIDTH, device=device)
    is_last = dist.get_rank() == dist.get_world_size() - 1
    for _ in range(options.steps):
        if is_last:
            time.sleep(options.late)
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if options.read_loss:
            loss.item()


def parsed() -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="nccl")
    parser.add_argument("--strategy", choices=["ddp", "fsdp"], default="ddp")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--late", type=float, default=0.0, help="of the last rank, before a step")
    parser.add_argument("--read-loss", action="store_true", help="in each step")
    parser.add_argument("--apart", action="store_true", help="ranks share a GPU over NCCL")
    parser.add_argument("--capture", action="store_true", help="capture CUDA graphs at the end")
    parser.add_argument("--hang", type=float, default=0.0, help="of the last rank, at the end")
    parser.add_argument("--cost", action="store_true", help="of timing, and nothing else")
    parser.add_argument("--dump", type=Path, help="for the flight recorders' content")
    parser.add_argument("--timeout", type=float, default=120.0, help="of a collective")
    return parser.parse_args()


def wait_for(device: torch.device) -> None:
    """Until the device has done what was asked."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def capture(device: torch.device) -> None:
    """Capture graphs while a collective is in flight, each for longer than the collector of a watched
    program waits between two readings of the flight recorders."""
    for _ in range(2):
        torch.cuda._sleep(int(2e9))  # the collective's kernel comes after it
        value = torch.ones(1 << 20, device=device)
        dist.all_reduce(value)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            doubled = value * 2
            time.sleep(3.0)
        graph.replay()
        torch.cuda.synchronize(device)
        if not bool((doubled == 2 * dist.get_world_size()).all()):
            raise ValueError("a captured graph computed something else")
    sys.stderr.write("captured\n")


def cost_of_timing(device: torch.device, backend: str) -> None:
    """Microseconds that timing adds to a collective and to a step: medians of pairs that alternate,
    each with a process group of its own."""
    operations, steps = [], []
    for pair in range(PAIRS):
        times = {}
        for is_timed in (False, True) if pair % 2 else (True, False):
            os.environ["TORCH_NCCL_ENABLE_TIMING"] = str(int(is_timed))
            dist.init_process_group(backend)
            times[is_timed] = one_cost(device)
            dist.destroy_process_group()
        operations.append((times[True][0] - times[False][0], times[False][0]))
        steps.append((times[True][1] - times[False][1], times[False][1]))
    for name, found in (("all-reduce", operations), ("step", steps)):
        more, before = (statistics.median(values) for values in zip(*found, strict=True))
        least, most = min(more for more, _ in found), max(more for more, _ in found)
        sys.stderr.write(
            f"{name} {more * 1e6:+.1f} µs ({least * 1e6:+.1f} to {most * 1e6:+.1f}) on "
            f"{before * 1e6:.0f}; "
        )
    sys.stderr.write("\n")


def one_cost(device: torch.device) -> tuple[float, float]:
    """Seconds of an all-reduce and of a step of a model with twelve buckets."""
    value = torch.ones(1 << 16, device=device)
    layers = [nn.Linear(512, 512) for _ in range(12)]
    model = nn.parallel.DistributedDataParallel(nn.Sequential(*layers).to(device), bucket_cap_mb=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x = torch.randn(64, 512, device=device)

    def step() -> None:
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    found = []
    for action, count in ((lambda: dist.all_reduce(value), OPERATIONS), (step, STEPS_OF_PAIR)):
        for _ in range(count // 10):
            action()
        wait_for(device)
        began = time.perf_counter()
        for _ in range(count):
            action()
        wait_for(device)
        found.append((time.perf_counter() - began) / count)
    return found[0], found[1]


def dump(directory: Path, name: str) -> None:
    """Write what each of torch's flight recorders holds, as JSON and as a pickle."""
    directory.mkdir(parents=True, exist_ok=True)
    module = torch._C._distributed_c10d  # type: ignore[attr-defined]
    for function in dir(module):
        match = re.fullmatch(r"_dump_([a-z0-9]+)_trace(_json)?", function)
        if match is not None:
            content = getattr(module, function)()
            ending = "json" if match[2] else "pickle"
            (directory / f"{name}-{match[1]}.{ending}").write_bytes(content)


if __name__ == "__main__":
    main()
