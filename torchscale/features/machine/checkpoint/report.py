"""How checkpoint cells are shown."""

from __future__ import annotations

from torchscale.analysis.summary.machine import CheckpointSummary
from torchscale.features.machine.checkpoint.text import outcome_text
from torchscale.features.machine.text import format_warning
from torchscale.report.figures.figure import Figure
from torchscale.report.formats.columns import ColumnValue
from torchscale.report.formats.export import machine_row
from torchscale.schema.cells.checkpoint import CheckpointCell
from torchscale.schema.launch.record import LaunchRecord
from torchscale.schema.state import State


def launch_label(cell: CheckpointCell, devices: str, launch: int, repeats: int) -> str:
    """``checkpoint of GPT-2, 2 GPUs``."""
    return f"{cell.title}, {devices}"


def outcome(summary: CheckpointSummary, record: LaunchRecord | None = None) -> str:
    """``saved at 1.2 GB/s, loaded at 0.9 GB/s, stops 1.3 s (asynchronous 0.2 s)``."""
    if summary.state is not State.OK:
        return f"{summary.state.value}: {summary.reason}"
    if summary.figures is None:
        return "not measured"
    return outcome_text(summary.figures) + format_warning(summary.flags)


def csv_row(summary: CheckpointSummary) -> dict[str, ColumnValue]:
    """How it ended; its figures are in the JSON."""
    return machine_row(summary)


def figures(summary: CheckpointSummary) -> tuple[Figure, ...]:
    """Rates over all ranks, and how long training stops; medians over repeats."""
    measured = summary.figures
    if measured is None:
        return ()
    rate = "bytes of all ranks over the slowest rank's time of {}; median over repeats"
    stop = "from the last step's end to the next one's begin, for {}; median over repeats"
    saving, saved = "a synchronous save", "a synchronous save, until the disk has it"
    loading, later = "a load that is proved cold", "an asynchronous save"
    rows = (
        ("save_bytes_per_second", "B/s", rate.format(saved), measured.save_bytes_per_second),
        ("load_bytes_per_second", "B/s", rate.format(loading), measured.cold_bytes_per_second),
        ("save_stop_seconds", "s", stop.format(saving), measured.stop_seconds),
        ("async_save_stop_seconds", "s", stop.format(later), measured.async_stop_seconds),
    )
    return tuple(
        Figure(f"checkpoint_{name}", unit, what, value, higher_is_better=unit == "B/s")
        for name, unit, what, value in rows
        if value is not None
    )
