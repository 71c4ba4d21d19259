"""The cells that measure the machine itself: collectives, hardware, and the memory of training. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from torchscale.schema.ceilings import MatmulType
from torchscale.schema.cell import Cell, DeviceKind
from torchscale.schema.collectives import CollectivesCell
from torchscale.schema.config import Experiment
from torchscale.schema.hardware import HardwareCell
from torchscale.schema.memory import MemoryCell

_MAX_BYTES = {"cpu": 64 << 20}
_MAX_BYTES_ELSEWHERE = 1 << 30
_COPY_BYTES = {"cpu": 256 << 20}
_COPY_BYTES_ELSEWHERE = 1 << 30
_MATMUL_SIZES = {"cpu": (256, 512, 1024, 2048), "cuda": (1024, 2048, 4096, 8192, 16384)}
_MATMUL_SIZES_ELSEWHERE = (1024, 2048, 4096)
_MATMUL_DTYPES: dict[str, tuple[MatmulType, ...]] = {
    "cpu": ("fp32", "bf16"),
    "cuda": ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8"),
}
_MATMUL_DTYPES_ELSEWHERE: tuple[MatmulType, ...] = ("fp32", "fp16")


def collectives_cells(experiment: Experiment, device: DeviceKind, counts: Sequence[int]) -> list[CollectivesCell]:
    """One per count, algorithm and protocol. Where NCCL chooses, a short cell before it logs what it chooses."""
    asked = experiment.collectives
    largest = asked.max_bytes or max(asked.min_bytes, _MAX_BYTES.get(device, _MAX_BYTES_ELSEWHERE))
    found = []
    for count in [count for count in counts if count > 1] or [2]:
        for algorithm in asked.algorithms or (None,):
            for protocol in asked.protocols or (None,):
                cell = CollectivesCell(
                    operations=asked.operations,
                    dtypes=asked.dtypes,
                    min_bytes=asked.min_bytes,
                    max_bytes=largest,
                    iterations=asked.iterations,
                    warmup=asked.warmup,
                    world_size=count,
                    device=experiment.device,
                    algorithm=algorithm,
                    protocol=protocol,
                )
                if device == "cuda":
                    found.append(cell.model_copy(update={"logs_choices": True, "iterations": 1, "warmup": 1}))
                found.append(cell)
    return found


def hardware_cells(experiment: Experiment, device: DeviceKind, counts: Sequence[int]) -> list[HardwareCell]:
    """One per count: the ceilings of devices that work side by side are those of training on as many."""
    asked = experiment.hardware
    return [
        HardwareCell(
            matmul_sizes=asked.matmul_sizes or _MATMUL_SIZES.get(device, _MATMUL_SIZES_ELSEWHERE),
            matmul_dtypes=asked.matmul_dtypes or _MATMUL_DTYPES.get(device, _MATMUL_DTYPES_ELSEWHERE),
            seconds=asked.seconds,
            copy_bytes=asked.copy_bytes or _COPY_BYTES.get(device, _COPY_BYTES_ELSEWHERE),
            disk_path=asked.disk_path,
            disk_bytes=asked.disk_bytes,
            world_size=count,
            device=experiment.device,
        )
        for count in counts
    ]


def memory_cells(experiment: Experiment, training: Sequence[Cell]) -> list[MemoryCell]:
    """One per training cell; how long that one would be measured does not matter here, and makes no other cell."""
    return list(
        {
            (cell := MemoryCell(training=training_cell, limit_bytes=experiment.memory.limit)).id: cell
            for training_cell in training
        }.values()
    )
