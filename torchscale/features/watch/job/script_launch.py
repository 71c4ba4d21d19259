"""Launches of a user's own script as a cell: started as the user would start it, with a collector in
each rank, measured from outside, and ended once it is measured."""

from __future__ import annotations

import contextlib
import shlex
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

from torchscale.analysis.exchanges.steps import JobSteps
from torchscale.catalog.model_facts import OptionValue
from torchscale.features.watch.hang.watched_job import ask_starting_ranks
from torchscale.features.watch.job.job import WatchedJob
from torchscale.features.watch.job.job_measurement import JobMeasurement
from torchscale.features.watch.job.script_command import (
    script_command,
    script_environment,
    script_of,
)
from torchscale.features.watch.job.script_records import WATCHED
from torchscale.launch.collect import collect_launch
from torchscale.launch.control import LaunchLimits, StopRequest
from torchscale.launch.judge import EndingKind, LaunchEnding
from torchscale.launch.oom import OomKills
from torchscale.launch.telemetry import sampling
from torchscale.launch.torchrun import Watch, flatten_logs
from torchscale.schema.launch.progress import Phase, Progress
from torchscale.schema.launch.record import LaunchRecord
from torchscale.schema.launch.task import LaunchTask
from torchscale.store.locations import WATCH_REPORT
from torchscale.util.files import atomic_write_model, make_directory
from torchscale.util.redaction import redact_arguments
from torchscale.worker.watch import clock

_READ_SECONDS = 0.5
"""Between two looks at the ranks' files, which are written as often."""


def run_script(
    task: LaunchTask,
    directory: Path,
    *,
    limits: LaunchLimits,
    extra_env: Mapping[str, str],
    hidden: Mapping[str, OptionValue],
    stop: StopRequest,
    on_progress: Callable[[Progress], None],
) -> LaunchRecord:
    """Run the script of a task's cell, with its files in ``directory``. Returns the record. Failures
    of the script do not raise: they are the record's state.

    Args:
        task: Of a training cell with a script.
        directory: Directory of the launch.
        limits: Bounds of the launch.
        extra_env: Variables of the user's, which win.
        hidden: What stands in place of a secret → the value.
        stop: Whether the user wants to stop.
        on_progress: Called with what the launch does.

    Raises:
        OutputError: ``directory`` cannot be written.
    """
    atomic_write_model(directory / "task.json", task, durable=False)
    command = script_command(task, directory, hidden)
    launch = _ScriptLaunch(task, directory, command, limits)
    started_at = datetime.fromtimestamp(task.started_at, timezone.utc).isoformat(timespec="seconds")
    clock = time.monotonic()
    kills = OomKills()
    with sampling(directory, task.telemetry_seconds, task.gpu_uuids):
        watch = Watch(
            directory,
            limits,
            stop,
            on_progress,
            world_size=task.cell.world_size,
            inspect=launch.inspect,
        )
        ending = watch.run(command, launch.environment(extra_env), launch.is_over)
    flatten_logs(directory)
    ending = launch.conclude(ending)
    return collect_launch(
        task,
        directory,
        ending,
        command=redact_arguments(command),
        started_at=started_at,
        seconds=time.monotonic() - clock,
        oom_kills=kills.since_start(),
    )


