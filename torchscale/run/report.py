"""Report a run folder or a single recording: read it, render it, or serve it while it grows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from torchscale.analysis.summary.run import RunSummary
from torchscale.config.choices import ReportFormat
from torchscale.errors import UsageError
from torchscale.report.build import build_document
from torchscale.report.document import Document
from torchscale.report.formats.export import summary_csv
from torchscale.report.formats.html import render_html
from torchscale.report.formats.report_export import summary_json
from torchscale.report.sections.profile import profile_document
from torchscale.report.sections.selection import detailed_cells
from torchscale.report.sections.verdict import verdict
from torchscale.report.server import LOOPBACK, LivePage, make_server
from torchscale.report.terminal.profile import print_analysis
from torchscale.report.terminal.run import print_results
from torchscale.results.details import read_details
from torchscale.results.reader import read_summary
from torchscale.run.context import RESULTS
from torchscale.run.observer import SILENT, Observer
from torchscale.run.rendering import render_document
from torchscale.schema.profiles.analysis import ProfileAnalysis
from torchscale.store.changes import fingerprint, running_launch
from torchscale.store.run_folder import RunFolder, load_profile
from torchscale.util.gc import gc_paused

if TYPE_CHECKING:
    from rich.console import Console


class Report(Protocol):
    """What a directory holds, ready to be shown."""

    @property
    def directory(self) -> Path:
        """Where it was read."""
        ...

    def render(self, kind: ReportFormat) -> bytes:
        """The content of a file in any format but ``terminal``.

        Raises:
            UsageError: this cannot be shown in that format.
            ValueError: ``kind`` is ``terminal``.
        """
        ...

    def print_to(self, console: Console) -> None:
        """Print it as text and tables: the format ``terminal``."""
        ...


@dataclass(frozen=True)
class RunReport:
    """Of a run folder. ``price`` is in dollars for a device and hour."""

    directory: Path
    summary: RunSummary
    price: float | None = None

    @gc_paused()
    def render(self, kind: ReportFormat) -> bytes:
        """The content of a file in any format but ``terminal``."""
        if kind is ReportFormat.CSV:
            return summary_csv(self.summary).encode()
        if kind is ReportFormat.JSON:
            return (summary_json(self.summary) + "\n").encode()
        return render_document(kind, self.document())

    def document(self) -> Document:
        """Everything that is shown, apart from its format."""
        cells = [summary.cell for summary in detailed_cells(self.summary)]
        details = read_details(self.directory, self.summary.experiment, cells)
        return build_document(self.summary, details, price=self.price)

    def print_to(self, console: Console) -> None:
        """The verdict and the table of cells."""
        for paragraph in verdict(self.summary):
            console.print(paragraph, markup=False)
        print_results(self.summary, console)


@dataclass(frozen=True)
class RecordingReport:
    """Of a directory that ``torchscale profile`` wrote for a program of the user's."""

    directory: Path
    analysis: ProfileAnalysis

    def render(self, kind: ReportFormat) -> bytes:
        """The content of a file in any format but ``terminal``.

        Raises:
            UsageError: as CSV.
        """
        if kind is ReportFormat.CSV:
            raise UsageError(
                f"{self.directory} holds a recording, which has no rows for a spreadsheet", hint="use --format json"
            )
        if kind is ReportFormat.JSON:
            return (self.analysis.model_dump_json(indent=1) + "\n").encode()
        return render_document(kind, profile_document(self.analysis, self.directory.resolve().name))

    def print_to(self, console: Console) -> None:
        """The figures of the analysis."""
        print_analysis(self.analysis, console)


@gc_paused()
def read_report(source: Path | None = None, *, price: float | None = None, observer: Observer = SILENT) -> Report:
    """Read a run folder, complete or not, or the directory of one recording.

    Args:
        source: The directory; by default the only run in ``./results``.
        price: Dollars for a device and hour; adds samples and tokens per dollar to a run's documents.
        observer: Shows that reading takes a while.

    Raises:
        UsageError: no directory is named, and ``./results`` holds no run or several.
        StoreError: the directory is neither, or cannot be read.
    """
    directory = source if source is not None else _only_run()
    with observer.status("Reading the run"):
        analysis = load_profile(directory)
        if analysis is not None:
            return RecordingReport(directory, analysis)
        return RunReport(directory, read_summary(directory), price)


@dataclass(frozen=True)
class RunPage:
    """The report of a run folder as it is at the moment: the source of a live page."""

    directory: Path
    price: float | None = None

    def version(self) -> str:
        """Changes when a launch ends, a recording is analyzed, or the plan grows."""
        return fingerprint(self.directory)

    def running(self) -> str:
        """The running launch with its last progress."""
        return running_launch(self.directory)

    @gc_paused()
    def render(self, version: str) -> str:
        """The HTML report.

        Raises:
            StoreError: the directory cannot be read.
        """
        report = RunReport(self.directory, read_summary(self.directory), self.price)
        return render_html(report.document(), version=version)


def serve(
    source: Path | None = None,
    *,
    host: str = "127.0.0.1",
    port: int = 8642,
    price: float | None = None,
    observer: Observer = SILENT,
) -> None:
    """Serve the report of a run folder, rendered again as the run grows, until interrupted.

    Args:
        source, price: As of :func:`read_report`.
        host: Address to listen on; any but a loopback address exposes the report to the network.
        port: 0 takes a free one.
        observer: Shows the address.

    Raises:
        UsageError, StoreError: as of :func:`read_report`.
        MachineError: the address cannot be used.
    """
    directory = source if source is not None else _only_run()
    RunFolder.open(directory)
    with make_server(LivePage(RunPage(directory, price)), host, port) as server:
        address = f"[{host}]" if ":" in host else host
        observer.note(f"Serving {directory} at http://{address}:{server.server_address[1]}/ (Ctrl-C ends it)")
        if host not in LOOPBACK:
            observer.note("warning: whoever reaches this address can read the report; it asks for no password")
        server.serve_forever(poll_interval=0.2)


def _only_run() -> Path:
    """The single run under ``./results``.

    Raises:
        UsageError: there is none, or there are several.
    """
    runs = sorted(path.parent for path in RESULTS.glob("*/experiment.json"))
    if len(runs) == 1:
        return runs[0]
    if not runs:
        raise UsageError("no --source, and there is no run in ./results", hint="run `torchscale benchmark` first")
    raise UsageError(f"no --source, and ./results holds {len(runs)} runs: {', '.join(run.name for run in runs[:10])}")
