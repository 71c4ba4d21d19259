"""A watched job that runs, as the source of a live page."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from torchscale.errors import StoreError
from torchscale.features.watch.document import watched_document, watched_figures
from torchscale.features.watch.job.read import read_watch
from torchscale.features.watch.text import headline
from torchscale.report.document import Document
from torchscale.report.figures.figure import ExportedRun
from torchscale.schema.watch.report import JobState, WatchReport
from torchscale.store.locations import WATCH_REPORT


@dataclass(frozen=True)
class JobPage:
    """The job in ``directory``."""

    directory: Path

    def is_there(self) -> bool:
        """Whether a job is watched there, or was."""
        return (self.directory / WATCH_REPORT).is_file() or (self.directory / "ranks").is_dir()

    def version(self) -> str:
        """Changes when the job is judged again, and when its command is gone; empty before it was
        judged."""
        try:
            found = (self.directory / WATCH_REPORT).stat()
        except OSError:
            return ""
        return f"watch-{found.st_mtime_ns}-{found.st_size}-{self._state()}"

    def _state(self) -> str:
        try:
            return self._report().state.value
        except StoreError:
            return "damaged"

    def running(self) -> str:
        """``12,400 steps on 4 ranks in 14 min …``; empty before it was judged, and once it has
        ended or nobody watches it any more."""
        if not self.version():
            return ""
        report = self._report()
        if report.state is not JobState.RUNNING:
            return ""
        return headline(report)

    def is_unfinished(self) -> bool:
        """Whether there is a job that has no result: it runs, or nobody watches it any more.

        Raises:
            StoreError: its report is damaged.
        """
        if not self.version():
            return False
        return self._report().state in (JobState.RUNNING, JobState.LOST)

    def document(self) -> Document:
        """What is known of the job, as of the last judgement.

        Raises:
            StoreError: its report is damaged.
        """
        return watched_document(self._report())

    def figures(self) -> ExportedRun:
        """The figures so far.

        Raises:
            StoreError: its report is damaged.
        """
        name = self.directory.resolve().name
        return ExportedRun(name, figures=watched_figures(self._report()))

    def _report(self) -> WatchReport:
        return read_watch(self.directory)
