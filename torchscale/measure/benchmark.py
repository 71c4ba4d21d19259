"""Measure an experiment: config → plan → sweep → run folder and summary."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from torchscale.analysis.summary.conditions import unlike_before
from torchscale.analysis.summary.run import RunSummary
from torchscale.config.choices import Rerun
from torchscale.config.experiment import Experiment
from torchscale.errors import ExitCode
from torchscale.launch.agents.forker import AgentForker
from torchscale.launch.machine import Detection
from torchscale.measure.context import PlannedRun, measuring, plan_run, sweep_exit_code
from torchscale.measure.exporting import sweep_exports
from torchscale.measure.listener import listening
from torchscale.measure.nodes import ClusterNode, SweepNodes, closing_on_error, leading
from torchscale.measure.profiling import CellProfiler, cell_profiler
from torchscale.measure.sweep import Sweep
from torchscale.observer import SILENT, Observer
from torchscale.schema.run.experiment_file import ExperimentFile
from torchscale.schema.state import State
from torchscale.store.locations import default_directory
from torchscale.store.run_folder import RunFolder
from torchscale.util.words import listed, plural


@dataclass(frozen=True)
class BenchmarkOutcome:
    """What a sweep left behind.

    Attributes:
        directory: The run folder.
        summary: Summary of everything in it.
        interrupted: Whether Ctrl-C or TERM ended the sweep before it was complete.
        copy_failed: Whether the copy that was asked for is not complete.
    """

    directory: Path
    summary: RunSummary
    interrupted: bool
    copy_failed: bool = False

    @property
    def exit_code(self) -> ExitCode:
        """130 interrupted, 1 if any cell or the copy failed, else 0."""
        code = sweep_exit_code(self._states(), interrupted=self.interrupted)
        return code or ExitCode(int(self.copy_failed))

    @property
    def has_failed(self) -> bool:
        """Whether any cell failed."""
        return any(state.has_failed for state in self._states())

    def _states(self) -> Iterator[State]:
        return (cell.state for cell in self.summary.everything)


def benchmark(
    experiment: Experiment,
    *,
    output_dir: Path | None = None,
    rerun: Rerun | None = None,
    observer: Observer = SILENT,
    node: ClusterNode | None = None,
    detection: Detection | None = None,
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
    if node is not None and node.detection is not None:
        detection = node.detection
    with closing_on_error(node):
        planned = plan_run(experiment, observer, detection=detection)
        planned.require_cells(hint="`torchscale benchmark --dry-run` shows the reason of each")
    plan = planned.plan
    repeats = experiment.benchmark.repeats
    with closing_on_error(node), measuring(directory) as stop:
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
                profiler = _profiler(planned, nodes, observer)
                exports = sweep_exports(experiment, directory, observer, stop)
                summary = sweep.run(pending, listener, stop, profiler, exports)
            if (
                profiler is not None
                and not stop.asked
                and not any(cell.profile for cell in summary.cells)
            ):
                observer.note(f"profiling: {_why_no_profile(experiment, sweep.recorded)}")
            lost = exports is not None and exports.has_failed
            outcome = BenchmarkOutcome(directory, summary, stop.asked, copy_failed=lost)
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


def _profiler(
    planned: PlannedRun, nodes: SweepNodes | None, observer: Observer
) -> CellProfiler | None:
    """Records the cells that ``profiling.trigger`` asks for; ``None`` where it asks for none, or
    none can be recorded: what can be measured is measured."""
    profiler, notes = cell_profiler(planned)
    if profiler is not None and nodes is not None and nodes.run_all:
        observer.note(
            "warning: no cell is recorded: a profiler records on this machine, which may be none of "
            "the nodes; --nnodes 1 on a node records"
        )
        return None
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
