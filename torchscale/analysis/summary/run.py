"""Figures of a run from its records: one summary per cell, and one of the run. Pure; definitions in
``docs/method.md``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from torchscale.analysis.kinds import AnySummary, analysis_kind
from torchscale.analysis.summary.conditions import (
    MeasuredSession,
    measured_sessions,
    session_numbers,
)
from torchscale.analysis.summary.machine import (
    CheckpointSummary,
    CollectivesSummary,
    HardwareSummary,
    MachineSummary,
    MemorySummary,
    hardware_for,
)
from torchscale.analysis.summary.physics import impossible
from torchscale.analysis.summary.scripts import differing_arguments
from torchscale.analysis.training.decomposition import decompose
from torchscale.analysis.training.roofline import MeanStepTimes, compute_figures, find_peak
from torchscale.analysis.training.scaling import efficiencies
from torchscale.analysis.training.summary import TrainingSummary
from torchscale.config.sections.machine import HardwareSettings
from torchscale.schema.cells.kinds import of_kind
from torchscale.schema.cells.training import TrainingCell, model_key
from torchscale.schema.exports.training import Compute, Decomposition, Parts
from torchscale.schema.launch.rank import FlopCount
from torchscale.schema.run.content import CellRun, Run
from torchscale.schema.run.experiment_file import ExperimentFile
from torchscale.schema.watch.report import WatchReport


@dataclass(frozen=True)
class RunSummary:
    """A whole run: its cells of every kind in plan order, those of training with efficiencies.

    ``problems`` are what could not be read and was left out.
    """

    name: str
    experiment: ExperimentFile
    in_plan_order: tuple[AnySummary, ...]
    problems: tuple[str, ...] = ()

    @cached_property
    def cells(self) -> tuple[TrainingSummary, ...]:
        """Summaries of training cells, in plan order."""
        return of_kind(self.in_plan_order, TrainingSummary)

    @cached_property
    def collectives(self) -> tuple[CollectivesSummary, ...]:
        """Summaries of collectives cells, in plan order."""
        return of_kind(self.in_plan_order, CollectivesSummary)

    @cached_property
    def hardware(self) -> tuple[HardwareSummary, ...]:
        """Summaries of hardware cells, in plan order."""
        return of_kind(self.in_plan_order, HardwareSummary)

    @cached_property
    def memory(self) -> tuple[MemorySummary, ...]:
        """What steps take of memory."""
        return of_kind(self.in_plan_order, MemorySummary)

    @cached_property
    def checkpoints(self) -> tuple[CheckpointSummary, ...]:
        """What saving and loading takes."""
        return of_kind(self.in_plan_order, CheckpointSummary)

    @property
    def job(self) -> WatchReport | None:
        """What ``watch`` found, where the run is a watched job."""
        jobs = (cell.watched for cell in self.cells if cell.cell.is_watched)
        return next((report for report in jobs if report is not None), None)

    @property
    def machine(self) -> tuple[MachineSummary, ...]:
        """The cells that measured the machine itself."""
        return (*self.hardware, *self.collectives, *self.memory, *self.checkpoints)

    @property
    def everything(self) -> tuple[AnySummary, ...]:
        """Cells of every kind: the machine's before those of training."""
        return (*self.machine, *self.cells)

    @cached_property
    def measured(self) -> tuple[TrainingSummary, ...]:
        """The cells with figures."""
        return tuple(cell for cell in self.cells if cell.figures is not None)

    @cached_property
    def _uncounted(self) -> dict[str, str]:
        """Why operations are not counted, by model and options."""
        return {
            model_key(cell.cell): cell.flops_unknown for cell in self.cells if cell.flops_unknown
        }

    def flops_unknown(self, summary: TrainingSummary) -> str:
        """Why a cell has no FLOP/s, MFU and roofline though it was measured; empty where it has, or
        where its launches do not say."""
        if summary.figures is None or summary.compute is not None:
            return ""
        reason = self._uncounted.get(model_key(summary.cell))
        if reason is None:
            return ""
        return f"FLOPs unknown: {reason}"

    @cached_property
    def sessions(self) -> tuple[MeasuredSession, ...]:
        """When and under which conditions its figures were measured."""
        launches = (launch for summary in self.in_plan_order for launch in summary.facts.launches)
        return measured_sessions(self.experiment, launches)


def summarize(run: Run) -> RunSummary:
    """Summaries of every cell; efficiency needs the whole run, since it compares within a
    series."""
    repeats = run.experiment.config.benchmark.repeats
    everything = [summarize_any(cell_run, repeats, run) for cell_run in run.cells]
    return assemble(run.name, run.experiment, everything, run.problems)


