"""A watched job: its attempts one after the other, and what is known of it at any moment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from functools import partial
from pathlib import Path

import numpy as np

from torchscale.analysis.exchanges.steps import JobSteps, WaitsBy
from torchscale.catalog.torch_versions import untested
from torchscale.errors import TorchscaleError
from torchscale.features.watch.analysis.goodput import with_price
from torchscale.features.watch.analysis.step_log import StepLog
from torchscale.features.watch.analysis.verdict import JobFinding, JobVerdict, judge_job
from torchscale.features.watch.hang.watched_job import job_autopsy
from torchscale.features.watch.job.attempt_log import AttemptLog
from torchscale.features.watch.job.attempts import Attempt
from torchscale.features.watch.job.follow import JobFollower
from torchscale.features.watch.job.runs import Past
from torchscale.features.watch.job.stream import RankStream, failures, rank_folders
from torchscale.schema.launch.hang import Autopsy, HangCause
from torchscale.schema.profiles.finding import Finding, FindingKind
from torchscale.schema.watch.attempt import CommandRun
from torchscale.schema.watch.rank import ProgramLine, RankFacts
from torchscale.schema.watch.report import (
    JobState,
    WatchedRank,
    WatchFinding,
    WatchReport,
)
from torchscale.util.redaction import note_arguments, redact_arguments
from torchscale.util.text import shown_bytes
from torchscale.util.units import format_bytes
from torchscale.version import __version__
from torchscale.worker.watch import clock

LEFT_OUT = 10
"""First steps that no figure counts: allocators, caches, and DistributedDataParallel, which puts
its buckets in order in the second one, settle in them."""
_SHORTEST_JOB = 4 * LEFT_OUT
"""Steps of a job from which on its first ones are left out."""
_LINE_FLOOR = 0.02
"""Share of a step that a rank is longer at a line than the others, for the line to be named."""
_MAX_LINES = 3
_MOST_RANKS = 8
_MOST = 0.5
"""Share of what a rank is longer that a line takes, to be looked at first."""
_ON_HOST = (FindingKind.STRAGGLER, FindingKind.INTERMITTENT_STRAGGLER, FindingKind.UNEVEN_STAGES)


class WatchedJob:
    """A job whose ranks write below ``directory``.

    Attributes:
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
        log = None if attempt is None else _settled(attempt.log)
        if attempt is not None and log is not None:
            on_device = any(
                stream.facts.device != "cpu" for stream in attempt.follower.streams.values()
            )
            self.verdict = judge_job(log, on_device=on_device)
        return self.verdict

    @property
    def _judged(self) -> Attempt | None:
        with_steps = [attempt for attempt in self._attempts if attempt.log is not None]
        return with_steps[-1] if with_steps else None

    def report(
        self, now: float, exit_code: int | None = None, *, is_over: bool = False
    ) -> WatchReport:
        """All that is known.

        Args:
            now: Seconds since the epoch.
            exit_code: Of the program; ``None`` while it runs.
            is_over: Whether it has ended although it has no exit code.
        """
        started = self._log.started
        state = JobState.RUNNING
        if is_over or exit_code is not None:
            state = JobState.ENDED
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
        table = None if attempt is None else _table(attempt)
        if attempt is None or table is None:
            return with_price(report, self._price)
        facts = next(iter(attempt.follower.streams.values())).facts
        steps = max(1, attempt.follower.steps)
        judged = report.model_copy(
            update={
                "world_size": facts.world_size,
                "torch": facts.torch,
                "backend": attempt.follower.backend,
                "device": facts.device,
                "waits_by": table.waits_by.value,
                "left_out_steps": table.first,
                "step_seconds": float(table.wall.mean()),
                "findings": tuple(
                    _with_places(item, attempt, table) for item in self.verdict.findings
                ),
                "abstentions": self.verdict.abstentions,
                "changes": self.verdict.changes,
                "per_rank": tuple(_per_rank(attempt, table)),
                "collector_share": attempt.collector / max(steps * float(table.wall.mean()), 1e-9),
            }
        )
        return with_price(judged, self._price)

    def _notes(self) -> list[str]:
        attempt = self._judged
        streams = self._attempts[-1].follower.streams
        notes = [*self._log.notes, *[self.problem] * bool(self.problem)]
        notes += [f"a collector failed: {text}" for text in failures(self._directory)]
        if not streams:
            return [
                *notes,
                "no rank reported: the program imported no torch, trained nothing, runs in a Python "
                "that ignores PYTHONPATH (python -I, env -i, a container of its own), or could not "
                "reach this folder (chroot)",
            ]
        notes += [
            f"rank {rank}: {stream.facts.problem}"
            for rank, stream in streams.items()
            if stream.facts.problem
        ]
        notes += self._torn_notes()
        hosts = {stream.facts.host for stream in streams.values()}
        facts = next(iter(streams.values())).facts
        if attempt is None:
            reason = ": neither an optimizer of torch nor repeated collectives"
            if any(stream.facts.problem for stream in streams.values()):
                reason = " on all ranks"
            notes.append(f"no step was seen{reason}")
        if len(streams) < facts.world_size:
            notes.append(
                f"{len(streams)} of {facts.world_size} ranks write here; waits for the others count "
                "as transfer"
            )
        if self._attempts[-1].follower.round is not None:
            notes.append(
                "steps are rounds of collectives: no optimizer of torch stepped in this program"
            )
        if len(hosts) > 1 and self._attempts[-1].follower.waits_by is WaitsBy.CALLS:
            notes.append(
                "ranks of several hosts have several clocks: ranks are compared within a host, and "
                "waits for ranks of another one count as transfer"
            )
        if not facts.has_recorder:
            notes.append(f"torch {facts.torch} records no collectives: who waits is not known")
        notes += filter(None, [untested(facts.torch)])
        recorded = Counter[str]()
        for stream in streams.values():
            recorded.update(stream.use.recorders)
        notes += _device_notes(self._attempts[-1].follower, facts, recorded)
        failed = {
            f"torch's flight recorder of {name} failed on rank {rank}: {reason}"
            for rank, stream in streams.items()
            for name, reason in stream.use.failed_recorders.items()
        }
        notes += sorted(failed)[:_MOST_RANKS]
        lost = sum(stream.use.lost_calls for stream in streams.values())
        if lost:
            notes.append(
                f"{lost:,} collectives were not read: overwritten before, or of an unknown form"
            )
        if any(stream.has_gap for stream in streams.values()):
            notes.append("some steps were removed before they were read")
        return notes

    def _torn_notes(self) -> list[str]:
        """Of a job that is over: ranks whose end nobody has written."""
        if not self._log.is_over:
            return []
        streams = self._attempts[-1].follower.streams
        torn = [rank for rank, stream in streams.items() if stream.facts.state == "running"]
        if not torn:
            return []
        which = ", ".join(map(str, torn[:_MOST_RANKS])) + ", …" * (len(torn) > _MOST_RANKS)
        return [
            f"the end of these ranks was not written (they were killed, or the disk is full): "
            f"{which}; their last half second, or what the disk had no room for, is missing"
        ]


