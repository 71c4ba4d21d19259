"""A watched job as a run: the records that launches of the same program as a cell would have left,
so that reports, comparisons, histories and exporters read them.

Each attempt with steps that count is a launch of the cell of its number of ranks: as a launch does,
it starts the processes anew. An attempt that torchrun ended and started again counts with what it
did until then, and so does one that failed. What limits the job, and its speed, is in
``watch.json`` alone. A run of the command that failed is set aside when a later one is added to the
job.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timezone
from itertools import count
from pathlib import Path

from torchscale.errors import StoreError
from torchscale.features.watch.ends.record import rank_failure
from torchscale.features.watch.job.attempts import Attempt
from torchscale.features.watch.job.job import WatchedJob
from torchscale.features.watch.job.measured_job import measured_job
from torchscale.features.watch.job.script_records import MeasuredProgram
from torchscale.features.watch.job.settled import LEFT_OUT
from torchscale.features.watch.job.watched_program import WatchedProgram
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.launch.failure import RankFailure
from torchscale.schema.launch.record import LaunchRecord
from torchscale.schema.launch.training import TrainingResult
from torchscale.schema.node.environment import Environment
from torchscale.schema.run.experiment_file import PlannedCell
from torchscale.schema.state import State
from torchscale.schema.watch.failure import FailureCause
from torchscale.schema.watch.rank import RankFacts
from torchscale.schema.watch.report import JobState, WatchReport
from torchscale.store.run_folder import RunFolder
from torchscale.worker.watch import clock

_MOST_LAUNCHES = 5
"""Attempts of a run of the command that are kept, the last ones: each holds up to 16,384 steps,
with eight ranks 12 MB, and a job may start again hundreds of times."""
_MOST_NAMED = 8
"""Ranks and hosts in a reason."""
_STATES = {
    FailureCause.SIGNAL: State.KILLED,
    FailureCause.OUT_OF_MEMORY: State.OOM,
    FailureCause.OOM_KILL: State.OOM,
}
_FIRST_SIGNAL = 128
"""An exit code beyond it is of a signal."""


def write_run(
    directory: Path, job: WatchedJob, report: WatchReport, environment: Environment
) -> RunFolder:
    """Write ``experiment.json`` and the launches of this run beside ``watch.json``. Launches of
    earlier runs stay, but for those without figures, which this run takes the place of.

    Raises:
        StoreError: no rank reported, so that there is nothing to record, or the folder is of
            another machine or version of torch.
        OutputError: the folder cannot be written.
    """
    attempts = [attempt for attempt in job.attempts if attempt.follower.streams]
    if not attempts:
        raise StoreError("no rank reported")
    program = WatchedProgram(job.command)
    ended = [_Ended(one, _measured(one, job), program) for one in attempts]
    shown = [one for one in ended if not one.shortfall][-_MOST_LAUNCHES:]
    has_figures, last = bool(shown), ended[-1]
    if last not in shown and (report.state is JobState.FAILED or not shown):
        shown.append(last)
    _set_aside_unmeasured(directory)
    cells = [one.cell for one in shown]
    threads = _facts(last.attempt).threads or 1
    began = _utc(min(_began(one.attempt, report) for one in ended))
    file = program.experiment_file(cells, environment, began, threads)
    folder = RunFolder.create(directory, file)
    is_done = report.state is not JobState.FAILED
    if is_done and not has_figures and _is_measured(folder, last.cell):
        return folder
    for one in shown:
        one.write(folder, report, is_last=one is last)
    return folder


def _measured(attempt: Attempt, job: WatchedJob) -> MeasuredProgram | None:
    for stream in attempt.follower.streams.values():
        job.guarded(stream.read_use)
    return measured_job(attempt, job.load)


@dataclass(frozen=True)
class _Ended:
    """An attempt of which all is read.

    Attributes:
        attempt: It.
        measured: Its steps that count.
        program: Whose.
    """

    attempt: Attempt
    measured: MeasuredProgram | None
    program: WatchedProgram

    @property
    def cell(self) -> TrainingCell:
        """Of its number of ranks."""
        return self.program.cell(_facts(self.attempt).world_size)

    @property
    def shortfall(self) -> str:
        """Why its steps make no figures; empty where they do."""
        follower, world_size = self.attempt.follower, self.cell.world_size
        if follower.round is not None:
            return "no optimizer of torch stepped in it: what was counted are rounds of collectives"
        if len(follower.streams) < world_size:
            return _missing_ranks(self.attempt, world_size)
        if self.measured is None:
            steps = 0 if self.attempt.clock is None else self.attempt.clock.steps
            return f"no figures: it made {steps} steps, and the first {LEFT_OUT} count in none"
        return ""

    def write(self, folder: RunFolder, report: WatchReport, *, is_last: bool) -> None:
        """As the next launch of its cell.

        Raises:
            OutputError: a file cannot be written.
        """
        cell, result = self.cell, TrainingResult()
        numbers = (n for n in count() if not folder.launch_directory(cell, n).exists())
        number = next(numbers)
        directory = folder.begin_launch(cell, number)
        state, reason = State.OK, self.shortfall
        if self.measured is not None and not reason:
            result = self.measured.write(directory)
        failures: tuple[RankFailure, ...] = ()
        if is_last and report.state is JobState.FAILED:
            state, reason = _failure(self.program.name, report)
            if report.failure is not None:
                failures = (rank_failure(report.failure, clock.now()),)
        began = _began(self.attempt, report)
        seen = [one.last_seen for one in report.attempts if one.number == self.attempt.number]
        record = LaunchRecord(
            cell_id=cell.id,
            launch=number,
            state=state,
            reason=reason,
            started_at=_utc(began),
            seconds=max(0.0, *seen, began) - began,
            command=self.program.command,
            failures=failures,
            exit_code=report.exit_code if is_last else None,
            payload=result,
        )
        folder.finish_launch(cell, record)


def _failure(name: str, report: WatchReport) -> tuple[State, str]:
    """State and reason of a program that failed."""
    code, failure = report.exit_code or 0, report.failure
    if failure is not None:
        return _STATES.get(failure.cause, State.CRASHED), failure.summary
    try:
        ended_by = signal.Signals(code - _FIRST_SIGNAL).name
    except ValueError:
        return State.CRASHED, f"{name} exited with {code}"
    return State.KILLED, f"{name} was ended by {ended_by}"


def _facts(attempt: Attempt) -> RankFacts:
    """Of its first rank."""
    return next(iter(attempt.follower.streams.values())).facts


def _began(attempt: Attempt, report: WatchReport) -> float:
    """Seconds since the epoch."""
    known = {one.number: one.began for one in report.attempts}
    return known.get(attempt.number, _facts(attempt).began)


def _missing_ranks(attempt: Attempt, world_size: int) -> str:
    """Which ranks wrote here, and of which hosts: those of others have a folder of their own, or
    none."""
    streams = attempt.follower.streams
    hosts = sorted({stream.facts.host for stream in streams.values()})
    return (
        f"{len(streams)} of {world_size} ranks wrote here ({_first_of(map(str, streams))} on "
        f"{_first_of(hosts)}), and figures are of all ranks: have the `watch` of every host write "
        "into one shared folder (--output-dir); `torchscale watch` shows these ranks"
    )


def _first_of(names: Iterable[str]) -> str:
    listed = list(names)
    return ", ".join(listed[:_MOST_NAMED]) + ", …" * (len(listed) > _MOST_NAMED)


def _set_aside_unmeasured(directory: Path) -> None:
    """Move launches of earlier runs that failed or have no figures to quarantine: the job has gone
    on since.

    Raises:
        StoreError: what is there is damaged.
        OutputError: they cannot be moved.
    """
    if not (directory / "experiment.json").exists():
        return
    folder = RunFolder.open(directory)
    for planned in folder.experiment.plan:
        cell_run, _ = folder.load_cell(planned)
        for record in cell_run.launches:
            if record.state is not State.OK or not record.payload.ranks:
                folder.set_aside(planned.cell, record.launch, "replaced")


def _is_measured(folder: RunFolder, cell: TrainingCell) -> bool:
    return bool(folder.load_cell(PlannedCell(cell=cell))[0].launches)


def _utc(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="seconds")
