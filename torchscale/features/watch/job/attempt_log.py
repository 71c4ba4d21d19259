"""The attempts of a job over all runs of the command, and where its wall time went."""

from __future__ import annotations

from pathlib import Path

from torchscale.features.watch.analysis.goodput import job_times, repeated_in_all, with_losses
from torchscale.features.watch.job.attempts import Attempt
from torchscale.features.watch.job.runs import Past, begin_of, write_record
from torchscale.schema.watch.attempt import AttemptRecord
from torchscale.schema.watch.failure import JobFailure
from torchscale.schema.watch.report import WatchReport

_MOST_NOTES = 3
"""On attempts: the last ones; all have a reason in the JSON."""
_MOST_ATTEMPTS = 200
"""In a report; times and counts are those of all."""


class AttemptLog:
    """Attempts that are over, of earlier runs of the command and of this one.

    Attributes:
        is_over: Whether the last attempt is among them.
    """

    def __init__(self, directory: Path, past: Past) -> None:
        self._directory, self._past = directory, past
        self._records = list(past.records)
        self._unwritten: list[AttemptRecord] = []
        self.is_over = False

    @property
    def started(self) -> float:
        """When the first run of the command began, in seconds since the epoch."""
        return self._past.runs[0].started

    @property
    def notes(self) -> tuple[str, ...]:
        """What was left out of earlier runs, and why."""
        return self._past.notes

    @property
    def next_attempt(self) -> int:
        """Number of the first attempt of this run."""
        return self._past.next_attempt

    def keep(
        self,
        attempt: Attempt,
        ended: float,
        *,
        is_last: bool,
        failure: JobFailure | None = None,
    ) -> None:
        """Keep what is known of an attempt that is over, and what could not be written before. One
        whose ranks neither reported nor left why they ended leaves nothing.

        Args:
            attempt: Read to its end.
            ended: When the program ended, or the next attempt began, in seconds since the epoch.
            is_last: Whether the program has ended.
            failure: Why it ended.

        Raises:
            OutputError: the folder cannot be written.
        """
        if (attempt.follower.streams or failure is not None) and not self.is_over:
            record = self._record(attempt, ended, failure)
            self._records.append(record)
            self._unwritten.append(record)
            self.is_over = is_last
        while self._unwritten:
            write_record(self._directory, self._unwritten[0])
            del self._unwritten[0]

    def records(self, attempt: Attempt, now: float) -> list[AttemptRecord]:
        """Of all attempts that have reported, the last one as it is now."""
        if self.is_over or not attempt.follower.streams:
            return self._records
        return [*self._records, self._record(attempt, now)]

    def began(self, attempt: Attempt) -> float:
        """When an attempt of this run began, in seconds since the epoch."""
        runs = self._past.runs
        return begin_of(attempt, len(runs) - 1, runs, self._records)

    def _record(
        self, attempt: Attempt, until: float, failure: JobFailure | None = None
    ) -> AttemptRecord:
        run, began = len(self._past.runs) - 1, self.began(attempt)
        return attempt.record(run, began, until, self._records, failure)

    def with_time(self, report: WatchReport, attempt: Attempt, now: float) -> WatchReport:
        """The report with where the wall time of all attempts went until ``now``, in seconds since
        the epoch; ``attempt`` is the last one."""
        attempts = [record.attempt for record in self.records(attempt, now)]
        seconds, of_devices = job_times(self._past.runs, attempts, now)
        unknown = [one for one in attempts if one.repeated_steps is None]
        notes = [
            f"how many steps of attempt {one.number} repeat earlier ones is not known: {one.origin}"
            for one in unknown[-_MOST_NOTES:]
        ]
        return report.model_copy(
            update={
                "restarts": max(0, len(attempts) - 1),
                "steps": sum(one.steps for one in attempts),
                "time": seconds,
                "device_time": of_devices,
                "goodput": seconds.goodput,
                "repeated_steps": repeated_in_all(attempts),
                "attempts": tuple(with_losses(attempts)[-_MOST_ATTEMPTS:]),
                "runs": len(self._past.runs),
                "notes": (*report.notes, *notes),
            }
        )