def _device_notes(
    follower: JobFollower, facts: RankFacts, recorded: Mapping[str, int]
) -> list[str]:
    """What is not known of a job whose collectives are kernels, or whose gloo copies from a device.

    Args:
        follower: Of the job.
        facts: Of one rank.
        recorded: Name of each flight recorder → the collectives of all ranks in it.
    """
    if facts.world_size < 2 or (facts.device == "cpu" and follower.waits_by is WaitsBy.CALLS):
        return []
    if recorded and not any(recorded.values()):
        return [
            f"no flight recorder of torch holds a collective ({', '.join(sorted(recorded))}: none), "
            f"so which rank is late is not known: {follower.backend or 'the backend'} writes to "
            "none, as nccl2 of torch 2.14, or CUDA graphs replay all of them"
        ]
    if follower.waits_by is WaitsBy.CALLS:
        return [
            "gloo waits for the device before it sends: a rank is compared by when its host calls a "
            "collective, and a slow device is not told from a transfer; torchscale profile tells"
        ]
    if follower.waits_by is WaitsBy.NOTHING:
        return [
            f"over {follower.backend} a call only puts a collective into the device's queue, so "
            "which rank is late is not known: `torchscale watch --timing` has torch measure how "
            "long each collective takes on each rank"
        ]
    if not follower.steps:
        return []
    if follower.sends >= follower.steps:
        return ["sends and receives on a device are not compared: no rank of a pipeline is named"]
    if not follower.compared:
        return [
            "no collective with a length on all ranks was seen, so which rank is late is not known: "
            "torch records none that a CUDA graph replays"
        ]
    return []


