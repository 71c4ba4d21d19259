"""A watched job: its attempts one after the other, and what is known of it at any moment."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from functools import partial
from pathlib import Path

from torchscale.analysis.exchanges.steps import JobSteps
from torchscale.analysis.training.cell_diagnosis import with_doubts
from torchscale.analysis.training.flags import doubts
from torchscale.errors import TorchscaleError
from torchscale.features.watch.analysis.goodput import with_price
from torchscale.features.watch.analysis.startup import slow_start
from torchscale.features.watch.analysis.verdict import JobVerdict, judge_job
from torchscale.features.watch.hang.watched_job import job_autopsy
from torchscale.features.watch.job.attempt_log import AttemptLog
from torchscale.features.watch.job.attempts import Attempt
from torchscale.features.watch.job.finding_places import with_places
from torchscale.features.watch.job.follow import JobFollower
from torchscale.features.watch.job.host_load import HostLoadSamples
from torchscale.features.watch.job.measured_job import measured_job, rank_means, settled
from torchscale.features.watch.job.notes import notes_on_ranks
from torchscale.features.watch.job.rank_folders import failures, rank_folders
from torchscale.features.watch.job.runs import Past
from torchscale.features.watch.job.stream import RankStream
from torchscale.schema.launch.hang import Autopsy, HangCause
from torchscale.schema.watch.attempt import CommandRun
from torchscale.schema.watch.report import JobState, WatchFinding, WatchReport
from torchscale.util.redaction import note_arguments, redact_arguments
from torchscale.util.text import shown_bytes
from torchscale.version import __version__
from torchscale.worker.watch import clock

IN_ORDER = {0, 128 + signal.SIGTERM, 128 + signal.SIGINT}
"""Exit codes of a job that has not failed: its own end, and the user's wish."""


