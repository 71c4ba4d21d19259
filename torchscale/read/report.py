"""Report a run folder or a single recording: read it and render it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from torchscale.analysis.kinds import AnySummary
from torchscale.analysis.summary.run import RunSummary
from torchscale.config.choices import ReportFormat
from torchscale.errors import UsageError
from torchscale.observer import SILENT, Observer
from torchscale.read.folders import (
    REPORTS,
    REPORTS_OF_RUNS,
    RUN,
    Report,
    chosen_run,
    first_names,
)
from torchscale.read.rendering import render_document
from torchscale.report.build import build_document
from torchscale.report.document import Document
from torchscale.report.formats.console import print_pairs
from torchscale.report.formats.export import summary_csv
from torchscale.report.formats.machine_export import machine_export
from torchscale.report.formats.report_export import cell_export, summary_json
from torchscale.report.sections.one_cell import cell_rows
from torchscale.report.sections.selection import detailed_cells
from torchscale.report.terminal.run import print_run
from torchscale.results.details import read_details
from torchscale.results.reader import read_summary
from torchscale.util.gc import gc_paused

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class RunReport:
    """Report of a run folder. ``price`` is in dollars for a device and hour."""

    directory: Path
    summary: RunSummary
    price: float | None = None

    @gc_paused()
    def render(self, kind: ReportFormat, *, summary: bool = False) -> bytes:
        """The content of a file in any format but ``terminal``; a ``summary`` is short Markdown."""
        if kind is ReportFormat.CSV:
            return summary_csv(self.summary).encode()
        if kind is ReportFormat.JSON:
            return (summary_json(self.summary) + "\n").encode()
        return render_document(kind, self.document(), summary=summary)

    def document(self) -> Document:
        """Everything that is shown, apart from its format."""
        cells = [summary.cell for summary in detailed_cells(self.summary)]
        details = read_details(self.directory, self.summary.experiment, cells)
        return build_document(self.summary, details, price=self.price)

    def print_to(self, console: Console) -> None:
        """The verdict, what costs most, where what failed broke, and the table of cells."""
        print_run(self.summary, self.directory, console, price=self.price)

    def print_cell(self, text: str, console: Console) -> None:
        """One cell as a vertical table."""
        print_pairs(cell_rows(self.summary, _find_cell(self.summary, text)), console)

    def cell_json(self, text: str) -> str:
        """One cell, as the JSON of the run has it."""
        cell = _find_cell(self.summary, text)
        trained = [cell_export(one) for one in self.summary.cells if one is cell]
        machine = [machine_export(one) for one in self.summary.machine if one is cell]
        return [*trained, *machine][0].model_dump_json(indent=1)


def _find_cell(summary: RunSummary, text: str) -> AnySummary:
    cells = {cell.cell.id: cell for cell in summary.everything}
    if text in cells:
        return cells[text]
    fitting = [name for name in cells if fnmatchcase(name, f"*{text}*")]
    if len(fitting) == 1:
        return cells[fitting[0]]
    names = fitting or list(cells)
    what = "no such cell"
    if fitting:
        what = f"{len(fitting)} cells fit"
    raise UsageError(f"--cell {text}: {what}", hint=f"cells: {first_names(names)}")


@gc_paused()
def read_report(
    source: Path | None = None, *, price: float | None = None, observer: Observer = SILENT
) -> Report:
    """Read a run folder, complete or not, or the directory of one recording.

    Args:
        source: The directory, a directory that holds it alone, or the name of a run in
            ``./results``; by default the newest there.
        price: Dollars for a device and hour; adds samples and tokens per dollar to a run's
            documents.
        observer: Shows that reading takes a while.

    Raises:
        UsageError: no directory is named, and ``./results`` holds no run; or a file, or a directory
            of several runs.
        StoreError: the directory is neither, or cannot be read.
    """
    directory = chosen_run(source, observer)
    if directory.is_file():
        raise UsageError(
            f"{directory} is a file; a report is made from a run folder",
            hint="baselines and records are read by: torchscale compare "
            f"{shlex.quote(str(directory))} OTHER",
        )
    with observer.status("Reading the run"):
        other = _other_than_run(directory)
        if other is not None:
            return other(directory)
        return RunReport(directory, read_summary(directory), price)


def _other_than_run(directory: Path) -> Callable[[Path], Report] | None:
    """What reads the report of a folder that is no run folder, or has one beside that of a run."""
    reports = REPORTS
    if (directory / RUN).exists():
        reports = REPORTS_OF_RUNS
    name = next((name for name in reports if os.path.lexists(directory / name)), None)
    return None if name is None else reports[name]