def _settled(log: StepLog | None) -> StepLog | None:
    """Without the first steps of a job that has enough."""
    if log is None or log.steps < _SHORTEST_JOB:
        return log
    table = log.between(LEFT_OUT, log.steps)
    if table is None:
        return log
    return log.without(table)


def _table(attempt: Attempt) -> JobSteps | None:
    log = _settled(attempt.log)
    return None if log is None else log.table


def _per_rank(attempt: Attempt, table: JobSteps) -> list[WatchedRank]:
    blame = table.blame.sum(axis=1)
    shares = blame / max(float(blame.sum()), 1e-12)
    by_lengths = table.waits_by is WaitsBy.LENGTHS
    own = table.calm - table.data if by_lengths else table.own
    knows_waits = table.waits_by is not WaitsBy.NOTHING
    knows_transfers = knows_waits and not by_lengths
    return [
        WatchedRank(
            rank=rank,
            host=stream.facts.host,
            pid=stream.facts.pid,
            own_seconds=max(0.0, float(own[row].mean())),
            data_seconds=float(table.data[row].mean()),
            wait_seconds=float(table.wait[row].mean()) if knows_waits else None,
            transfer_seconds=float(table.transfer[row].mean()) if knows_transfers else None,
            bubble_seconds=float(table.bubble[row].mean()),
            blame=float(shares[row]) if knows_waits else None,
            cpu_seconds=stream.use.cpu_seconds,
            peak_memory_bytes=stream.use.peak_memory_bytes,
            lost_calls=stream.use.lost_calls,
            recorders=stream.use.recorders,
            problem=stream.facts.problem,
        )
        for row, (rank, stream) in enumerate(attempt.follower.streams.items())
    ]


def _with_places(item: JobFinding, attempt: Attempt, table: JobSteps) -> WatchFinding:
    """With the lines at which the rank is longer, and the collective at which it is waited for."""
    finding = item.finding
    lines: tuple[tuple[ProgramLine, float], ...] = ()
    collective = ""
    if finding.rank is not None and finding.kind in _ON_HOST:
        row = attempt.follower.ranks.index(finding.rank)
        lines = _longer_lines(attempt, row, float(table.wall.mean()))
        collective = _awaited_at(attempt, row)
    return WatchFinding(
        finding=_with_line(finding, lines),
        first_step=item.first,
        last_step=item.last,
        lines=lines,
        collective=collective,
    )


def _with_line(finding: Finding, lines: Sequence[tuple[ProgramLine, float]]) -> Finding:
    """With the line to look at first, where a line takes most of what the rank is longer."""
    if not lines or lines[0][1] < _MOST * finding.cost_seconds:
        return finding
    line = lines[0][0]
    place = f"{Path(line.file).name}:{line.line} ({line.function})"
    return finding.model_copy(update={"advice": f"look at {place} first; {finding.advice}"})


def _longer_lines(
    attempt: Attempt, row: int, step_seconds: float
) -> tuple[tuple[ProgramLine, float], ...]:
    """Lines at which the rank's samples say that it spends more of a step than the others."""
    uses = [stream.use for stream in attempt.follower.streams.values()]
    if min(use.samples for use in uses) == 0:
        return ()
    shares: list[Counter[tuple[str, int, str]]] = []
    shown: dict[tuple[str, int, str], ProgramLine] = {}
    for use in uses:
        counts: Counter[tuple[str, int, str]] = Counter()
        for line in use.program_lines:
            place = (line.file, line.line, line.function)
            counts[place] += line.samples
            shown.setdefault(place, line)
        shares.append(counts)
    found = []
    for place, samples in shares[row].items():
        mine = samples / uses[row].samples
        others = [
            counts[place] / use.samples
            for index, (counts, use) in enumerate(zip(shares, uses, strict=True))
            if index != row
        ]
        longer = mine - float(np.median(others))
        if longer > _LINE_FLOOR:
            found.append((shown[place], longer * step_seconds))
    found.sort(key=lambda pair: -pair[1])
    return tuple(found[:_MAX_LINES])


def _awaited_at(attempt: Attempt, row: int) -> str:
    """``all_reduce of 1.2 MB``: where the others wait for the rank most."""
    mine = {what: seconds for (last, what), seconds in attempt.waits.items() if last == row}
    if not mine:
        return ""
    most = max(mine, key=lambda what: mine[what])
    names = {number: name for name, number in attempt.follower.names.calls.items()}
    operation, size = names.get(most, ("", 0))
    return f"{operation} of {format_bytes(size)}" if size else operation
