"""The directory of a recording outside a benchmark, as ``report`` and ``runs`` show it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from torchscale.config.choices import ReportFormat
from torchscale.errors import StoreError, UsageError
from torchscale.features.trace.document import profile_document
from torchscale.features.trace.terminal import print_analysis
from torchscale.read.folders import Report
from torchscale.read.rendering import render_document
from torchscale.schema.profiles.analysis import ProfileAnalysis
from torchscale.store.json_files import DamagedFileError, UnreadableFileError, read_model

if TYPE_CHECKING:
    from rich.console import Console


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


def recording_report(directory: Path) -> Report:
    """The report of the recording in a directory.

    Raises:
        StoreError: its analysis cannot be read.
        FileSystemError: its file system fails.
    """
    try:
        analysis = read_model(directory, directory / "analysis.json", ProfileAnalysis)
    except UnreadableFileError as error:
        raise error.refused() from error
    except DamagedFileError as error:
        raise StoreError(
            str(error), hint="analyze the recording again: torchscale profile analyze"
        ) from error
    return RecordingReport(directory, analysis)


def listed_recording(directory: Path) -> tuple[str, str]:
    """State and headline of a recording in the list of runs."""
    del directory
    return "recording", "of a program of your own"