def assemble(
    name: str,
    experiment: ExperimentFile,
    everything: Sequence[AnySummary],
    problems: Sequence[str] = (),
) -> RunSummary:
    """A run from the summaries of its cells, in plan order; adds what needs several cells:
    efficiency, decomposition, FLOPs and the comparison with peak rates."""
    counted = _counted_flops(everything)
    cells = [_with_flops(summary, counted) for summary in of_kind(everything, TrainingSummary)]
    hardware = of_kind(everything, HardwareSummary)
    measured = [
        (cell.cell, cell.figures.launch_samples_per_second, cell.flags)
        for cell in cells
        if cell.figures is not None and cell.figures.samples_per_second is not None
    ]
    efficiency_of, decompositions = efficiencies(measured), _decompositions(cells)
    sessions = experiment.sessions
    apart = differing_arguments(cell.cell for cell in cells)
    completed = {
        cell.cell.id: replace(
            cell,
            cell=cell.cell.told_apart(apart.get(cell.cell.id, "")),
            efficiency=efficiency_of.get(cell.cell.id),
            decomposition=decompositions.get(cell.cell.id),
            compute=_compute(cell, hardware, experiment.config.hardware),
            sessions=len(set(session_numbers(sessions, cell.facts.launches))) or 1,
        )
        for cell in cells
    }
    summaries = tuple(completed.get(summary.cell.id, summary) for summary in everything)
    return RunSummary(name, experiment, summaries, tuple(problems))


def summarize_any(
    cell_run: CellRun, repeats: int | None = None, run: Run | None = None
) -> AnySummary:
    """One cell of any kind. ``run`` is the whole it belongs to, where that is at hand. ``repeats``
    are of training: what measured the machine may have joined with fewer.

    A record that contradicts itself makes its cell ``invalid``.
    """
    cell = cell_run.planned.cell
    kind = analysis_kind(cell.kind)
    problem = impossible(cell_run)
    try:
        if problem is None:
            return kind.summarize(cell_run, cell, repeats, run)
    except (ArithmeticError, ValueError, LookupError) as error:
        # Each file is of the right form; together they may still contradict each other. One cell
        # must not spoil others.
        problem = f"{type(error).__name__}: {error}".splitlines()[0]
    return kind.without_figures(cell_run, cell, f"the record contradicts itself ({problem})")


def _counted_flops(everything: Sequence[AnySummary]) -> dict[str, FlopCount]:
    """Counted operations by model and options: they are counted once in a sweep, and are equal for
    all cells of a model."""
    return {
        model_key(summary.cell): summary.counted
        for summary in of_kind(everything, TrainingSummary)
        if summary.counted is not None
    }


def _with_flops(summary: TrainingSummary, counted: Mapping[str, FlopCount]) -> TrainingSummary:
    if summary.figures is None or not counted:
        return summary
    flops = counted.get(model_key(summary.cell))
    if flops is None:
        return summary
    return replace(summary, figures=replace(summary.figures, flops=flops))


def _compute(
    summary: TrainingSummary, measured: Sequence[HardwareSummary], declared: HardwareSettings
) -> Compute | None:
    """The cell against its device's ceilings; ``None`` where its operations were not counted."""
    figures = summary.figures
    if figures is None or figures.flops is None or summary.cell.script is not None:
        return None
    hardware = hardware_for(summary.cell.world_size, measured)
    ceilings = count = None
    if hardware is not None:
        ceilings, count = hardware.figures, hardware.cell.world_size
    phases = figures.phases
    times = MeanStepTimes(
        step=figures.step_mean,
        data_wait=phases.data_wait,
        passes=(phases.forward or 0.0) + (phases.backward or 0.0),
        optimizer=phases.optimizer or 0.0,
        sync=phases.sync,
    )
    work_share: float | None = 1.0
    if figures.documents is not None:
        work_share = figures.documents.work_share(summary.cell, figures.flops)
    if work_share is None:
        return None
    peak = find_peak(summary.cell.precision, figures.device, declared.peak_flops, ceilings)
    return compute_figures(
        summary.cell,
        figures.flops,
        times,
        peak=peak,
        hardware=ceilings,
        hardware_count=count,
        work_share=work_share,
    )


def _decompositions(cells: Sequence[TrainingSummary]) -> dict[str, Decomposition]:
    """Decompositions by cell id, for every count beyond the smallest measured of its series; none
    of cells whose samples are not known, since their steps may not do the same work."""
    series: dict[str, list[tuple[TrainingCell, Parts]]] = {}
    for cell in cells:
        figures = cell.figures
        if figures is None or figures.samples_per_second is None:
            continue
        if figures.parts is not None:
            series.setdefault(cell.cell.series, []).append((cell.cell, figures.parts))
    found = {}
    for members in series.values():
        base, base_parts = min(members, key=lambda member: member[0].world_size)
        found.update(
            {
                cell.id: decompose(cell, parts, base, base_parts)
                for cell, parts in members
                if cell.id != base.id
            }
        )
    return found
