"""How hardware cells are shown."""

from __future__ import annotations

from torchscale.analysis.summary.machine import HardwareSummary
from torchscale.features.machine.text import format_warning
from torchscale.report.figures.figure import Figure
from torchscale.report.formats.columns import ColumnValue
from torchscale.report.formats.export import machine_row
from torchscale.schema.cells.hardware import HardwareCell
from torchscale.schema.launch.record import LaunchRecord
from torchscale.schema.state import State
from torchscale.util.units import format_byte_rate, format_flops


def launch_label(cell: HardwareCell, devices: str, launch: int, repeats: int) -> str:
    """``hardware ceilings, 2 GPUs``."""
    return f"{cell.title}, {devices}"


def outcome(summary: HardwareSummary, record: LaunchRecord | None = None) -> str:
    """``fp32 1.2 TFLOP/s, bf16 2.1 TFLOP/s, copies 20 GB/s``."""
    if summary.state is not State.OK:
        return f"{summary.state.value}: {summary.reason}"
    figures = summary.figures
    parts = [
        f"{rates.dtype} {format_flops(rates.peak)}"
        for rates in (figures.matmuls if figures else ())
    ]
    copies = None
    if figures is not None:
        copies = figures.memory_bytes_per_second
    text = ", ".join([*parts, *([f"copies {format_byte_rate(copies)}"] if copies else [])])
    return text + format_warning(summary.flags)


def csv_row(summary: HardwareSummary) -> dict[str, ColumnValue]:
    """How it ended; its figures are in the JSON."""
    return machine_row(summary)


def figures(summary: HardwareSummary) -> tuple[Figure, ...]:
    """Peak rates of matrix products and copies, mean over devices."""
    measured = summary.figures
    if measured is None:
        return ()
    matmuls = [
        Figure(
            "matmul_flops_per_second",
            "FLOP/s",
            "matrix products at the fastest shape; mean over devices that work at once",
            rates.peak,
            higher_is_better=True,
            labels={"dtype": rates.dtype},
        )
        for rates in measured.matmuls
    ]
    memory = measured.memory_bytes_per_second
    if memory is None:
        return tuple(matmuls)
    definition = (
        "copies within a device's memory, bytes read and written; mean over devices that work at "
        "once"
    )
    return (
        *matmuls,
        Figure("memory_bytes_per_second", "B/s", definition, memory, higher_is_better=True),
    )
