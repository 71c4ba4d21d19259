"""The report of a watched job that left no run: it has no ranks, or is not over."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from torchscale.config.choices import ReportFormat
from torchscale.errors import UsageError
from torchscale.features.watch.document import watched_document
from torchscale.features.watch.job.read import read_watch
from torchscale.features.watch.terminal import print_watch
from torchscale.read.folders import Report
from torchscale.read.rendering import render_document
from torchscale.schema.watch.report import WatchReport

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class JobReport:
    """Report of the folder of a watched job."""

    directory: Path
    found: WatchReport

    def render(self, kind: ReportFormat, *, summary: bool = False) -> bytes:
        """The content of a file in any format but ``terminal``; a ``summary`` is short Markdown.

        Raises:
            UsageError: as CSV.
        """
        if kind is ReportFormat.CSV:
            raise UsageError(
                f"{self.directory} holds a watched job without a run, which has no rows for a "
                "spreadsheet",
                hint="use --format json",
            )
        if kind is ReportFormat.JSON:
            return (self.found.model_dump_json(indent=1) + "\n").encode()
        return render_document(kind, watched_document(self.found), summary=summary)

    def print_to(self, console: Console) -> None:
        """As ``torchscale watch DIR`` does."""
        print_watch(self.found, console)

    def print_cell(self, text: str, console: Console) -> None:
        """It has no cells.

        Raises:
            UsageError: always.
        """
        del console
        raise self._without_cells(text)

    def cell_json(self, text: str) -> str:
        """It has no cells.

        Raises:
            UsageError: always.
        """
        raise self._without_cells(text)

    def _without_cells(self, text: str) -> UsageError:
        return UsageError(f"--cell {text}: {self.directory} holds a watched job without a run")


def job_report(directory: Path) -> Report:
    """The report of the job in a folder.

    Raises:
        StoreError: it cannot be read.
    """
    return JobReport(directory, read_watch(directory))
