"""What is said of a job while it runs: each finding when it first appears, and now and then a line
on how it goes."""

from __future__ import annotations

import time
from collections.abc import Callable

from torchscale.features.watch.job.job import WatchedJob
from torchscale.features.watch.text import current_finding, span_and_summary, status_line
from torchscale.schema.watch.report import WatchReport

_FIRST_SECONDS = 15.0
"""Until the first line; each further distance is twice the one before: a job is looked at often
while it is new."""
_MOST_SECONDS = 600.0
"""Between two lines of a job that runs for days: six an hour."""
_CHANGE_SECONDS = 60.0
"""Least distance of a line that is there because the costliest finding is another one: two that
cost about the same take turns."""
_LOG_SECONDS = 180.0
"""Between two lines in a log, which nobody watches."""
_RECENT_STEPS = 100
"""Steps whose mean is the recent one: enough to be steady."""
_RECENT_SECONDS = 60.0
"""What is longer ago is not recent, however few steps it is."""
_NS = 1e-9


class LiveLines:
    """Says what is new of a job."""

    def __init__(
        self,
        say: Callable[[str], None],
        *,
        on_terminal: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Args:
            say: Writes a line.
            on_terminal: Whether somebody may be watching; else it is a log.
            clock: Seconds.
        """
        self._say, self._clock = say, clock
        self._on_terminal = on_terminal
        self._pause = _FIRST_SECONDS if on_terminal else _LOG_SECONDS
        self._told_at, self._told_steps, self._told_finding = clock(), 0, ""
        self._seen: set[tuple[str, int | None, int | None]] = set()

    def judged(self, job: WatchedJob, report: WatchReport) -> None:
        """Say what is new in a report."""
        for item in report.findings:
            key = (item.finding.kind.value, item.finding.rank, item.first_step)
            if key not in self._seen:
                self._seen.add(key)
                self._say(f"torchscale: {span_and_summary(item)}")
        if self._is_due(report):
            self._tell(job, report)

    def _is_due(self, report: WatchReport) -> bool:
        """Whether a line is to be said. Of a job without new steps there is none: it has made none
        yet, or what is said of hangs stands for it."""
        if report.steps <= self._told_steps:
            return False
        waited = self._clock() - self._told_at
        if waited >= self._pause:
            return True
        is_new = self._told_steps > 0 and current_finding(report) != self._told_finding
        return self._on_terminal and is_new and waited >= _CHANGE_SECONDS

    def _tell(self, job: WatchedJob, report: WatchReport) -> None:
        self._say(status_line(report, recent_step_seconds(job)))
        if self._on_terminal and self._clock() - self._told_at >= self._pause:
            self._pause = min(_MOST_SECONDS, 2 * self._pause)
        self._told_at, self._told_steps = self._clock(), report.steps
        self._told_finding = current_finding(report)


def recent_step_seconds(job: WatchedJob) -> float | None:
    """Mean of the last steps of the last attempt; ``None`` before the first."""
    log = job.attempts[-1].log
    steps = None if log is None else log.recent(log.steps - _RECENT_STEPS)
    if steps is None:
        return None
    ago = (steps.end_ns[-1] - steps.end_ns) * _NS
    return float(steps.wall[:, ago <= _RECENT_SECONDS].mean())
