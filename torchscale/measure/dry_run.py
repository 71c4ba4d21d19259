"""The plan of an experiment, with what is done and left of it; nothing is measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torchscale.config.choices import Rerun
from torchscale.config.experiment import Experiment
from torchscale.config.secrets import hidden_environment
from torchscale.errors import StoreError
from torchscale.launch.machine import Detection
from torchscale.launch.prediction import predict_cells, predicting
from torchscale.measure.checks import checked
from torchscale.measure.context import PlannedRun, plan_run
from torchscale.measure.profiling import cell_profiler
from torchscale.observer import SILENT, Observer
from torchscale.plan.duration import (
    CellProgress,
    DurationEstimate,
    LaunchEnd,
    cell_progress,
    estimate_seconds,
)
from torchscale.plan.expand import make_plan
from torchscale.plan.memory import Forecast
from torchscale.plan.named_machine import machine_named
from torchscale.schema.cells.kinds import AnyCell, training_workload
from torchscale.schema.cells.memory import PredictedMemory
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.state import State
from torchscale.store.changes import launch_ends
from torchscale.store.locations import default_directory
from torchscale.store.resume import refuse_other_experiment
from torchscale.store.run_folder import RunFolder

PREDICTION_SECONDS = 30.0
"""Bound on predicting memory in a dry run: a user waits about that long for a plan. Later cells get
no prediction."""


@dataclass(frozen=True)
class DryRun:
    """The plan of an experiment, with what is done and left of it.

    Attributes:
        planned: The plan and its machine.
        forecast: Predicted memory.
        directory: Where results would go, or are.
        progress: Progress of every cell to run, in plan order.
        problem: Why the run would be refused in ``directory``; else empty.
        notes: What else a user should know before the run.
    """

    planned: PlannedRun
    forecast: Forecast
    directory: Path
    progress: tuple[CellProgress, ...]
    problem: str = ""
    notes: tuple[str, ...] = ()

    def refuse(self) -> None:
        """Raise what the run itself would be refused with; of a machine that is not here nothing.

        Raises:
            MachineError: this machine can run none of the cells.
            StoreError: ``directory`` holds another experiment.
        """
        if not self.planned.named:
            self.planned.require_cells()
        if self.problem:
            raise StoreError(self.problem)

    @property
    def estimate(self) -> DurationEstimate:
        """About how long the rest takes."""
        experiment = self.planned.experiment
        return estimate_seconds(
            self.progress,
            experiment.benchmark,
            experiment.launch.timeout_seconds,
            self.planned.plan,
        )


def dry_run(
    experiment: Experiment,
    *,
    output_dir: Path | None = None,
    hardware: str | None = None,
    predict: bool = True,
    rerun: Rerun | None = None,
    observer: Observer = SILENT,
    detection: Detection | None = None,
) -> DryRun:
    """Plan an experiment and run nothing.

    Args:
        experiment: What to plan.
        output_dir: Where results would go; what is measured there already is not planned again.
        hardware: A machine to plan for, such as ``8xh100``; by default the machine at hand.
        predict: Whether memory is predicted, for :data:`PREDICTION_SECONDS` at most.
        rerun: Which complete launches would be measured again.
        observer: Shows what takes time.
        detection: Detection of the machine at hand, started before; by default it is started here.

    Raises:
        UsageError: there is no machine of that name.
        MachineError: the machine cannot be examined, or lacks the device that the experiment asks
            for.
        StoreError: ``output_dir`` holds something that cannot be read.
    """
    if hardware is None:
        planned = plan_run(experiment, observer, detection=detection)
    else:
        planned = _plan_for(hardware, experiment, observer)
    directory = (
        output_dir if output_dir is not None else default_directory(experiment.experiment_name)
    )
    repeats = experiment.benchmark.repeats
    progress = tuple(
        cell_progress(cell, _ended(directory, cell), repeats, rerun) for cell in planned.plan.to_run
    )
    problem = "" if hardware else _problem(directory, planned)
    _, notes = cell_profiler(planned)
    return DryRun(
        planned, _forecast(planned, predict, observer), directory, progress, problem, notes
    )


def _plan_for(hardware: str, experiment: Experiment, observer: Observer) -> PlannedRun:
    """The plan for a machine by its name."""
    machine = machine_named(hardware)
    plan = checked(make_plan(experiment, machine), experiment, observer)
    return PlannedRun(experiment, machine, plan, hardware)


def _ended(directory: Path, cell: AnyCell) -> dict[int, LaunchEnd]:
    ends = launch_ends(directory, cell.id)
    known = {state.value for state in State}
    return {
        launch: LaunchEnd(State(state), seconds)
        for launch, (state, seconds) in ends.items()
        if state in known
    }


def _problem(directory: Path, planned: PlannedRun) -> str:
    """Why the run would be refused in ``directory``; empty where it would not."""
    if not (directory / "experiment.json").exists():
        return ""
    try:
        refuse_other_experiment(
            directory, RunFolder.open(directory).experiment, planned.experiment_file()
        )
    except StoreError as error:
        return error.message
    return ""


def _forecast(planned: PlannedRun, predict: bool, observer: Observer) -> Forecast:
    """Predicted memory of the plan's training cells; empty without ``predict``."""
    cells = [cell for cell in map(training_workload, planned.plan.to_run) if cell is not None]
    with observer.status(predicting(PREDICTION_SECONDS)):
        predicted = _predicted(planned, cells) if predict and cells else {}
    return Forecast(predicted, planned.device_memory_bytes, shared=planned.plan.device == "cpu")


def _predicted(planned: PlannedRun, cells: Sequence[TrainingCell]) -> dict[str, PredictedMemory]:
    known = [cell for cell in cells if cell.script is None]
    if not known:
        return {}
    return predict_cells(
        known, timeout_seconds=PREDICTION_SECONDS, env=hidden_environment(planned.experiment)
    )
