"""Why a job hangs, on the terminal."""

from __future__ import annotations

from rich.console import Console

from torchscale.report.document import Document
from torchscale.report.formats.console import print_document, print_line
from torchscale.report.text.autopsy import autopsy_lines
from torchscale.schema.launch.hang import Autopsy
from torchscale.util.units import format_coarse_seconds


def print_hang(verdict: Autopsy, seconds: float, console: Console) -> None:
    """Why a job makes no progress, while it hangs."""
    lasted = format_coarse_seconds(seconds)
    print_line(f"No progress for {lasted}:", console)
    print_autopsy(verdict, console)


def print_autopsy(autopsy: Autopsy, console: Console) -> None:
    """The verdict on a hang in a line, then what it rests on."""
    print_document(Document(autopsy.summary, "", indented_evidence(autopsy), (), ()), console)


def indented_evidence(autopsy: Autopsy) -> tuple[str, ...]:
    """What the verdict rests on, below it."""
    return tuple(f"    {line}" for line in autopsy_lines(autopsy))
