"""Measure the machine itself: collectives, hardware ceilings, memory of training steps. All as
cells of a plan."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from torchscale.analysis.summary.machine import (
    CollectivesSummary,
    HardwareSummary,
    MachineSummary,
    MemorySummary,
)
from torchscale.analysis.summary.run import RunSummary
from torchscale.config.choices import Rerun
from torchscale.config.experiment import Experiment
from torchscale.errors import ExitCode, MachineError, UsageError
from torchscale.launch.machine import Detection
from torchscale.measure.checks import checked, disk_problem
from torchscale.measure.context import (
    PlannedRun,
    find_machine,
    measuring,
    sweep_exit_code,
    timestamped,
)
from torchscale.measure.exporting import sweep_exports
from torchscale.measure.listener import listening
from torchscale.measure.nodes import ClusterNode, closing_on_error, leading
from torchscale.measure.sweep import Sweep
from torchscale.observer import SILENT, Observer
from torchscale.plan.duration import CellProgress, estimate_seconds
from torchscale.plan.expand import Plan, make_plan
from torchscale.store.run_folder import RunFolder
from torchscale.util.units import format_coarse_seconds

S = TypeVar("S", bound=MachineSummary)


@dataclass(frozen=True)
class MachineOutcome(Generic[S]):
    """What measuring the machine gave.

    Attributes:
        directory: The run folder, which may hold other cells.
        cells: Summaries of the cells measured now.
        interrupted: Whether Ctrl-C or TERM ended it early.
        run: The folder's experiment with these cells alone.
        copy_failed: Whether the copy that was asked for is not complete.
    """

    directory: Path
    cells: tuple[S, ...]
    interrupted: bool
    run: RunSummary
    copy_failed: bool = False

    @property
    def exit_code(self) -> ExitCode:
        """130 interrupted, 1 if any cell or the copy failed, else 0."""
        code = sweep_exit_code((cell.state for cell in self.cells), interrupted=self.interrupted)
        return code or ExitCode(int(self.copy_failed))


class CollectivesOutcome(MachineOutcome[CollectivesSummary]):
    """What ``measure collectives`` measured; a link below its rated bandwidth is a failure."""

    @property
    def shown(self) -> tuple[CollectivesSummary, ...]:
        """The cells to show: all but the short launches in which NCCL only logs the algorithms it
        chooses."""
        return tuple(cell for cell in self.cells if not cell.cell.logs_choices)

    @property
    def exit_code(self) -> ExitCode:
        """Exit code as of any cells, and 1 where a link is slower than it should be."""
        code = super().exit_code
        slow = any(cell.verdict is not None and cell.verdict.fits is False for cell in self.shown)
        if slow and code is ExitCode.OK:
            return ExitCode.FAILED
        return code


Outcome = TypeVar("Outcome", bound=MachineOutcome[Any])


def measure_collectives(
    experiment: Experiment,
    *,
    output_dir: Path | None = None,
    observer: Observer = SILENT,
    node: ClusterNode | None = None,
) -> CollectivesOutcome:
    """Measure collectives over sizes, checking every element of every result; over several
    nodes as the first of them.

    Args:
        experiment: Experiment with ``measure: [collectives]``.
        output_dir: A run folder, new or to be joined; ``results/collectives-<time>`` by default.
        observer: Shows messages and launches.
        node: The first of several nodes; ``None`` for this machine alone.

    Raises:
        UsageError: the address for the other nodes cannot be used.
        MachineError: this machine has fewer than two devices or ranks, or the nodes do not fit
            together.
        StoreError: ``output_dir`` cannot be read, or was measured on another machine.
        OutputError: it cannot be written.
    """
    directory = output_dir or timestamped("collectives")
    return _measure(
        experiment,
        directory,
        observer,
        lambda summary: summary.collectives,
        CollectivesOutcome,
        node=node,
    )


def measure_hardware(
    experiment: Experiment, *, output_dir: Path | None = None, observer: Observer = SILENT
) -> MachineOutcome[HardwareSummary]:
    """Measure peak rates: matmul, memory and copy bandwidth, disk. Arguments and errors as
    :func:`measure_collectives`."""
    directory = output_dir or timestamped("hardware")
    return _measure(
        experiment, directory, observer, lambda summary: summary.hardware, MachineOutcome
    )


def measure_memory(
    experiment: Experiment, *, output_dir: Path | None = None, observer: Observer = SILENT
) -> MachineOutcome[MemorySummary]:
    """Measure the memory of training steps beside its prediction. Arguments and errors as
    :func:`measure_collectives`."""
    directory = output_dir or timestamped("memory")
    return _measure(experiment, directory, observer, lambda summary: summary.memory, MachineOutcome)


def plan_machine(
    experiment: Experiment,
    observer: Observer,
    directory: Path | None = None,
    detection: Detection | None = None,
) -> PlannedRun:
    """Plan machine cells; without a device count in the config, at the largest count of this
    machine. Cells that join the folder ``directory`` use as many threads per rank as the folder's
    cells, so that figures of a device compare.

    Raises:
        MachineError: this machine can run none of them.
        UsageError: the disk to be measured cannot be used.
        StoreError: ``directory`` holds something that cannot be read.
    """
    machine = find_machine(observer, detection)
    joins = directory is not None and (directory / "experiment.json").exists()
    if directory is not None and joins and experiment.launch.threads_per_rank is None:
        threads = RunFolder.open(directory).experiment.threads_per_rank
        launch = experiment.launch.model_copy(update={"threads_per_rank": threads})
        experiment = experiment.model_copy(update={"launch": launch})
    plan = make_plan(experiment, machine)
    if experiment.gpu_counts == "auto" and plan.to_run:
        largest = max(cell.world_size for cell in plan.to_run)
        experiment = experiment.model_copy(update={"gpu_counts": (largest,)})
        plan = make_plan(experiment, machine)
    _check_disk(experiment)
    plan = checked(plan, experiment, observer)
    if not plan.to_run:
        raise MachineError(plan.cells[0].skip_reason or "nothing to measure")
    return PlannedRun(experiment, machine, plan)


def _check_disk(experiment: Experiment) -> None:
    """A disk that cannot be measured is found before any rate is.

    Raises:
        UsageError: the directory does not exist, or nothing can be written there.
    """
    disk = experiment.hardware.disk_path
    problem = disk_problem(disk) if disk is not None and "hardware" in experiment.measure else None
    if problem is not None:
        raise UsageError(
            f"--disk {problem}", hint="name an existing directory that you may write to"
        )


def _measure(
    experiment: Experiment,
    directory: Path,
    observer: Observer,
    of_kind: Callable[[RunSummary], Iterable[S]],
    make: Callable[[Path, tuple[S, ...], bool, RunSummary, bool], Outcome],
    *,
    node: ClusterNode | None = None,
) -> Outcome:
    """Measure the plan's cells anew into a folder, which keeps its other cells; earlier launches of
    the same cells are set aside. ``make`` makes the outcome of the folder, its cells ``of_kind``
    that the plan has, whether it was interrupted, the summary of these cells alone, and whether
    their copy failed."""
    detection = None if node is None else node.detection
    with closing_on_error(node):
        planned = plan_machine(experiment, observer, directory, detection)
    plan = planned.plan
    with closing_on_error(node), measuring(directory) as stop:
        folder = RunFolder.join(directory, planned.experiment_file())
        with leading(node, planned, stop, observer) as nodes:
            sweep = Sweep(planned.experiment, plan, folder, nodes)
            pending = sweep.prepare(Rerun.ALL)
            for note in sweep.notes:
                observer.note(f"warning: {note}")
            observer.detail(f"run folder: {directory}")
            observer.note(
                f"{experiment.experiment_name}: on {planned.device_label}; {_duration(planned)}"
            )
            with listening(
                observer, plan.device, len(pending), experiment.benchmark.repeats
            ) as listener:
                exports = sweep_exports(experiment, directory, observer, stop)
                summary = sweep.run(pending, listener, stop, exports=exports)
            cells = _planned(of_kind(summary), plan)
            shown = replace(summary, in_plan_order=cells)
            lost = exports is not None and exports.has_failed
            outcome = make(directory, cells, stop.asked, shown, lost)
            if nodes is not None:
                nodes.conclude(outcome.exit_code, stop.asked)
            return outcome


def _duration(planned: PlannedRun) -> str:
    """About how long it takes."""
    experiment, plan = planned.experiment, planned.plan
    progress = [CellProgress(cell, 0, experiment.benchmark.repeats) for cell in plan.to_run]
    estimate = estimate_seconds(
        progress, experiment.benchmark, experiment.launch.timeout_seconds, plan
    )
    low, high = format_coarse_seconds(estimate.low), format_coarse_seconds(estimate.high)
    return f"estimated time: {low} to {high}"


def _planned(summaries: Iterable[S], plan: Plan) -> tuple[S, ...]:
    """The summaries of the plan's own cells."""
    ids = {entry.cell.id for entry in plan.cells}
    return tuple(summary for summary in summaries if summary.cell.id in ids)
