"""The verdict on a hang."""

from __future__ import annotations

from rich.console import Console

from torchscale.report.text.failure import autopsy_lines
from torchscale.schema.launch.hang import Autopsy


def print_autopsy(autopsy: Autopsy, console: Console) -> None:
    """The verdict in a line, then what it rests on."""
    console.print(autopsy.summary, markup=False, soft_wrap=True, style="bold")
    for line in autopsy_lines(autopsy):
        console.print(f"    {line}", markup=False, soft_wrap=True)
