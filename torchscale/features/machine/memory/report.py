"""How memory cells are shown."""

from __future__ import annotations

from torchscale.analysis.summary.machine import MemorySummary
from torchscale.features.machine.text import predicted_text
from torchscale.report.figures.figure import Figure
from torchscale.report.formats.columns import ColumnValue
from torchscale.report.formats.export import machine_row
from torchscale.report.text.figures import PEAK_ALLOCATED
from torchscale.schema.cells.memory import MemoryCell
from torchscale.schema.launch.record import LaunchRecord
from torchscale.schema.state import State
from torchscale.util.units import format_bytes


def launch_label(cell: MemoryCell, devices: str, launch: int, repeats: int) -> str:
    """``memory of ResNet-50 at batch 64, 1 GPU``."""
    return f"{cell.title}, {devices}"


def outcome(summary: MemorySummary, record: LaunchRecord | None = None) -> str:
    """``4.79 GiB peak of tensors, predicted 4.80 GiB (+0.1 %)``."""
    if summary.state is not State.OK:
        return f"{summary.state.value}: {summary.reason}"
    fullest = summary.fullest
    if fullest is None:
        return "not measured"
    text = f"{format_bytes(fullest.peak_bytes)} peak of tensors"
    if summary.prediction_error is None:
        return text
    return f"{text}, predicted {predicted_text(summary)}"


def csv_row(summary: MemorySummary) -> dict[str, ColumnValue]:
    """How it ended; its figures are in the JSON."""
    return machine_row(summary)


def figures(summary: MemorySummary) -> tuple[Figure, ...]:
    """The fullest rank's bytes."""
    fullest = summary.fullest
    if not summary.state.has_figures or fullest is None:
        return ()
    definition = "most bytes that tensors took of the fullest rank's device"
    name, unit = PEAK_ALLOCATED.key, PEAK_ALLOCATED.unit
    return (Figure(name, unit, definition, fullest.peak_bytes, higher_is_better=False),)