class _ScriptLaunch:
    """A launch while it runs: reads what the ranks write, says when it is measured, and why it
    hangs."""

    def __init__(
        self, task: LaunchTask, directory: Path, command: list[str], limits: LaunchLimits
    ) -> None:
        self._task, self._directory = task, directory
        self._cell, self._script = script_of(task)
        self._watched = directory / WATCHED
        make_directory(self._watched)
        self._program = Path(shlex.split(self._script.text)[0]).name
        self._budget_seconds = limits.budget_seconds
        self._measurement = JobMeasurement(self._cell.measurement, self._script.steps)
        clock.begin()
        self._job = WatchedJob(
            self._watched.absolute(),
            command,
            task.started_at,
            on_steps=self._take,
            has_optimizer=True,
        )
        self._read_at, self._moments = 0.0, 0
        self._is_ended = False
        self._mismatch = ""

    def environment(self, extra: Mapping[str, str]) -> dict[str, str]:
        """Variables of the ranks, with ``extra``."""
        return script_environment(self._task, self._watched, extra)

    def is_over(self) -> bool:
        """Read what the ranks wrote. Whether the script is measured and to be ended, or does not
        do what its cell asks for."""
        now = time.monotonic()
        if now - self._read_at >= _READ_SECONDS:
            self._read_at = now
            self._read()
        measured = self._measurement.ended_by is not None and self._script.steps != "all"
        self._is_ended = measured or bool(self._mismatch)
        return self._is_ended

    def inspect(self, pid: int, moved_seconds_ago: float | None) -> None:
        """Ask the ranks where they are; what they say goes to where other launches have it."""
        if not self._job.streams:
            ask_starting_ranks(self._directory, pid, self._cell.world_size)
            return
        self._job.guarded(lambda: self._job.look_why(moved_seconds_ago))
        for path in sorted((self._watched / "hang").glob("*")):
            with contextlib.suppress(OSError):
                path.replace(self._directory / path.name)

    def conclude(self, ending: LaunchEnding) -> LaunchEnding:
        """After the end: the records of the ranks, where they were measured, else what is missing."""
        self._job.guarded(self._job.advance)
        ending = replace(ending, program=self._program, shortfall="")
        if self._script.form != "command":
            ending = replace(ending, program="torchrun")
        by_itself = ending.kind is EndingKind.FINISHED and not self._is_ended
        if by_itself and ending.exit_code == 0:
            self._measurement.end()
        if ending.kind is EndingKind.FINISHED and (self._is_ended or ending.exit_code == 0):
            shortfall = self._shortfall()
            if not shortfall:
                self._write_records()
            ending = replace(ending, shortfall=shortfall)
        self._write_report(ending)
        return ending

    def _write_records(self) -> None:
        measured = self._measurement.program(self._job, self._task)
        measured.write(self._directory)

    def _write_report(self, ending: LaunchEnding) -> None:
        """``watch.json``, and no moments of the ranks any more."""
        code = None if self._is_ended else ending.exit_code
        self._job.guarded(self._job.judge)
        self._job.guarded(
            lambda: atomic_write_model(
                self._watched / WATCH_REPORT,
                self._job.report(clock.now(), code, is_over=True),
                durable=False,
            )
        )
        for path in self._watched.glob("ranks/*/*.bin"):
            with contextlib.suppress(OSError):
                path.unlink()

    def _read(self) -> None:
        self._job.guarded(self._job.advance)
        self._job.read_load()
        self._mismatch = self._mismatch or self._other_ranks()
        if self._job.moments > self._moments:
            self._moments = self._job.moments
            self._tell()

    def _take(self, attempt: int, steps: JobSteps) -> None:
        """The next steps of all ranks; of one start alone."""
        if attempt or self._measurement.ended_by is not None:
            return
        if self._budget_seconds is not None and not self._measurement.warmup_steps:
            spent = clock.now() - self._task.started_at
            self._measurement.set_budget(max(0.0, self._budget_seconds - spent))
        self._measurement.take(attempt, steps)

    def _other_ranks(self) -> str:
        """How the ranks differ from those of the cell; empty where they do not."""
        streams = self._job.streams
        sizes = {stream.facts.world_size for stream in streams.values()}
        other = sorted(sizes - {self._cell.world_size})
        if other:
            return (
                f"its ranks are {other[0]}, and the cell is of {self._cell.world_size}: start as "
                "many as {world_size} says"
            )
        if self._job.restarts:
            return "its ranks were started again: a measurement needs one start"
        return ""

    def _shortfall(self) -> str:
        """Why what ended in order was not measured; empty where it was."""
        if self._mismatch:
            return self._mismatch
        streams, measurement = self._job.streams, self._measurement
        if not streams:
            return "; ".join(self._job.report(clock.now()).notes)
        if self._job.problem:
            return f"what its ranks wrote could not be read: {self._job.problem}"
        steps = self._job.steps
        if not steps:
            return (
                "no step was seen: no optimizer of torch (torch.optim) stepped in it, so that its "
                "steps are not known"
            )
        if len(streams) < self._cell.world_size:
            return f"{len(streams)} of {self._cell.world_size} ranks made steps"
        if measurement.ended_by is None:
            rule = self._cell.measurement
            return (
                f"it ended after {steps} steps, before the warm-up (at least {rule.warmup_steps} "
                f"steps and {rule.warmup_seconds:g} s) and a batch of measured steps were over; let "
                "it make more steps, or lower benchmark.warmup_steps and benchmark.warmup_seconds"
            )
        return ""

    def _tell(self) -> None:
        """A line of progress, as ranks of built-in models write it."""
        measurement = self._measurement
        phase: Phase = "starting"
        if measurement.first is not None:
            phase = "measuring"
        elif self._job.steps:
            phase = "warming up"
        progress = Progress(
            phase=phase,
            steps=measurement.measured or self._job.steps,
            samples_per_second=self._rate(),
        )
        with contextlib.suppress(OSError), (self._directory / "progress.jsonl").open("a") as file:
            file.write(progress.model_dump_json() + "\n")

    def _rate(self) -> float | None:
        step = self._measurement.step_seconds
        if step is None or self._cell.batch_size is None:
            return None
        return self._cell.global_batch_size / step
