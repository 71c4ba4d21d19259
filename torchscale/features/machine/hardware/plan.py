"""Planning of hardware cells: one per world size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torchscale.config.choices import DeviceKind, MatmulType
from torchscale.config.experiment import Experiment
from torchscale.plan.execution_target import ExecutionTarget, machine_obstacle
from torchscale.plan.kinds import START_SECONDS, PlanRow
from torchscale.schema.cells.hardware import HardwareCell

_COPY_BYTES = {"cpu": 256 << 20}
_COPY_BYTES_ELSEWHERE = 1 << 30
"""Far larger than any cache of the device, so that its memory is measured; less on CPUs, which take
longer."""
_MATMUL_SIZES = {"cpu": (256, 512, 1024, 2048), "cuda": (1024, 2048, 4096, 8192, 16384)}
_MATMUL_SIZES_ELSEWHERE = (1024, 2048, 4096)
"""Sizes from small products, which latency limits, to large ones, which the multiplication rate
limits."""
_MATMUL_DTYPES: dict[str, tuple[MatmulType, ...]] = {
    "cpu": ("fp32", "bf16"),
    "cuda": ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8"),
}
_MATMUL_DTYPES_ELSEWHERE: tuple[MatmulType, ...] = ("fp32", "fp16")
"""The types that training uses on such devices; what one lacks is listed as unsupported."""
_COPY_FIGURES = 6
"""Within a device, to and from pinned and pageable host memory, to another device: each timed as
long as a shape."""


def make_cells(
    experiment: Experiment, device: DeviceKind, counts: Sequence[int]
) -> list[HardwareCell]:
    """One cell per world size: devices that work at the same time can be slower than one, as in
    training."""
    settings = experiment.hardware
    return [
        HardwareCell(
            matmul_sizes=settings.matmul_sizes
            or _MATMUL_SIZES.get(device, _MATMUL_SIZES_ELSEWHERE),
            matmul_dtypes=settings.matmul_dtypes
            or _MATMUL_DTYPES.get(device, _MATMUL_DTYPES_ELSEWHERE),
            seconds=settings.seconds,
            copy_bytes=settings.copy_bytes or _COPY_BYTES.get(device, _COPY_BYTES_ELSEWHERE),
            disk_path=settings.disk_path,
            disk_bytes=settings.disk_bytes,
            world_size=count,
            device=experiment.device,
        )
        for count in counts
    ]


def skip_reason(cell: HardwareCell, target: ExecutionTarget) -> str | None:
    """Why the machine has too few devices; ``None`` if it has enough."""
    return machine_obstacle(cell, target)


def expected_seconds(cell: HardwareCell) -> tuple[float, float]:
    """Start-up, and ``cell.seconds`` for every shape and copy; the best shape is timed once more
    with cold caches."""
    figures = len(cell.matmul_dtypes) * (len(cell.matmul_sizes) + 1) + _COPY_FIGURES
    return START_SECONDS[0] + figures * cell.seconds, START_SECONDS[1] + figures * cell.seconds


def least_step_seconds(cell: HardwareCell, peak_flops: Mapping[str, float]) -> float:
    """Not known."""
    return 0.0


def table_row(cell: HardwareCell) -> PlanRow:
    """The row: title, world size and settings."""
    return PlanRow(cell.title, "", str(cell.world_size), "", " ".join(cell.settings))
