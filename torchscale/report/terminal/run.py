"""A run on the terminal: the first screen of its report and the table of cells."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from torchscale.analysis.summary.run import RunSummary
from torchscale.report.build import build_document
from torchscale.report.document import Bullets, Failure, Overview, Section
from torchscale.report.formats.console import print_document
from torchscale.report.sections.first_screen.status import profiled_only

_MACHINE = ("profiles", "checkpoints", "memory", "collectives", "ceilings")
"""Shown of a run that has no table of cells."""


def print_run(
    summary: RunSummary, directory: Path, console: Console, *, price: float | None = None
) -> None:
    """Print the answer, what it rests on, what costs most, what failed, and the cells.

    Args:
        summary: The run.
        directory: Its folder: logs are named with it.
        console: Where to.
        price: Dollars for a device and hour.
    """
    document = build_document(summary, price=price)
    if document.overview is not None:
        document = replace(document, overview=_with_logs(document.overview, directory))
    unmeasured = tuple(_unmeasured(summary))
    if unmeasured:
        section = Section("", "unmeasured", (Bullets(unmeasured),))
        document = replace(document, sections=(*document.sections, section))
    anchors = ["cells", "unmeasured"]
    if not summary.cells or profiled_only(summary):
        anchors += _MACHINE
    command = shlex.join(["torchscale", "report", str(directory)])
    print_document(document, console, anchors=anchors, elsewhere=f"The report has all: {command}")


def _unmeasured(summary: RunSummary) -> Iterator[str]:
    """What devices cannot do, and why memory has no prediction."""
    for ceilings in summary.hardware:
        if ceilings.figures is not None:
            yield from (
                f"not measured: {what}: {said}" for what, said in ceilings.figures.unsupported
            )
    for memory in summary.memory:
        if memory.ranks and memory.ranks[0].not_predicted:
            yield f"no prediction: {memory.ranks[0].not_predicted}"


def _with_logs(overview: Overview, directory: Path) -> Overview:
    """With paths of logs from here."""
    return replace(
        overview, failures=tuple(_with_log(failure, directory) for failure in overview.failures)
    )


def _with_log(failure: Failure, directory: Path) -> Failure:
    lines = (
        f"log: {directory}/{line.removeprefix('log: ')}" if line.startswith("log: ") else line
        for line in failure.excerpt
    )
    return replace(failure, excerpt=tuple(lines))
