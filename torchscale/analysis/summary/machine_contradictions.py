"""What a record of collectives, of a device's rates, of memory or of checkpoints says twice, and
differently."""

from __future__ import annotations

from collections.abc import Iterator

from torchscale.config.choices import ElementType
from torchscale.schema.cells.checkpoint import CheckpointCell, CheckpointRank, CheckpointResult
from torchscale.schema.cells.collectives import (
    CollectiveSample,
    CollectivesCell,
    CollectivesRank,
    CollectivesResult,
)
from torchscale.schema.cells.hardware import HardwareCell, HardwareRank, HardwareResult
from torchscale.schema.cells.kinds import AnyCell, as_kind
from torchscale.schema.cells.memory import MemoryCell, MemoryResult
from torchscale.schema.launch.record import LaunchRecord

_SAME_TIME = 0.1
"""Share by which times of the device's clock and of the host's may differ."""
_ITEM_BYTES: dict[ElementType, int] = {
    "fp64": 8,
    "fp32": 4,
    "fp16": 2,
    "bf16": 2,
    "int64": 8,
    "int32": 4,
    "uint8": 1,
}


def machine_contradictions(record: LaunchRecord, cell: AnyCell) -> Iterator[str]:
    """What an ``ok`` launch of these kinds says against itself or against its cell; nothing for
    training."""
    collectives, swept = (
        as_kind(record.payload, CollectivesResult),
        as_kind(cell, CollectivesCell),
    )
    if collectives is not None and swept is not None:
        yield from _about_collectives(collectives, swept)
    hardware, rated = as_kind(record.payload, HardwareResult), as_kind(cell, HardwareCell)
    if hardware is not None and rated is not None:
        for rank in hardware.ranks:
            yield from _about_hardware(rank, rated)
    memory, trained = as_kind(record.payload, MemoryResult), as_kind(cell, MemoryCell)
    if memory is not None and trained is not None:
        yield from _about_memory(memory, trained)
    checkpoints, saved = as_kind(record.payload, CheckpointResult), as_kind(cell, CheckpointCell)
    if checkpoints is not None and saved is not None:
        yield from _about_checkpoints(checkpoints, saved)


def _about_collectives(result: CollectivesResult, cell: CollectivesCell) -> Iterator[str]:
    for rank in result.ranks:
        wrong = [one.wrong_elements for one in rank.samples]
        if any(wrong) or any(pair.wrong_elements for pair in rank.pairs):
            yield f"its state is ok, and rank {rank.rank} received wrong elements"
        for sample in rank.samples:
            yield from _about_sample(sample, rank, cell)
        for pair in rank.pairs:
            among = 0 <= pair.source < cell.world_size and pair.source != pair.target
            if not among or pair.target != rank.rank:  # the receiver times a message
                yield f"rank {rank.rank} timed messages of rank {pair.source} to {pair.target}"
    called = {
        tuple((one.operation, one.dtype, one.payload_bytes) for one in rank.samples)
        for rank in result.ranks
    }
    if len(called) > 1:  # none of these operations ends unless all ranks call it
        yield "its ranks called different operations"


def _about_sample(
    sample: CollectiveSample, rank: CollectivesRank, cell: CollectivesCell
) -> Iterator[str]:
    item_bytes = _ITEM_BYTES[sample.dtype]
    name = f"rank {rank.rank}: {sample.operation} of {sample.payload_bytes} bytes"
    if sample.payload_bytes != sample.elements * item_bytes:
        yield f"{name} is of {sample.elements} elements of {item_bytes} bytes"
    largest = max(cell.max_bytes, cell.world_size * item_bytes)  # an element of each rank
    if sample.operation not in cell.operations or sample.payload_bytes > largest:
        yield f"{name}, which its cell does not have"
    loop = len(sample.call_seconds) * sample.mean_seconds
    single = sum(sample.call_seconds)
    load = sample.host_load
    if load is not None and loop + single > load.wall_seconds * (1 + _SAME_TIME):
        yield f"{name}: its calls took {loop + single:.4g} s of {load.wall_seconds:.4g} s"


def _about_hardware(rank: HardwareRank, cell: HardwareCell) -> Iterator[str]:
    largest = max(cell.matmul_sizes, default=0)
    for product in rank.matmuls:
        size = max(product.m, product.n, product.k)
        if size > largest or product.dtype not in cell.matmul_dtypes:
            name = f"{product.dtype} of {product.m} × {product.n} × {product.k}"
            yield f"rank {rank.rank} multiplied {name}, which its cell does not have"
    for copy in rank.copies:
        if copy.payload_bytes > cell.copy_bytes:
            yield (
                f"rank {rank.rank} copied {copy.payload_bytes} bytes, its cell has "
                f"{cell.copy_bytes}"
            )
    if rank.disk is not None and rank.disk.payload_bytes > cell.disk_bytes:
        yield (
            f"rank {rank.rank} wrote {rank.disk.payload_bytes} bytes to the disk, its cell has "
            f"{cell.disk_bytes}"
        )
    measured = sum(sum(one.warm_seconds) + sum(one.cold_seconds) for one in rank.matmuls)
    measured += sum(sum(one.seconds) for one in rank.copies)
    load = rank.host_load
    if load is not None and measured > load.wall_seconds * (1 + _SAME_TIME):
        yield (
            f"rank {rank.rank}: its products and copies took {measured:.4g} s of "
            f"{load.wall_seconds:.4g} s"
        )


def _about_memory(result: MemoryResult, cell: MemoryCell) -> Iterator[str]:
    offloads = getattr(cell.training.strategy, "offload", False)
    for rank in result.ranks:
        parameters = rank.parts.parameters
        if parameters > rank.peak_bytes and not offloads:  # which keeps them in the host's memory
            yield (
                f"rank {rank.rank}: its peak of {rank.peak_bytes} bytes is below its parameters of "
                f"{parameters}"
            )
        if rank.reserved_bytes is not None and rank.reserved_bytes < rank.peak_bytes:
            yield (
                f"rank {rank.rank}: {rank.peak_bytes} bytes were allocated of {rank.reserved_bytes} "
                "that were reserved"
            )


def _about_checkpoints(result: CheckpointResult, cell: CheckpointCell) -> Iterator[str]:
    for rank in result.ranks:
        if not (len(rank.saves) == len(rank.loads) == cell.repeats):
            yield (
                f"rank {rank.rank} has {len(rank.saves)} saves and {len(rank.loads)} loads, its cell "
                f"{cell.repeats} of each"
            )
        yield from _about_times(rank)
    for samples in zip(*(rank.saves for rank in result.ranks), strict=False):
        written = sum(one.payload_bytes for one in samples)
        if written < result.ranks[0].state_bytes:
            yield f"{written} bytes were saved of a state of {result.ranks[0].state_bytes}"


def _about_times(rank: CheckpointRank) -> Iterator[str]:
    for save in rank.saves:
        if not save.write_seconds <= save.seconds <= save.stop_seconds:
            yield (
                f"rank {rank.rank} wrote for {save.write_seconds:.4g} s of a save of "
                f"{save.seconds:.4g} s, for which training stopped {save.stop_seconds:.4g} s"
            )
    for load in rank.loads:
        if load.read_seconds > load.seconds:
            yield (
                f"rank {rank.rank} read for {load.read_seconds:.4g} s of a load of "
                f"{load.seconds:.4g} s"
            )
        if not load.restored:
            yield f"its state is ok, and rank {rank.rank} did not get back what was saved"
