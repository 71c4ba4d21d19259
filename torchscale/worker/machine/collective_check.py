"""One all-reduce after another, every element checked: a rank for each GPU that torch may use by
``torchrun … -m torchscale.worker.machine.collective_check``, or two on CPUs, as forks of the probe where
it can.

The inputs are whole numbers whose sums every dtype holds exactly, so that any difference is an
error and not rounding.
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path
from time import perf_counter

import torch
import torch.distributed as dist

from torchscale.schema.node.probe import CollectiveFacts
from torchscale.util.files import atomic_write_model
from torchscale.util.processes.exit import exit_at_once
from torchscale.worker.machine.burn_in import join

_SIZES = (1, 1000, 262_144)
"""Elements: the smallest message, one that is no power of two, and 1 MiB of fp32, which is cut into
chunks."""
_TIMED_ELEMENTS = 262_144
"""1 MiB of fp32."""
_TIMED_REPEATS = 20
"""Enough for a median that one slow call does not move; less than a second on any link."""
_DTYPES = (torch.float32, torch.bfloat16, torch.int32)
_LARGEST_EXACT = 256
"""Up to here bf16 holds every integer; inputs are small enough that no sum over the ranks exceeds
it."""


def main() -> None:
    """Check an all-reduce in this rank, and leave."""
    run_rank(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]))
    exit_at_once(
        0
    )  # an interpreter's teardown behind a process group can abort after the work is done


def run_rank(out: Path, backend: str, timeout_seconds: float) -> int:
    """Check an all-reduce as one of the ranks; rank 0 writes the result to ``out``. Returns the exit
    status."""
    place = join(backend, timeout_seconds)
    elements, wrong = check_all_reduce(place.rank, place.world_size, place.device)
    worst = torch.tensor([wrong], dtype=torch.int64, device=place.device)
    dist.all_reduce(worst)
    seconds = time_all_reduce(place.device)
    if place.rank == 0:
        facts = CollectiveFacts(
            backend=backend,
            world_size=place.world_size,
            elements=elements,
            wrong_elements=int(worst.item()),
            seconds=seconds,
        )
        atomic_write_model(out, facts)
    dist.barrier()
    dist.destroy_process_group()
    return 0


def check_all_reduce(rank: int, world_size: int, device: torch.device) -> tuple[int, int]:
    """Number of elements compared on this rank, and of those that are not the exact sum."""
    elements = wrong = 0
    for dtype in _DTYPES:
        for size in _SIZES:
            base = torch.arange(size, device=device)
            values = _input(base, rank, world_size).to(dtype)
            dist.all_reduce(values)
            expected = torch.zeros_like(base)
            for other in range(world_size):
                expected += _input(base, other, world_size)
            expected = expected.to(dtype)
            elements += size
            wrong += int((values != expected).sum())
    return elements, wrong


def _input(base: torch.Tensor, rank: int, world_size: int) -> torch.Tensor:
    """What a rank brings: different elements on different ranks, whose sum over all ranks stays
    exact. Of more ranks than that sum may reach, each brings ones here and there."""
    if world_size <= _LARGEST_EXACT:
        return (base + rank) % (_LARGEST_EXACT // world_size + 1)
    return ((base + rank) % -(-world_size // _LARGEST_EXACT) == 0).to(base.dtype)


def time_all_reduce(device: torch.device) -> float:
    """Median seconds of an all-reduce of 1 MiB (fp32) over 20 calls, each after a barrier."""
    values = torch.zeros(_TIMED_ELEMENTS, device=device)
    times = []
    for _ in range(_TIMED_REPEATS):
        dist.barrier()
        started = perf_counter()
        dist.all_reduce(values)
        if device.type == "cuda":
            torch.cuda.synchronize()
        times.append(perf_counter() - started)
    return statistics.median(times)


if __name__ == "__main__":
    main()
