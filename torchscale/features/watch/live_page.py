"""A watched job that runs, as the source of a live page."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from torchscale.errors import StoreError
from torchscale.features.watch.document import watched_samples
from torchscale.features.watch.job.read import read_watch
from torchscale.features.watch.job.run import REPORT
from torchscale.features.watch.text import headline
from torchscale.report.figures.prometheus import exposition
from torchscale.schema.watch.report import JobState, WatchReport


def is_watched(directory: Path) -> bool:
    """Whether a job is watched there, or was."""
    return (directory / REPORT).is_file() or (directory / "ranks").is_dir()


@dataclass(frozen=True)
class JobPage:
    """The job in ``directory``."""

    directory: Path

    def version(self) -> str:
        """Changes when the job is judged again, and when its command is gone; empty before it was
        judged."""
        try:
            found = (self.directory / REPORT).stat()
        except OSError:
            return ""
        return f"watch-{found.st_mtime_ns}-{found.st_size}-{self._state()}"

    def _state(self) -> str:
        try:
            return self.report().state.value
        except StoreError:
            return "damaged"

    def running(self) -> str:
        """``12,400 steps on 4 ranks in 14 min …``; empty before it was judged, and once it has
        ended or nobody watches it any more."""
        if not self.version():
            return ""
        report = self.report()
        if report.state is not JobState.RUNNING:
            return ""
        return headline(report)

    def is_unfinished(self) -> bool:
        """Whether there is a job that has no result: it runs, or nobody watches it any more.

        Raises:
            StoreError: its report is damaged.
        """
        return bool(self.version()) and self.report().state is not JobState.ENDED

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
