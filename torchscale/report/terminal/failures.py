"""What failed in a sweep, where, and how to measure it again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from torchscale.report.text.failure import failure_excerpt
from torchscale.report.text.words import and_others, plural
from torchscale.schema.launch.record import LaunchRecord
from torchscale.schema.state import State

_SHOWN = 3
"""Excerpts of ten lines each: a screen. The report has all."""


def print_failures(
    failed: Sequence[LaunchRecord], cells: int, directory: Path, console: Console
) -> None:
    """The failed launches, those of one cause together.

    Args:
        failed: One failed launch of each cell that failed.
        cells: Cells that were planned to run.
        directory: The run folder: logs are named with it.
        console: Where to.
    """
    if not failed:
        return
    console.print(f"\n{len(failed)} of {plural(cells, 'cell')} failed:", style="bold red")
    causes: dict[tuple[State, str], list[LaunchRecord]] = {}
    for record in failed:
        causes.setdefault((record.state, record.reason), []).append(record)
    for (state, reason), records in list(causes.items())[:_SHOWN]:
        record = records[0]
        others = and_others(len(records) - 1)
        console.print(
            f"{record.cell_id}{others}: {state.value}: {reason}", markup=False, soft_wrap=True
        )
        for line in failure_excerpt(record):
            text = line
            if line.startswith("log: "):
                text = f"log: {directory}/{line.removeprefix('log: ')}"
            console.print(f"    {text}", markup=False, soft_wrap=True, style="dim")
    if len(causes) > _SHOWN:
        console.print(f"… and {plural(len(causes) - _SHOWN, 'other cause')}, in the report")
