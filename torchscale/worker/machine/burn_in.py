"""Rounds of work with known results, until the time is over: ``torchrun … -m
torchscale.worker.machine.burn_in DIR BACKEND SECONDS TIMEOUT``. Each rank writes a line for every round to
``DIR/rank-R.jsonl`` (:class:`BurnInRound`).

Every result is known exactly: products of matrices of small whole numbers, bit patterns in memory,
a copy of random bytes, sums of whole numbers over the ranks. One wrong bit is a wrong element.

Products of 16-bit matrices, which GPUs compute on tensor cores, take most of a round
(:data:`PRODUCT_TIMES`). They are queued ahead, and results are compared on the device: the host
reads one count for each part and each pattern of memory.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TypeVar

import psutil
import torch
import torch.distributed as dist

from torchscale.catalog.backends import is_nccl
from torchscale.schema.node.burn_in import BurnInRound, PartResult, WrongValue
from torchscale.util.processes.exit import exit_at_once
from torchscale.worker.machine.matrix_products import Products
from torchscale.worker.machine.mismatches import CHUNK, Expected, compare, differing

T = TypeVar("T")

PRODUCT_TIMES = 4
"""16-bit products take this many times as long as all else in a round: four fifths of the time a
GPU draws its full power, where faults of power and cooling show; memory, PCI Express and links are
still tested in every round."""
STOP_FILE = "stop"
"""Once it exists, the ranks end after the round that runs."""
_SEED = 20_240_101
"""Seed of what is random; the same in every run, so that a wrong result can be repeated."""
_MEMORY_SHARE = {"cpu": 0.1, "cuda": 0.5}
"""Share of the free memory, over all ranks: most of a GPU's memory is worth testing; a host has
other users."""
_MAX_MEMORY = {"cpu": 16 * 2**20, "cuda": 64 * 2**30}
"""A round has to stay in seconds, with products of four times as long: a core fills and reads 16
MiB in about 0.03 s per pattern, a GPU 64 GiB in 0.05 s."""
_PATTERNS = (0, -1, 0x5555555555555555, -0x5555555555555556)
"""All bits off, all on, and each neighbour different, in both phases."""
_ADDRESS_FACTOR = 0x9E3779B97F4A7C15 - 2**64
"""Odd, so that every element of a buffer gets another value: finds elements stored in the wrong
place."""
_COPY_BYTES = 32 * 2**20
"""Far above any cache of a core, and a few milliseconds of PCI Express."""
_COLLECTIVE_ELEMENTS = 2**20
"""4 MiB of fp32: large enough to be cut into chunks and sent over all channels."""
_LARGEST_EXACT = 2**24
"""fp32 holds every whole number up to here."""


@dataclass(frozen=True)
class RankPlace:
    """Where a rank computes."""

    rank: int
    world_size: int
    device: torch.device

    def wait(self) -> None:
        """Wait until the device has done what it was given."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def join(backend: str, timeout_seconds: float) -> RankPlace:
    """Join the process group of torchrun's ranks."""
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    device = torch.device("cpu")
    if is_nccl(backend):
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    dist.init_process_group(backend, timeout=timedelta(seconds=timeout_seconds))
    return RankPlace(rank, world_size, device)


def main() -> None:
    """Run rounds until the time is over or the stop file exists."""
    directory, backend = Path(sys.argv[1]), sys.argv[2]
    seconds, timeout = float(sys.argv[3]), float(sys.argv[4])
    place = join(backend, timeout)
    with (directory / f"rank-{place.rank}.jsonl").open("w", encoding="utf-8") as file:
        for burn_round in rounds(place, seconds, directory / STOP_FILE):
            file.write(burn_round.model_dump_json() + "\n")
            file.flush()
    dist.barrier()
    dist.destroy_process_group()
    exit_at_once(
        0
    )  # an interpreter's teardown behind a process group can abort after the work is done


def rounds(place: RankPlace, seconds: float, stop: Path) -> Iterator[BurnInRound]:
    """Run at least one round; the ranks agree after each whether another follows."""
    parts, products = make_parts(place)
    for part in parts:
        part()  # first calls allocate and choose kernels: not timed
    for product in products:
        product.run()
    started = perf_counter()
    number = 0
    while True:
        begun = perf_counter()
        results = [part() for part in parts]
        share = PRODUCT_TIMES * (perf_counter() - begun) / len(products)
        results += [product.run(share) for product in products]
        ended = perf_counter()
        yield BurnInRound(
            rank=place.rank,
            device=str(place.device),
            number=number,
            time=begun - started,
            seconds=ended - begun,
            parts=tuple(results),
        )
        number += 1
        over = perf_counter() - started >= seconds or stop.exists()
        votes = torch.tensor([int(over)], device=place.device)
        dist.all_reduce(
            votes
        )  # a decision of each rank by itself would leave others waiting in the next collective
        if int(votes.item()):
            return


