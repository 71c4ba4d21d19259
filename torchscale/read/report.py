"""Report a run folder or a single recording: read it and render it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from torchscale.analysis.kinds import AnySummary
from torchscale.analysis.summary.run import RunSummary
from torchscale.config.choices import ReportFormat
from torchscale.errors import UsageError
from torchscale.features.trace.sections.document import profile_document
from torchscale.features.trace.terminal import print_analysis
from torchscale.observer import SILENT, Observer
from torchscale.read.rendering import render_document
from torchscale.read.runs import chosen_run, first_names
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
from torchscale.schema.profiles.analysis import ProfileAnalysis
from torchscale.store.run_folder import load_profile
from torchscale.util.gc import gc_paused

if TYPE_CHECKING:
    from rich.console import Console


class Report(Protocol):
    """What a directory holds, ready to be shown."""

    @property
    def directory(self) -> Path:
        """Where it was read."""
        ...

    def render(self, kind: ReportFormat, *, summary: bool = False) -> bytes:
        """The content of a file in any format but ``terminal``; a ``summary`` is short Markdown.

        Raises:
            UsageError: this cannot be shown in that format.
            ValueError: ``kind`` is ``terminal``.
        """
        ...

    def print_to(self, console: Console) -> None:
        """Print it as text and tables: the format ``terminal``."""
        ...

    def print_cell(self, text: str, console: Console) -> None:
        """Print the cell with this id, or the only one whose id contains ``text`` (``*`` is any
        text), as a vertical table.

        Raises:
            UsageError: no cell fits, several do, or this has no cells.
        """
        ...

    def cell_json(self, text: str) -> str:
        """The same cell as in :meth:`render`'s JSON. Errors as of :meth:`print_cell`."""
        ...


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


@dataclass(frozen=True)
class RecordingReport:
    """Report of a directory that ``torchscale profile`` wrote for a program of the user's."""

    directory: Path
    analysis: ProfileAnalysis

    def render(self, kind: ReportFormat, *, summary: bool = False) -> bytes:
        """The content of a file in any format but ``terminal``; a ``summary`` is short Markdown.

        Raises:
            UsageError: as CSV.
        """
        if kind is ReportFormat.CSV:
            raise UsageError(
                f"{self.directory} holds a recording, which has no rows for a spreadsheet",
                hint="use --format json",
            )
        if kind is ReportFormat.JSON:
            return (self.analysis.model_dump_json(indent=1) + "\n").encode()
        return render_document(
            kind, profile_document(self.analysis, self.directory.resolve().name), summary=summary
        )

    def print_to(self, console: Console) -> None:
        """The figures of the analysis."""
        print_analysis(self.analysis, console)

    def print_cell(self, text: str, console: Console) -> None:
        """A recording has no cells.

        Raises:
            UsageError: always.
        """
        del console
        raise self._without_cells(text)

    def cell_json(self, text: str) -> str:
        """A recording has no cells.

        Raises:
            UsageError: always.
        """
        raise self._without_cells(text)

    def _without_cells(self, text: str) -> UsageError:
        return UsageError(f"--cell {text}: {self.directory} holds a recording, which has no cells")


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
        analysis = load_profile(directory)
        if analysis is not None:
            return RecordingReport(directory, analysis)
        return RunReport(directory, read_summary(directory), price)
