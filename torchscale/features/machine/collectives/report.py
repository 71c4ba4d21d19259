"""How collectives cells are shown."""

from __future__ import annotations

from torchscale.analysis.summary.machine import CollectivesSummary
from torchscale.features.machine.text import flagged_sizes
from torchscale.report.figures.figure import Figure
from torchscale.report.formats.columns import ColumnValue
from torchscale.report.formats.export import machine_row
from torchscale.schema.cells.collectives import CollectivesCell
from torchscale.schema.launch.record import LaunchRecord
from torchscale.schema.state import State
from torchscale.util.units import format_byte_rate, format_bytes


def launch_label(cell: CollectivesCell, devices: str, launch: int, repeats: int) -> str:
    """``collectives, 2 GPUs``."""
    return f"{cell.title}, {devices}"


def outcome(summary: CollectivesSummary, record: LaunchRecord | None = None) -> str:
    """``up to 3.1 GB/s bus bandwidth (all_reduce of 64 MiB)``."""
    if summary.state is not State.OK:
        return f"{summary.state.value}: {summary.reason}"
    if summary.figures is None:
        return "ok"
    curves = [curve for curve in summary.figures.curves if curve.operation != "barrier"]
    if not curves:
        return "ok"
    best = max(
        [curve for curve in curves if not curve.peak.flags] or curves,
        key=lambda curve: curve.peak.busbw,
    )
    size = format_bytes(best.peak.payload_bytes)
    text = f"up to {format_byte_rate(best.peak.busbw)} bus bandwidth ({best.operation} of {size})"
    left_out = flagged_sizes(summary.figures)
    if left_out:
        return f"{text}; {left_out}"
    return text


def csv_row(summary: CollectivesSummary) -> dict[str, ColumnValue]:
    """How it ended; its figures are in the JSON."""
    return machine_row(summary)


def figures(summary: CollectivesSummary) -> tuple[Figure, ...]:
    """The highest bus bandwidth of each operation and dtype."""
    if summary.figures is None:
        return ()
    return tuple(
        Figure(
            "bus_bandwidth_bytes_per_second",
            "B/s",
            "the highest bus bandwidth over the sizes without a flag, as nccl-tests defines it; "
            "mean over ranks and launches",
            curve.peak.busbw,
            higher_is_better=True,
            labels={"operation": curve.operation, "dtype": curve.dtype},
        )
        for curve in summary.figures.curves
        if curve.operation != "barrier"
    )
