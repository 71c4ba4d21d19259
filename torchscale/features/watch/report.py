"""The report of a watched job that left no run: it has no ranks, or is not over."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from torchscale.features.watch.document import watched_document
from torchscale.features.watch.job.read import read_watch
from torchscale.features.watch.terminal import print_watch
from torchscale.read.folders import Report
from torchscale.read.without_cells import ReportWithoutCells
from torchscale.report.document import Document
from torchscale.schema.watch.report import WatchReport

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class JobReport(ReportWithoutCells):
    """Report of the folder of a watched job."""

    found: WatchReport
    held: ClassVar[str] = "a watched job without a run"

    @property
    def figures(self) -> WatchReport:
        """What is known of it."""
        return self.found

    def document(self) -> Document:
        """What the report of a run has of it."""
        return watched_document(self.found)

    def print_to(self, console: Console) -> None:
        """As ``torchscale watch DIR`` does."""
        print_watch(self.found, console)


def job_report(directory: Path) -> Report:
    """The report of the job in a folder.

    Raises:
        StoreError: it cannot be read.
    """
    return JobReport(directory, read_watch(directory))
