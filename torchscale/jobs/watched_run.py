"""A watched job as a run: the record that a launch of the same program as a cell would have left,
so that reports, comparisons, histories and exporters read it."""

from __future__ import annotations

import hashlib
import shlex
import signal
import time
from collections.abc import Sequence
from datetime import datetime, timezone
from itertools import count
from pathlib import Path

from torchscale.analysis.job.steps import StepTimes
from torchscale.analysis.training.script_measurement import ScriptMeasurement
from torchscale.config.experiment import Experiment
from torchscale.config.load import load_experiment_from
from torchscale.config.script import MAX_CHARACTERS
from torchscale.config.strategy import OwnStrategy
from torchscale.errors import StoreError
from torchscale.jobs.host_load import HostLoadSamples
from torchscale.jobs.job import WatchedJob
from torchscale.jobs.script_records import WATCHED, MeasuredScript
from torchscale.launch.collect import collect_launch
from torchscale.launch.judge import Ending, EndingKind
from torchscale.schema.cells.script import OWN, Script
from torchscale.schema.cells.training import Measurement, TrainingCell
from torchscale.schema.launch.task import LaunchTask
from torchscale.schema.node.environment import Environment
from torchscale.schema.run.experiment_file import ExperimentFile, PlannedCell
from torchscale.schema.watch.report import WatchReport
from torchscale.store.run_folder import RunFolder
from torchscale.util.files import atomic_write_model, make_directory
from torchscale.util.redaction import redact_arguments, redact_model
from torchscale.util.text import program_name, shown_bytes
from torchscale.version import __version__

_WARMUP_STEPS = 10
"""First steps that no figure counts, as those of the report of a watched job."""
_STOPPED = {128 + signal.SIGTERM, 128 + signal.SIGINT}
"""Exit codes of a job that somebody ended: what it did until then counts."""


class WatchedRun:
    """Takes the steps of a job while it is watched, and writes its run folder afterwards."""

    def __init__(self, command: Sequence[str]) -> None:
        words = [shown_bytes(word) for word in command] or ["program"]
        self._command = redact_arguments(words)
        self._name = program_name(self._command)
        self._experiment = _experiment(self._command, self._name)
        self._measurement = ScriptMeasurement(self._rule, "all")
        self._steps: list[StepTimes] = []
        self._load = HostLoadSamples()
        self._started = time.time()

    def take(self, steps: StepTimes) -> None:
        """The next steps of all ranks."""
        if self._measurement.ended_by is None:
            self._steps.append(steps)
            self._measurement.add(steps.wall)

    def look(self, job: WatchedJob) -> None:
        """Read the host, while the job runs."""
        self._load.sample([stream.facts.pid for stream in job.streams.values()])

    def write(
        self, directory: Path, job: WatchedJob, report: WatchReport, environment: Environment
    ) -> RunFolder:
        """Write ``experiment.json`` and a launch of the cell beside ``watch.json``. Runs that are
        added to a job are further launches.

        Raises:
            StoreError: no rank reported, so that there is nothing to record.
            OutputError: the folder cannot be written.
        """
        streams = job.streams
        if not streams:
            raise StoreError("no rank reported")
        facts = next(iter(streams.values())).facts
        cell = self._cell(facts.world_size)
        folder = RunFolder.create(directory, self._file(cell, environment, facts.threads or 1))
        number = next(
            number for number in count() if not folder.launch_directory(cell, number).exists()
        )
        launch = folder.begin_launch(cell, number)
        make_directory(launch / WATCHED)
        atomic_write_model(launch / WATCHED / "watch.json", report, durable=False)
        task = LaunchTask(
            cell=cell,
            launch=number,
            device="cpu" if facts.device == "cpu" else "cuda",
            threads_per_rank=facts.threads or 1,
            started_at=self._started,
            collective_timeout_seconds=0.0,
        )
        atomic_write_model(launch / "task.json", task, durable=False)
        self._measurement.end()
        failed = bool(report.exit_code) and report.exit_code not in _STOPPED
        shortfall = "" if failed else self._shortfall(job, facts.world_size)
        if not failed and not shortfall:
            for stream in streams.values():
                stream.read_use()
            MeasuredScript(
                task, self._measurement, self._steps, tuple(streams.values()), self._load
            ).write(launch, cell)
        ending = Ending(
            EndingKind.FINISHED,
            report.exit_code if failed else 0,
            "",
            program=self._name,
            shortfall=shortfall,
        )
        record = collect_launch(
            task,
            launch,
            ending,
            command=self._command,
            started_at=report.started_at,
            seconds=report.seconds,
            oom_kills=0,
        )
        folder.finish_launch(cell, record)
        return folder

    @property
    def _rule(self) -> Measurement:
        fields = set(Measurement.model_fields) - {"epochs", "warmup_epochs"}
        return Measurement(**self._experiment.benchmark.model_dump(include=fields))

    def _cell(self, world_size: int) -> TrainingCell:
        return TrainingCell(
            model=self._name,
            batch_size=None,
            scaling="weak",
            world_size=world_size,
            device="auto",
            precision=OWN,
            strategy=OwnStrategy(),
            optimizer=OWN,
            learning_rate=None,
            channels_last=False,
            compile=False,
            seed=self._experiment.training.seed,
            cudnn_benchmark=False,
            data_source=OWN,
            num_samples=0,
            measurement=self._rule,
            script=Script(form="watched", text=_text(self._command), steps="all"),
        )

    def _file(self, cell: TrainingCell, environment: Environment, threads: int) -> ExperimentFile:
        created = datetime.fromtimestamp(self._started, timezone.utc).isoformat(timespec="seconds")
        file = ExperimentFile(
            tool_version=__version__,
            config=self._experiment,
            plan_hash=hashlib.sha256(cell.id.encode()).hexdigest()[:16],
            plan=(PlannedCell(cell=cell),),
            environment=environment.model_copy(update={"command": self._command}),
            created_at=created,
            threads_per_rank=threads,
        )
        return redact_model(file)

    def _shortfall(self, job: WatchedJob, world_size: int) -> str:
        """Why the steps make no figures; empty where they do."""
        if job.restarts:
            return (
                f"the job was started again {job.restarts} times, and its steps are not of one "
                "launch; `torchscale watch` shows them"
            )
        if job.counts_rounds:
            return "no optimizer of torch stepped in it: what was counted are rounds of collectives"
        if len(job.streams) < world_size:
            return f"{len(job.streams)} of {world_size} ranks wrote here"
        if self._measurement.ended_by is None:
            return f"it made {job.steps} steps, too few to measure"
        return ""


def _text(command: Sequence[str]) -> str:
    """The command line, as much of it as a cell holds."""
    words = list(command)
    while len(words) > 1 and len(shlex.join(words)) > MAX_CHARACTERS:
        words = words[: len(words) // 2]
    text = shlex.join(words)
    return text if len(text) <= MAX_CHARACTERS else "program"


def _experiment(command: Sequence[str], name: str) -> Experiment:
    """A config that says what was watched; no sweep starts it."""
    return load_experiment_from(
        {
            "experiment_name": _safe(f"watch {Path(name).stem}"),
            "models": [{"watched": _text(command)}],
            "benchmark": {"warmup_steps": _WARMUP_STEPS, "warmup_seconds": 0.0},
        }
    )


def _safe(name: str) -> str:
    """A name that a directory may have."""
    kept = "".join(letter if letter.isalnum() or letter in "._ -" else "-" for letter in name)
    return kept.replace("..", "-")[:100].strip(". ")
