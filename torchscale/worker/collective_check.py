"""Two ranks, one collective after another, every element checked: ``torchrun … -m torchscale.worker.collective_check``.

The inputs are whole numbers whose sums every dtype holds exactly, so that any difference is an error and not rounding.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from torchscale.schema.probe import CollectiveFacts
from torchscale.store import atomic_write_model

_SIZES = (1, 1000, 262_144)
_TIMED_ELEMENTS = 262_144
_TIMED_REPEATS = 20
_DTYPES = (torch.float32, torch.bfloat16, torch.int32)
_MODULUS = 61


def main() -> None:
    """Check, and let rank 0 write what was found."""
    out, backend, timeout = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if backend == "nccl" else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group(backend, timeout=timedelta(seconds=timeout))
    elements, wrong = check_all_reduce(rank, world_size, device)
    worst = torch.tensor([wrong], dtype=torch.int64, device=device)
    dist.all_reduce(worst)
    seconds = time_all_reduce(device)
    if rank == 0:
        facts = CollectiveFacts(
            backend=backend,
            world_size=world_size,
            elements=elements,
            wrong_elements=int(worst.item()),
            seconds=seconds,
        )
        atomic_write_model(out, facts)
    dist.barrier()
    dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)  # an interpreter's teardown behind a process group can abort after the work is done


def check_all_reduce(rank: int, world_size: int, device: torch.device) -> tuple[int, int]:
    """Elements compared on this rank, and those that were not the exact sum."""
    elements = wrong = 0
    for dtype in _DTYPES:
        for size in _SIZES:
            base = torch.arange(size, device=device) % _MODULUS
            values = (base + rank).to(dtype)
            dist.all_reduce(values)
            expected = (base * world_size + sum(range(world_size))).to(dtype)
            elements += size
            wrong += int((values != expected).sum())
    return elements, wrong


def time_all_reduce(device: torch.device) -> float:
    """Median seconds of one all-reduce of 1 MiB."""
    values = torch.zeros(_TIMED_ELEMENTS, device=device)
    times = []
    for _ in range(_TIMED_REPEATS):
        dist.barrier()
        started = time.perf_counter()
        dist.all_reduce(values)
        if device.type == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - started)
    return statistics.median(times)


if __name__ == "__main__":
    main()
