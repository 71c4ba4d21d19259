"""The search for the largest batch that fits, line by line."""

from __future__ import annotations

from rich.console import Console

from torchscale.report.formats.console import print_line
from torchscale.schema.cells.memory import MemoryCell, MemoryResult
from torchscale.schema.launch.record import LaunchRecord, payload
from torchscale.schema.state import State
from torchscale.util.units import format_bytes


def trial_line(cell: MemoryCell, record: LaunchRecord) -> str:
    """``batch 32: fits, 4.79 GiB at its peak``, or the state and its reason."""
    outcome = f"{record.state.value}: {record.reason}"
    if record.state is State.OK:
        peak_bytes = max(rank.peak_bytes for rank in payload(record, MemoryResult).ranks)
        outcome = f"fits, {format_bytes(peak_bytes)} at its peak"
    return f"batch {cell.training.batch_size}: {outcome}"


def print_max_batch(
    batch_size: int | None, model: str, console: Console, *, problem: str, largest: int
) -> None:
    """Print the result of a search: the batch size that fits, or why there is none."""
    if batch_size is not None:
        limit = ""
        if batch_size == largest:
            limit = " (nothing larger was tried)"
        print_line(f"The largest batch of {model} that fits is {batch_size}{limit}.", console)
    elif problem:
        print_line(f"The search ended early: {problem}", console)
    else:
        print_line(f"No batch of {model} fits.", console)