def make_parts(place: RankPlace) -> tuple[list[Callable[[], PartResult]], list[Products]]:
    """The parts of a round that run once, and the products that fill it, with the buffers that they
    use in every round."""
    dtypes = [torch.bfloat16] + [torch.float16] * (place.device.type == "cuda")
    generator = torch.Generator().manual_seed(_SEED + place.rank)
    single = Products(place.device, torch.float32, generator)
    repeated = [Products(place.device, dtype, generator) for dtype in dtypes]
    memory = torch.empty(_memory_bytes(place) // 8, dtype=torch.int64, device=place.device)
    source = torch.randint(-(2**62), 2**62, (_COPY_BYTES // 8,), generator=generator)
    parts = [
        single.run,
        lambda: memory_part(place, memory),
        lambda: copy_part(place, source),
        lambda: collective_part(place),
    ]
    return parts, repeated


def memory_part(place: RankPlace, memory: torch.Tensor) -> PartResult:
    """Fill a buffer with each pattern, then with values that depend on the place, and read it
    back."""
    chunk = CHUNK[place.device.type]
    places = torch.arange(min(chunk, memory.numel()), device=place.device)

    def by_place(start: int, count: int) -> torch.Tensor:
        return (places[:count] + start) * _ADDRESS_FACTOR

    def write_places() -> None:
        for start in range(0, memory.numel(), chunk):
            part = memory[start : start + chunk]
            part.copy_(by_place(start, part.numel()))

    def written(
        write: Callable[[], object], expected: Expected
    ) -> tuple[float, int, WrongValue | None]:
        seconds, _ = _timed(place, write)
        checked, (wrong, first) = _timed(place, partial(differing, memory, expected))
        return seconds + checked, wrong, first

    results = [
        written(partial(memory.fill_, pattern), partial(_same, pattern)) for pattern in _PATTERNS
    ]
    results.append(written(write_places, by_place))
    return PartResult(
        part="memory",
        unit="B",
        seconds=sum(seconds for seconds, _, _ in results),
        work=2.0 * len(results) * memory.numel() * memory.element_size(),
        wrong=sum(wrong for _, wrong, _ in results),
        first=next((first for _, _, first in results if first is not None), None),
    )


def _same(pattern: int, start: int, count: int) -> int:
    """The expected value of every place."""
    del start, count
    return pattern


def copy_part(place: RankPlace, source: torch.Tensor) -> PartResult:
    """Copy random bytes to the device and back (on a CPU, to another buffer and back)."""

    def there_and_back() -> torch.Tensor:
        on_device = torch.empty_like(source, device=place.device).copy_(source)
        return torch.empty_like(source).copy_(on_device)

    seconds, back = _timed(place, there_and_back)
    wrong, first = compare(back, source)
    work = 2.0 * source.numel() * source.element_size()
    return PartResult(part="copy", unit="B", seconds=seconds, work=work, wrong=wrong, first=first)


def collective_part(place: RankPlace) -> PartResult:
    """An all-reduce of whole numbers whose sums fp32 holds exactly."""
    modulus = _LARGEST_EXACT // place.world_size
    base = torch.arange(_COLLECTIVE_ELEMENTS, device=place.device)
    values = ((base + place.rank) % modulus).to(torch.float32)
    expected = torch.zeros_like(base)
    for other in range(place.world_size):
        expected += (base + other) % modulus
    seconds, _ = _timed(place, lambda: dist.all_reduce(values))
    wrong, first = compare(values, expected.to(torch.float32))
    work = float(values.numel() * values.element_size())
    return PartResult(
        part="all-reduce", unit="B", seconds=seconds, work=work, wrong=wrong, first=first
    )


def _timed(place: RankPlace, action: Callable[[], T]) -> tuple[float, T]:
    place.wait()
    started = perf_counter()
    result = action()
    place.wait()
    return perf_counter() - started, result


def _memory_bytes(place: RankPlace) -> int:
    """Size of the buffer for patterns: a share of the free memory, in whole elements."""
    kind = place.device.type
    if kind == "cuda":
        free = torch.cuda.mem_get_info(place.device)[0]
    else:
        free = int(psutil.virtual_memory().available) // place.world_size
    return max(8, int(min(_MAX_MEMORY[kind], _MEMORY_SHARE[kind] * free)) // 8 * 8)


if __name__ == "__main__":
    main()