class WatchedJob:
    """A job whose ranks write below ``directory``.

    Attributes:
        load: Readings of the host, by :meth:`read_load`.
        verdict: As of the last :meth:`judge`.
        autopsy: Why it made no progress, as of the last :meth:`look_why` that named a cause.
        problem: What could not be read, judged or written last; empty where all could.
    """

    def __init__(
        self,
        directory: Path,
        command: Sequence[str],
        started: float,
        *,
        past: Past | None = None,
        price: float | None = None,
        on_steps: Callable[[int, JobSteps], None] = lambda *_: None,
        has_optimizer: bool = False,
    ) -> None:
        """
        Args:
            directory: Below which its ranks write.
            command: argv.
            started: When this run of the command began, in seconds since the epoch.
            past: Earlier runs.
            price: Dollars for a device and hour.
            on_steps: Called with the number of an attempt and its steps as they become complete.
            has_optimizer: Whether nothing but steps of an optimizer counts.
        """
        self._directory, self._price = directory, price
        self._command = tuple(map(shown_bytes, command))
        note_arguments(self._command)  # its output and its errors may repeat them
        self._has_optimizer, self._on_steps = has_optimizer, on_steps
        self._log = AttemptLog(directory, past or Past((CommandRun(started=started),)))
        self._attempts = [self._attempt(self._log.next_attempt)]
        self.load = HostLoadSamples()
        self.verdict = JobVerdict()
        self.autopsy: Autopsy | None = None
        self.problem = ""

    def guarded(self, action: Callable[[], object]) -> bool:
        """Do it, and keep what fails as a note: the program that is watched goes on, and its exit
        code is passed on, whatever fails here. Whether nothing did."""
        try:
            action()
        except TorchscaleError as error:
            self.problem = error.message
        except Exception as error:  # noqa: BLE001 - see above
            self.problem = f"not judged: {type(error).__name__}: {error}"
        else:
            return True
        return False

    def _attempt(self, number: int) -> Attempt:
        follower = JobFollower(self._directory, number, has_optimizer=self._has_optimizer)
        return Attempt(number, follower, partial(self._on_steps, number))

    @property
    def command(self) -> Sequence[str]:
        """argv."""
        return self._command

    @property
    def attempts(self) -> Sequence[Attempt]:
        """Of this run; the last one goes on. One whose ranks have not reported has no streams."""
        return self._attempts

    @property
    def steps(self) -> int:
        """Of all attempts of this run."""
        clocks = [attempt.clock for attempt in self._attempts]
        return sum(clock.steps for clock in clocks if clock is not None)

    @property
    def moments(self) -> int:
        """Moments and collectives of all ranks so far: grows while the job makes progress."""
        return sum(attempt.follower.moments for attempt in self._attempts)

    @property
    def restarts(self) -> int:
        """Attempts before the last."""
        return len(self._attempts) - 1

    @property
    def streams(self) -> Mapping[int, RankStream]:
        """Rank → its files, of the last attempt."""
        return self._attempts[-1].follower.streams

    def look_why(self, moved_seconds_ago: float | None = None) -> Autopsy | None:
        """Ask the ranks why they make no progress; ``None`` where none reports.
        ``moved_seconds_ago``: when the last progress was, if the job may be slow and not hang.

        Raises:
            OutputError: the folder cannot be written.
        """
        streams = self._attempts[-1].follower.streams
        if not streams:
            return self.autopsy
        ranks = {rank: stream.facts for rank, stream in streams.items()}
        found = job_autopsy(self._directory, ranks, moved_seconds_ago)
        # A slow start or end, which names nobody, hides no hang that was explained.
        if self.autopsy is None or found.cause is not HangCause.UNKNOWN:
            self.autopsy = found
        return found

    def advance(self) -> None:
        """Read what the ranks have written.

        Raises:
            StoreError: a file of a rank is damaged.
        """
        self._attempts[-1].advance()
        while (number := self._following()) is not None:
            over, following = self._attempts[-1], self._attempt(number)
            over.advance()  # what it wrote before its last rank ended
            following.advance()
            self._attempts.append(following)
            self._log.keep(over, following.process_began or clock.now(), is_last=False)

    def read_load(self) -> None:
        """Read the host, while the job runs."""
        self.load.sample([stream.facts.pid for stream in self.streams.values()])

    def _following(self) -> int | None:
        """Number of the next attempt that has ranks. One whose ranks ended before they reported
        leaves nothing."""
        last = self._attempts[-1]
        numbers = {number for _, number in rank_folders(self._directory)}
        return min((number for number in numbers if number > last.number), default=None)

    def close(self, now: float) -> None:
        """The job has ended: keep what is known of its last attempt.

        Raises:
            OutputError: the folder cannot be written.
        """
        self._log.keep(self._attempts[-1], now, is_last=True)

    def judge(self) -> JobVerdict:
        """What limits the last attempt that has steps."""
        attempt = self._judged
        log = None if attempt is None else settled(attempt.log)
        if attempt is not None and log is not None:
            on_device = any(
                stream.facts.device != "cpu" for stream in attempt.follower.streams.values()
            )
            self.verdict = judge_job(log, attempt.evidence, on_device=on_device)
        return self.verdict

    @property
    def _judged(self) -> Attempt | None:
        with_steps = [attempt for attempt in self._attempts if attempt.log is not None]
        return with_steps[-1] if with_steps else None

    def report(
        self,
        now: float,
        exit_code: int | None = None,
        *,
        is_over: bool = False,
        is_stopped: bool = False,
    ) -> WatchReport:
        """All that is known.

        Args:
            now: Seconds since the epoch.
            exit_code: Of the program; ``None`` while it runs.
            is_over: Whether it has ended although it has no exit code.
            is_stopped: Whether the user ended it.
        """
        started = self._log.started
        state = JobState.RUNNING
        if exit_code not in (None, *IN_ORDER) and not is_stopped:
            state = JobState.FAILED
        elif is_over or exit_code is not None:
            state = JobState.DONE
        report = WatchReport(
            tool_version=__version__,
            command=redact_arguments(self._command),
            started_at=datetime.fromtimestamp(started, timezone.utc).isoformat(timespec="seconds"),
            seconds=max(0.0, now - started),
            state=state,
            exit_code=exit_code,
            autopsy=self.autopsy,
        )
        timed = [report]
        self.guarded(lambda: timed.append(self._log.with_time(report, self._attempts[-1], now)))
        attempt = self._judged
        last = self._attempts[-1]
        for one in [last] if attempt is None or attempt is last else [attempt, last]:
            for stream in one.follower.streams.values():
                self.guarded(stream.read_use)
        notes = (*self._notes(), *timed[-1].notes)
        report = timed[-1].model_copy(update={"notes": notes})
        measured = None if attempt is None else measured_job(attempt, self.load)
        if attempt is None or measured is None:
            return with_price(report, self._price)
        facts, table = measured.streams[0].facts, measured.table
        found = doubts((), measured.records())
        findings = tuple(with_places(item, attempt, table) for item in self.verdict.findings)
        edges = {edge for item in findings for edge in (item.first_step, item.last_step)}
        steps = max(1, attempt.follower.steps)
        startup = attempt.startup
        slow = slow_start(startup)
        judged = report.model_copy(
            update={
                "world_size": facts.world_size,
                "torch": facts.torch,
                "backend": attempt.follower.backend,
                "device": facts.device,
                "waits_by": table.waits_by.value,
                "left_out_steps": table.first,
                "step_seconds": measured.step_seconds,
                "findings": (
                    *(
                        item.model_copy(update={"finding": with_doubts(item.finding, found)})
                        for item in findings
                    ),
                    *([] if slow is None else [WatchFinding(finding=slow)]),
                ),
                "abstentions": self.verdict.abstentions,
                "changes": tuple(step for step in self.verdict.changes if step in edges),
                "per_rank": tuple(rank_means(attempt, table)),
                "startup": startup,
                "collector_share": attempt.collector / max(steps * float(table.wall.mean()), 1e-9),
            }
        )
        return with_price(judged, self._price)

    def _notes(self) -> list[str]:
        notes = [*self._log.notes, *[self.problem] * bool(self.problem)]
        notes += [f"a collector failed: {text}" for text in failures(self._directory)]
        last = self._attempts[-1].follower
        has_steps, is_over = self._judged is not None, self._log.is_over
        return notes + notes_on_ranks(last, has_steps=has_steps, is_over=is_over)
