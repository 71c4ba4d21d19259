"""Measure an experiment: config → plan → sweep → run folder and summary."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from torchscale.analysis.comparison.conditions import unlike_before
from torchscale.analysis.summary.run import RunSummary
from torchscale.config.choices import ProfileTarget, Rerun
from torchscale.config.experiment import Experiment
from torchscale.errors import ExitCode, MachineError
from torchscale.launch.prediction import predict_cells
from torchscale.plan.forecast import Forecast
from torchscale.report.text.labels import listed
from torchscale.run.cell_profiler import CellProfiler, choose_tool
from torchscale.run.context import RESULTS, PlannedRun, measuring, plan_run, sweep_exit_code
from torchscale.run.observer import SILENT, Observer
from torchscale.run.sweep import Sweep
from torchscale.schema.cells.kinds import training_workload
from torchscale.schema.run.experiment_file import ExperimentFile
from torchscale.schema.state import State
from torchscale.store.run_folder import RunFolder

PREDICTION_SECONDS = 30.0
"""Bound on predicting memory in a dry run: a user waits about that long for a plan. Later cells get no prediction."""


@dataclass(frozen=True)
class BenchmarkOutcome:
    """What a sweep left behind.

    Attributes:
        directory: The run folder.
        summary: Of everything in it.
        interrupted: Whether Ctrl-C or TERM ended the sweep before it was complete.
    """

    directory: Path
    summary: RunSummary
    interrupted: bool

    @property
    def exit_code(self) -> ExitCode:
        """130 interrupted, 1 if any cell failed, else 0."""
        return sweep_exit_code(self._states(), interrupted=self.interrupted)

    def _states(self) -> Iterator[State]:
        return (cell.state for cell in self.summary.everything)


@dataclass(frozen=True)
class DryRun:
    """The plan of an experiment, with predicted memory, and where results would go."""

    planned: PlannedRun
    forecast: Forecast
    directory: Path


def default_directory(experiment: Experiment) -> Path:
    """``results/<experiment_name>``."""
    return RESULTS / experiment.experiment_name


def dry_run(
    experiment: Experiment, *, output_dir: Path | None = None, predict: bool = True, observer: Observer = SILENT
) -> DryRun:
    """Plan an experiment on this machine and run nothing.

    Args:
        experiment: What to plan.
        output_dir: Where results would go.
        predict: Whether memory is predicted, for :data:`PREDICTION_SECONDS` at most.
        observer: Shows what takes time.

    Raises:
        MachineError: the machine cannot be examined.
    """
    planned = plan_run(experiment, observer)
    directory = output_dir if output_dir is not None else default_directory(experiment)
    return DryRun(planned, _forecast(planned, predict, observer), directory)


def benchmark(
    experiment: Experiment,
    *,
    output_dir: Path | None = None,
    rerun: Rerun | None = None,
    observer: Observer = SILENT,
) -> BenchmarkOutcome:
    """Measure what is still to be measured of an experiment.

    Launches that are complete in ``output_dir`` are kept. In the main thread, Ctrl-C and TERM stop the sweep after the
    running launch is ended; everything measured until then is kept.

    Args:
        experiment: What to measure.
        output_dir: The run folder; ``results/<experiment_name>`` by default.
        rerun: Which complete launches are measured again.
        observer: Shows messages and launches.

    Raises:
        MachineError: this machine can run none of the cells.
        StoreError: the folder holds another experiment, or another torchscale writes to it.
        OutputError: the folder cannot be written.
    """
    planned = plan_run(experiment, observer)
    plan = planned.plan
    directory = output_dir if output_dir is not None else default_directory(experiment)
    if not plan.to_run:
        raise MachineError(
            f"this machine can run none of the {len(plan.cells)} cells; the first: {plan.cells[0].skip_reason}",
            hint="`torchscale benchmark --dry-run` shows the reason of each",
        )
    repeats = experiment.benchmark.repeats
    with measuring(directory) as stop:
        folder = RunFolder.create(directory, planned.experiment_file())
        sweep = Sweep(experiment, plan, folder)
        pending = sweep.prepare(rerun)
        observer.note(_announcement(planned, len(pending)))
        _warn_of_other_conditions(folder.experiment, planned, len(pending), observer)
        observer.detail(f"run folder: {directory}")
        with observer.launches(plan.device, len(pending), repeats) as listener:
            summary = sweep.run(pending, listener, stop, _profiler(planned, observer))
        return BenchmarkOutcome(directory, summary, stop.asked)


def _profiler(planned: PlannedRun, observer: Observer) -> CellProfiler | None:
    """Records the cells that ``profiling.trigger`` asks for; ``None`` where it asks for none."""
    settings = planned.experiment.profiling
    if not settings.enabled or settings.trigger == "never":
        return None
    choice = choose_tool(settings.tool, planned.plan.device)
    if choice.note:
        observer.note(choice.note)
    return CellProfiler(
        planned.plan,
        choice,
        ProfileTarget(settings.target),
        settings.seconds,
        settings.max_steps,
        planned.limits,
        planned.experiment.launch.env,
    )


def _announcement(planned: PlannedRun, pending: int) -> str:
    """``demo: 10 cells, 10 launches; 5 skipped (see --dry-run), on CPU (…)``."""
    plan, experiment = planned.plan, planned.experiment
    launches = len(plan.to_run) * experiment.benchmark.repeats
    skipped = len(plan.cells) - len(plan.to_run)
    done = f", {launches - pending} done before" if pending < launches else ""
    left_out = f"; {skipped} skipped (see --dry-run)" if skipped else ""
    noun = "launch" if launches == 1 else "launches"
    where = planned.device_label
    return f"{experiment.experiment_name}: {len(plan.to_run)} cells, {launches} {noun}{done}{left_out}, on {where}"


def _warn_of_other_conditions(file: ExperimentFile, planned: PlannedRun, pending: int, observer: Observer) -> None:
    """Where new launches join launches that were measured under other conditions."""
    changed = unlike_before(file.sessions)
    launches = len(planned.plan.to_run) * planned.experiment.benchmark.repeats
    if changed and 0 < pending < launches:
        observer.note(
            f"warning: earlier launches in this folder were measured under other conditions ({listed(changed)} "
            "changed); the report marks them. Use another --output-dir to keep them apart"
        )


def _forecast(planned: PlannedRun, predict: bool, observer: Observer) -> Forecast:
    """Predicted memory of the plan's training cells; empty without ``predict``."""
    cells = [cell for cell in map(training_workload, planned.plan.to_run) if cell is not None]
    with observer.status("Predicting memory"):
        predicted = predict_cells(cells, timeout_seconds=PREDICTION_SECONDS) if predict and cells else {}
    return Forecast(predicted, planned.device_memory_bytes, shared=planned.plan.device == "cpu")
