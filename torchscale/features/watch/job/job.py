"""A watched job: its attempts one after the other, and what is known of it at any moment."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from functools import partial
from pathlib import Path

from torchscale.analysis.exchanges.steps import JobSteps
from torchscale.errors import TorchscaleError
from torchscale.features.watch.analysis.goodput import with_price
from torchscale.features.watch.analysis.verdict import JobVerdict, judge_job
from torchscale.features.watch.ends.attempt import JobEnds
from torchscale.features.watch.hang.watched_job import job_autopsy
from torchscale.features.watch.job.attempt_log import AttemptLog
from torchscale.features.watch.job.attempts import Attempt
from torchscale.features.watch.job.follow import JobFollower
from torchscale.features.watch.job.host_load import HostLoadSamples
from torchscale.features.watch.job.how_ended import how_ended
from torchscale.features.watch.job.judged_report import with_verdict
from torchscale.features.watch.job.measured_job import measured_job
from torchscale.features.watch.job.memory_limits import memory_limits
from torchscale.features.watch.job.notes import notes_on_ranks
from torchscale.features.watch.job.rank_folders import failures, rank_folders
from torchscale.features.watch.job.runs import Past
from torchscale.features.watch.job.settled import settled
from torchscale.features.watch.job.starting import present_waits, why_not_begun
from torchscale.features.watch.job.stream import RankStream
from torchscale.schema.launch.hang import Autopsy, HangCause
from torchscale.schema.watch.attempt import CommandRun
from torchscale.schema.watch.ends import ProcessWait
from torchscale.schema.watch.failure import JobFailure
from torchscale.schema.watch.report import JobState, WatchReport
from torchscale.util.redaction import note_arguments, redact_arguments
from torchscale.util.text import program_name, shown_bytes
from torchscale.version import __version__
from torchscale.worker.watch import clock


class WatchedJob:
    """A job whose ranks write below ``directory``.

    Attributes:
        load: Readings of the host, by :meth:`read_load`.
        verdict: As of the last :meth:`judge`.
        autopsy: Why it made no progress, as of the last :meth:`look_why` that named a cause.
        ends: How it ended, as of :meth:`explain_end`.
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
        role: str = "",
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
            role: What its ranks do in a job of several programs.
        """
        self._role = role
        self._directory, self._price = directory, price
        self._command = tuple(map(shown_bytes, command))
        note_arguments(self._command)  # its output and its errors may repeat them
        self._has_optimizer, self._on_steps = has_optimizer, on_steps
        self._log = AttemptLog(directory, past or Past((CommandRun(started=started),)))
        self._attempts = [self._attempt(self._log.next_attempt)]
        self.load = HostLoadSamples()
        self.ends = JobEnds(directory, program_name(self._command or ("the program",)))
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

    def waited(self, now: float) -> float:
        """Seconds for which a process has waited for others before there is anything to collect; 0
        where none does.

        Args:
            now: Seconds since the epoch.
        """
        return max((now - wait.since for wait in self._waits()), default=0.0)

    def _waits(self) -> list[ProcessWait]:
        return present_waits(self._directory, self._attempts[-1].number)

    def look_why(
        self, moved_seconds_ago: float | None = None, program: int | None = None
    ) -> Autopsy | None:
        """Ask why the job makes no progress: of processes that wait for others to begin, whom they
        wait for, and else the ranks; ``None`` where none reports.

        Args:
            moved_seconds_ago: When the last progress was, if the job may be slow and not hang.
            program: Its PID.

        Raises:
            OutputError: the folder cannot be written.
        """
        streams = self._attempts[-1].follower.streams
        waits = self._waits()
        if waits:
            ended = self.ends.ended_ranks(self._attempts[-1])
            found = why_not_begun(waits, tuple(streams), ended, program)
            self.autopsy = found or self.autopsy
            return found
        if not streams:
            return self.autopsy
        ranks = {rank: stream.facts for rank, stream in streams.items()}
        verdict = job_autopsy(self._directory, ranks, moved_seconds_ago)
        # A slow start or end, which names nobody, hides no hang that was explained.
        if self.autopsy is None or verdict.cause is not HangCause.UNKNOWN:
            self.autopsy = verdict
        return verdict

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
            ended = following.process_began or clock.now()
            failure = self._failure_of(over)
            self._attempts.append(following)
            self._log.keep(over, ended, is_last=False, failure=failure)

    def read_load(self) -> None:
        """Read the host, while the job runs."""
        self.load.sample([stream.facts.pid for stream in self.streams.values()])

    def _following(self) -> int | None:
        """Number of the next attempt that has ranks, or of which some have ended."""
        last = self._attempts[-1]
        numbers = {number for _, number in rank_folders(self._directory)} | self.ends.attempts()
        return min((number for number in numbers if number > last.number), default=None)

    def _failure_of(self, over: Attempt) -> JobFailure | None:
        found: list[JobFailure | None] = [None]
        began = self._log.began(over)
        self.guarded(lambda: found.append(self.ends.of_attempt(over, began)))
        return found[-1]

    def explain_end(self, exit_code: int | None) -> None:
        """The program has ended: find out why, if it failed; ``exit_code`` is ``None`` where it is
        not ours.

        Raises:
            StoreError: a file of a rank is damaged.
        """
        last = self._attempts[-1]
        self.ends.note(last, self._log.began(last), exit_code)

    def close(self, now: float) -> None:
        """The job has ended: keep what is known of its last attempt.

        Raises:
            OutputError: the folder cannot be written.
        """
        self._log.keep(self._attempts[-1], now, is_last=True, failure=self.ends.failure)

    def judge(self) -> JobVerdict:
        """What limits the last attempt that has steps."""
        attempt = self._judged
        log = None if attempt is None else settled(attempt.log)
        if attempt is not None and log is not None:
            on_device = any(
                stream.facts.device != "cpu" for stream in attempt.follower.streams.values()
            )
            limits = memory_limits(attempt.follower.streams.values())
            self.verdict = judge_job(log, attempt.evidence, on_device=on_device, limits=limits)
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
        started, failure = self._log.started, self.ends.failure
        state = JobState.RUNNING
        if is_over or exit_code is not None:
            state, failure = how_ended(exit_code, failure, is_stopped=is_stopped)
        report = WatchReport(
            tool_version=__version__,
            command=redact_arguments(self._command),
            role=self._role,
            started_at=datetime.fromtimestamp(started, timezone.utc).isoformat(timespec="seconds"),
            seconds=max(0.0, now - started),
            state=state,
            exit_code=exit_code,
            autopsy=self.autopsy,
            failure=failure,
        )
        timed = [report]
        self.guarded(lambda: timed.append(self._log.with_time(report, self._attempts[-1], now)))
        attempt = self._judged
        last = self._attempts[-1]
        for one in [last] if attempt is None or attempt is last else [attempt, last]:
            for stream in one.follower.streams.values():
                self.guarded(stream.read_use)
        notes = (*self._notes(has_steps=timed[-1].steps > 0), *timed[-1].notes)
        report = timed[-1].model_copy(update={"notes": notes})
        measured = None if attempt is None else measured_job(attempt, self.load)
        if attempt is not None and measured is not None:
            report = with_verdict(report, attempt, measured, self.verdict)
        return with_price(report, self._price)

    def _notes(self, *, has_steps: bool) -> list[str]:
        notes = [*self._log.notes, *[self.problem] * bool(self.problem)]
        notes += [f"a collector failed: {text}" for text in failures(self._directory)]
        last = self._attempts[-1].follower
        is_over = self._log.is_over
        if self.ends.failure is not None and not last.streams:
            return notes  # why nothing was seen is known
        return notes + notes_on_ranks(last, has_steps=has_steps, is_over=is_over)
