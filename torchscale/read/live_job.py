"""A watched job that runs, as the source of a live page."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from torchscale.jobs.read import read_watch
from torchscale.jobs.run import REPORT
from torchscale.report.exporters.prometheus import exposition
from torchscale.report.text.watch import headline
from torchscale.report.watched_job import watched_samples
from torchscale.schema.watch.report import WatchReport


def is_watched(directory: Path) -> bool:
    """Whether a job is watched there, or was."""
    return (directory / REPORT).is_file() or (directory / "ranks").is_dir()


@dataclass(frozen=True)
class JobPage:
    """The job in ``directory``."""

    directory: Path

    def version(self) -> str:
        """Changes when the job is judged again; empty before it was."""
        try:
            found = (self.directory / REPORT).stat()
        except OSError:
            return ""
        return f"watch-{found.st_mtime_ns}-{found.st_size}"

    def running(self) -> str:
        """``12,400 steps on 4 ranks in 14 min …``; empty before it was judged, and once it has
        ended."""
        if not self.version():
            return ""
        report = self.report()
        if report.exit_code is not None:
            return ""
        return headline(report)

    def report(self) -> WatchReport:
        """As of the last judgement.

        Raises:
            StoreError: it is damaged.
        """
        return read_watch(self.directory)

    def metrics(self, *, openmetrics: bool) -> str:
        """The figures so far.

        Raises:
            StoreError: the report is damaged.
        """
        name = self.directory.resolve().name
        return exposition(watched_samples(self.report(), name), openmetrics=openmetrics)
