"""A watched job as a run: the records that launches of the same program as a cell would have left,
so that reports, comparisons, histories and exporters read them.

Each attempt whose steps suffice is a launch of the cell of its number of ranks: as a launch does, it
starts the processes anew, and its first steps count in no figure. An attempt that torchrun ended and
started again counts with what it did until then. A run of the command that failed is a launch
without figures until a later run is added to the job.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from itertools import count
from pathlib import Path

from torchscale.analysis.exchanges.steps import JobSteps
from torchscale.errors import StoreError
from torchscale.features.watch.analysis.script_measurement import ScriptMeasurement
from torchscale.features.watch.ends.record import rank_failure
from torchscale.features.watch.job.attempts import Attempt
from torchscale.features.watch.job.host_load import HostLoadSamples
from torchscale.features.watch.job.job import WatchedJob
from torchscale.features.watch.job.script_records import WATCHED, MeasuredScript
from torchscale.features.watch.job.watched_program import WatchedProgram
from torchscale.launch.collect import collect_launch
from torchscale.launch.judge import EndingKind, LaunchEnding
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.launch.task import LaunchTask
from torchscale.schema.node.environment import Environment
from torchscale.schema.run.experiment_file import PlannedCell
from torchscale.schema.state import State
from torchscale.schema.watch.rank import RankFacts
from torchscale.schema.watch.report import WatchedAttempt, WatchReport
from torchscale.store.run_folder import RunFolder
from torchscale.util.files import atomic_write_model, make_directory
from torchscale.worker.watch import clock

_IN_ORDER = {0, 128 + signal.SIGTERM, 128 + signal.SIGINT}
"""Exit codes of a job that has not failed. What one did until somebody ended it counts."""
_MOST_LAUNCHES = 5
"""Attempts of a run of the command that are kept, the last ones: each holds up to 20,000 steps, with
eight ranks 12 MB, and a job may start again hundreds of times."""
_MOST_NAMED = 8
"""Ranks and hosts in a reason."""


@dataclass
class _AttemptSteps:
    """Steps of an attempt, and which of them are measured."""

    measurement: ScriptMeasurement
    steps: list[JobSteps] = field(default_factory=list)

    def take(self, steps: JobSteps) -> None:
        if self.measurement.ended_by is None:
            self.steps.append(steps)
            self.measurement.add(steps.wall)

    @property
    def suffice(self) -> bool:
        """Whether some were measured; asked once the attempt is over."""
        self.measurement.end()
        return self.measurement.ended_by is not None


class WatchedRun:
    """Takes the steps of a job while it is watched, and writes its run folder afterwards."""

    def __init__(self, command: Sequence[str]) -> None:
        self._program = WatchedProgram(command)
        self._taken: dict[int, _AttemptSteps] = {}
        self._load = HostLoadSamples()
        self._started = clock.now()

    def take(self, attempt: int, steps: JobSteps) -> None:
        """The next steps of all ranks of an attempt."""
        if attempt not in self._taken:
            self._begin(attempt)
        self._taken[attempt].take(steps)

    def _begin(self, attempt: int) -> None:
        """Make room for an attempt: those before it are over."""
        sufficient = [number for number, taken in self._taken.items() if taken.suffice]
        self._taken = {
            number: self._taken[number] for number in sufficient[-(_MOST_LAUNCHES - 1) :]
        }
        self._taken[attempt] = _AttemptSteps(ScriptMeasurement(self._program.rule, "all"))

    def look(self, job: WatchedJob) -> None:
        """Read the host, while the job runs."""
        self._load.sample([stream.facts.pid for stream in job.streams.values()])

    def write(
        self, directory: Path, job: WatchedJob, report: WatchReport, environment: Environment
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
        code = report.exit_code or 0
        failed = code not in _IN_ORDER
        over = attempts[:-1] if failed else attempts
        measured = [attempt for attempt in over if not self._shortfall(attempt, attempts)]
        shown = measured
        if failed or not measured:
            shown = [*measured, attempts[-1]]
        cells = [self._program.cell(_facts(attempt).world_size) for attempt in shown]
        _set_aside_unmeasured(directory)
        threads = _facts(shown[-1]).threads or 1
        file = self._program.experiment_file(cells, environment, _utc(self._started), threads)
        folder = RunFolder.create(directory, file)
        if not measured and not failed and _is_measured(folder, cells[-1]):
            return folder
        for attempt, cell in zip(shown, cells, strict=True):
            is_last = attempt is shown[-1]
            launch = _Launch(
                attempt,
                cell,
                report,
                carries_report=is_last,
                exit_code=code if failed and is_last else 0,
                shortfall="" if attempt in measured else self._shortfall(attempt, attempts),
            )
            self._write_launch(folder, launch)
        return folder

    def _write_launch(self, folder: RunFolder, launch: _Launch) -> None:
        cell, streams = launch.cell, launch.attempt.follower.streams
        number = next(
            number for number in count() if not folder.launch_directory(cell, number).exists()
        )
        directory = folder.begin_launch(cell, number)
        if launch.carries_report:
            make_directory(directory / WATCHED)
            atomic_write_model(directory / WATCHED / "watch.json", launch.report, durable=False)
        facts = _facts(launch.attempt)
        task = LaunchTask(
            cell=cell,
            launch=number,
            device="cpu" if facts.device == "cpu" else "cuda",
            threads_per_rank=facts.threads or 1,
            started_at=launch.began,
            collective_timeout_seconds=0.0,
        )
        atomic_write_model(directory / "task.json", task, durable=False)
        if not launch.exit_code and not launch.shortfall:
            for stream in streams.values():
                stream.read_use()
            taken = self._taken[launch.attempt.number]
            MeasuredScript(
                task, taken.measurement, taken.steps, tuple(streams.values()), self._load
            ).write(directory, cell)
        failure = launch.report.failure
        if launch.exit_code and failure is not None:
            error = rank_failure(failure, clock.now())
            atomic_write_model(directory / f"error-rank-{error.rank}.json", error, durable=False)
        ending = LaunchEnding(
            EndingKind.FINISHED,
            launch.exit_code,
            "",
            program=self._program.name,
            shortfall="" if launch.exit_code else launch.shortfall,
        )
        record = collect_launch(
            task,
            directory,
            ending,
            command=self._program.command,
            started_at=_utc(launch.began),
            seconds=launch.seconds,
            oom_kills=0,
        )
        folder.finish_launch(cell, record)

    def _shortfall(self, attempt: Attempt, attempts: Sequence[Attempt]) -> str:
        """Why the steps of an attempt make no figures; empty where they do."""
        follower, world_size = attempt.follower, _facts(attempt).world_size
        if follower.round is not None:
            return "no optimizer of torch stepped in it: what was counted are rounds of collectives"
        if len(follower.streams) < world_size:
            return _missing_ranks(attempt, world_size)
        taken = self._taken.get(attempt.number)
        if taken is not None and taken.suffice:
            return ""
        if len(attempts) == 1:
            return f"it made {_steps(attempt)} steps, too few to measure"
        steps = ", ".join(str(_steps(one)) for one in attempts[-_MOST_NAMED:])
        return f"none of its {len(attempts)} attempts made enough steps to measure: {steps}"


@dataclass(frozen=True)
class _Launch:
    """An attempt as it is written.

    Attributes:
        attempt: Read to its end.
        cell: Of its number of ranks.
        report: On the whole job.
        carries_report: Whether the report goes with it.
        exit_code: Of the command, where it failed in this attempt; else 0.
        shortfall: Why its steps make no figures; empty where they do.
    """

    attempt: Attempt
    cell: TrainingCell
    report: WatchReport
    carries_report: bool
    exit_code: int
    shortfall: str

    @property
    def _known(self) -> WatchedAttempt | None:
        numbers = {one.number: one for one in self.report.attempts}
        return numbers.get(self.attempt.number)

    @property
    def began(self) -> float:
        """Seconds since the epoch."""
        if self._known is not None:
            return self._known.began
        return _facts(self.attempt).began

    @property
    def seconds(self) -> float:
        """From its beginning to its last sign of life."""
        if self._known is None:
            return 0.0
        return max(0.0, self._known.last_seen - self._known.began)


def _facts(attempt: Attempt) -> RankFacts:
    """Of its first rank."""
    return next(iter(attempt.follower.streams.values())).facts


def _steps(attempt: Attempt) -> int:
    return 0 if attempt.clock is None else attempt.clock.steps


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
    """Move launches without figures of earlier runs to quarantine: the job has gone on since.

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
            if record.state is not State.OK:
                folder.set_aside(planned.cell, record.launch, "replaced")


def _is_measured(folder: RunFolder, cell: TrainingCell) -> bool:
    return bool(folder.load_cell(PlannedCell(cell=cell))[0].launches)


def _utc(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="seconds")
