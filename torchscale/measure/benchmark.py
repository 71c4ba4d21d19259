"""Measure an experiment: config → plan → sweep → run folder and summary."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from torchscale.analysis.summary.conditions import unlike_before
from torchscale.analysis.summary.run import RunSummary
from torchscale.config.choices import Rerun
from torchscale.config.experiment import Experiment
from torchscale.config.secrets import hidden_environment
from torchscale.door import Slot
from torchscale.errors import ExitCode, MachineError, StoreError
from torchscale.launch.agents.forker import AgentForker
from torchscale.launch.control import StopRequest
from torchscale.launch.machine import MachineDetection
from torchscale.launch.prediction import predict_cells
from torchscale.measure.checks import checked
from torchscale.measure.context import PlannedRun, measuring, plan_run, sweep_exit_code
from torchscale.measure.listener import listening
from torchscale.measure.nodes import ClusterNode, leading
from torchscale.measure.profiling import CellProfiler, cell_profiler
from torchscale.measure.sweep import Sweep, SweepExports
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
from torchscale.schema.run.experiment_file import ExperimentFile
from torchscale.schema.state import State
from torchscale.store.changes import launch_ends
from torchscale.store.locations import default_directory
from torchscale.store.resume import refuse_other_experiment
from torchscale.store.run_folder import RunFolder
from torchscale.util.words import listed, plural

_EXPORTS: Slot[Callable[[Experiment, Path, Observer, StopRequest], SweepExports]] = Slot(
    "sweep exports"
)
PREDICTION_SECONDS = 30.0
"""Bound on predicting memory in a dry run: a user waits about that long for a plan. Later cells get
no prediction."""


@dataclass(frozen=True)
class BenchmarkOutcome:
    """What a sweep left behind.

    Attributes:
        directory: The run folder.
        summary: Summary of everything in it.
        interrupted: Whether Ctrl-C or TERM ended the sweep before it was complete.
    """

    directory: Path
    summary: RunSummary
    interrupted: bool

    @property
    def exit_code(self) -> ExitCode:
        """130 interrupted, 1 if any cell failed, else 0."""
        return sweep_exit_code(self._states(), interrupted=self.interrupted)

    @property
    def has_failed(self) -> bool:
        """Whether any cell failed."""
        return any(state.has_failed for state in self._states())

    def _states(self) -> Iterator[State]:
        return (cell.state for cell in self.summary.everything)


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
    detection: MachineDetection | None = None,
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


def benchmark(
    experiment: Experiment,
    *,
    output_dir: Path | None = None,
    rerun: Rerun | None = None,
    observer: Observer = SILENT,
    node: ClusterNode | None = None,
    detection: MachineDetection | None = None,
    ahead: AgentForker | None = None,
) -> BenchmarkOutcome:
    """Measure what is still to be measured of an experiment; over several nodes as the
    first of them.

    Launches that are complete in ``output_dir`` are kept. In the main thread, Ctrl-C and TERM stop
    the sweep after the running launch is ended; everything measured until then is kept.

    Args:
        experiment: What to measure.
        output_dir: The run folder; ``results/<experiment_name>`` by default.
        rerun: Which complete launches are measured again.
        observer: Shows messages and launches.
        node: The first of several nodes; ``None`` for this machine alone.
        detection: Detection of this machine, started before; by default it is started here.
        ahead: The process for its launches, if one was started before.

    Raises:
        UsageError: the address for the other nodes cannot be used.
        MachineError: this machine can run none of the cells, or the nodes do not fit together.
        StoreError: the folder holds another experiment, or another torchscale writes to it.
        OutputError: the folder cannot be written.
    """
    directory = (
        output_dir if output_dir is not None else default_directory(experiment.experiment_name)
    )
    planned = plan_run(experiment, observer, detection=detection)
    plan = planned.plan
    if not plan.to_run:
        raise MachineError(
            f"this machine can run none of {plural(len(plan.cells), 'cell')}; the first: "
            f"{plan.cells[0].skip_reason}",
            hint="`torchscale benchmark --dry-run` shows the reason of each",
        )
    repeats = experiment.benchmark.repeats
    with measuring(directory) as stop:
        folder = RunFolder.create(directory, planned.experiment_file())
        with leading(node, planned, stop, observer) as nodes:
            sweep = Sweep(experiment, plan, folder, nodes, ahead)
            pending = sweep.prepare(rerun)
            for note in sweep.notes:
                observer.note(f"warning: {note}")
            observer.note(_announcement(planned, len(pending)))
            _warn_of_other_conditions(folder.experiment, planned, len(pending), observer)
            observer.detail(f"run folder: {directory}")
            with listening(observer, plan.device, len(pending), repeats) as listener:
                profiler = _profiler(planned, observer)
                exports = _exports(experiment, directory, observer, stop)
                summary = sweep.run(pending, listener, stop, profiler, exports)
            if (
                profiler is not None
                and not stop.asked
                and not any(cell.profile for cell in summary.cells)
            ):
                observer.note(f"profiling: {_why_no_profile(experiment, sweep.recorded)}")
            outcome = BenchmarkOutcome(directory, summary, stop.asked)
            if nodes is not None:
                nodes.conclude(outcome.exit_code, stop.asked)
            return outcome


def _why_no_profile(experiment: Experiment, recorded: int) -> str:
    """Why a sweep has no recording that could be analyzed, of the ``recorded`` that it made."""
    if recorded:
        return f"none of {plural(recorded, 'recording')} could be analyzed"
    if experiment.profiling.trigger == "sync_stall_detection":
        return (
            "no cell was recorded, since no bottleneck was found in any; --profiling.trigger=always "
            "records all"
        )
    return "no cell was recorded, since none that was measured matches profiling.trigger"


def _exports(
    experiment: Experiment, directory: Path, observer: Observer, stop: StopRequest
) -> SweepExports | None:
    """Writes what ``export`` asks for; ``None`` where it asks for nothing."""
    if not experiment.export.places:
        return None
    return _EXPORTS["export"](experiment, directory, observer, stop)


def _profiler(planned: PlannedRun, observer: Observer) -> CellProfiler | None:
    """Records the cells that ``profiling.trigger`` asks for; ``None`` where it asks for none, or
    none can be recorded: what can be measured is measured."""
    profiler, notes = cell_profiler(planned)
    for text in notes:
        observer.note(f"warning: {text}")
    return profiler


def _announcement(planned: PlannedRun, pending: int) -> str:
    """``demo: 10 cells, 10 launches; 5 skipped (see --dry-run), on CPU (…)``."""
    plan, experiment = planned.plan, planned.experiment
    launches = len(plan.to_run) * experiment.benchmark.repeats
    skipped = len(plan.cells) - len(plan.to_run)
    done = f", {launches - pending} done before" if pending < launches else ""
    left_out = f"; {skipped} skipped (see --dry-run)" if skipped else ""
    amount = f"{plural(len(plan.to_run), 'cell')}, {plural(launches, 'launch')}"
    return f"{experiment.experiment_name}: {amount}{done}{left_out}, on {planned.device_label}"


def _warn_of_other_conditions(
    file: ExperimentFile, planned: PlannedRun, pending: int, observer: Observer
) -> None:
    """Where new launches join launches that were measured under other conditions."""
    changed = unlike_before(file.sessions)
    launches = len(planned.plan.to_run) * planned.experiment.benchmark.repeats
    if changed and 0 < pending < launches:
        observer.note(
            "warning: earlier launches in this folder were measured under other conditions "
            f"({listed(changed)} changed); the report marks them. Use another --output-dir to keep "
            "them apart"
        )


def _forecast(planned: PlannedRun, predict: bool, observer: Observer) -> Forecast:
    """Predicted memory of the plan's training cells; empty without ``predict``."""
    cells = [cell for cell in map(training_workload, planned.plan.to_run) if cell is not None]
    with observer.status("Predicting memory"):
        predicted = _predicted(planned, cells) if predict and cells else {}
    return Forecast(predicted, planned.device_memory_bytes, shared=planned.plan.device == "cpu")


def _predicted(planned: PlannedRun, cells: Sequence[TrainingCell]) -> dict[str, PredictedMemory]:
    known = [cell for cell in cells if cell.script is None]
    if not known:
        return {}
    return predict_cells(
        known, timeout_seconds=PREDICTION_SECONDS, env=hidden_environment(planned.experiment)
    )
