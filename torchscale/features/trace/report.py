"""The directory of a recording outside a benchmark, as ``report`` and ``runs`` show it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from torchscale.errors import StoreError
from torchscale.features.trace.document import profile_document
from torchscale.features.trace.terminal import print_analysis
from torchscale.read.folders import Report
from torchscale.read.without_cells import ReportWithoutCells
from torchscale.report.document import Document
from torchscale.schema.profiles.analysis import ProfileAnalysis
from torchscale.store.json_files import DamagedFileError, UnreadableFileError, read_model

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class RecordingReport(ReportWithoutCells):
    """Report of a directory that ``torchscale profile`` wrote for a program of the user's."""

    analysis: ProfileAnalysis
    held: ClassVar[str] = "a recording"

    @property
    def figures(self) -> ProfileAnalysis:
        """The analysis."""
        return self.analysis

    def document(self) -> Document:
        """The report of a recording, named after its directory."""
        return profile_document(self.analysis, self.directory.resolve().name)

    def print_to(self, console: Console) -> None:
        """The figures of the analysis."""
        print_analysis(self.analysis, console)


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
