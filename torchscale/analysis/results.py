"""From records to figures: one summary per cell, and of the run. Pure; definitions in ``docs/method.md``."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from torchscale.analysis.bubble import Bubble, bubble
from torchscale.analysis.ceilings import (
    CeilingSummary,
    CollectivesSummary,
    HardwareSummary,
    MemorySummary,
    hardware_for,
    summarize_collectives,
    summarize_hardware,
    summarize_memory,
)
from torchscale.analysis.conditions import MeasuredSitting, measured_sittings
from torchscale.analysis.decomposition import Decomposition, Parts, decompose, launch_parts
from torchscale.analysis.diagnosis import diagnose
from torchscale.analysis.facts import NO_FACTS, CellFacts, cell_facts
from torchscale.analysis.flags import Flag, launch_flags
from torchscale.analysis.launch_signals import launch_signals
from torchscale.analysis.launches import batch_step_seconds, samples_per_second, startup_seconds
from torchscale.analysis.plausible import implausible
from torchscale.analysis.roofline import Compute, StepTimes, compute_figures, find_peak
from torchscale.analysis.scaling import Efficiency, efficiencies
from torchscale.analysis.stats import lag1_autocorrelation, relative_half_width
from torchscale.analysis.telemetry import joules
from torchscale.schema.ceilings import Hardware
from torchscale.schema.cell import Cell, model_key
from torchscale.schema.collectives import CollectivesCell
from torchscale.schema.experiment import ExperimentFile
from torchscale.schema.finding import Diagnosis
from torchscale.schema.hardware import HardwareCell
from torchscale.schema.profile import ProfileAnalysis
from torchscale.schema.record import Digest, FlopCount, LaunchRecord, State, StopRule
from torchscale.schema.run import CellRun, Run
from torchscale.schema.telemetry import Telemetry

_WORST_FIRST = (
    State.CRASHED,
    State.KILLED,
    State.OOM,
    State.TIMEOUT,
    State.INVALID,
    State.INCOMPLETE,
    State.INTERRUPTED,
    State.SKIPPED,
)


@dataclass(frozen=True)
class Phases:
    """Mean seconds of a step's phases, averaged over ranks and launches. They add up to the mean step.

    ``sync`` is exposed exchange; where it is ``None``, ``backward`` contains it. ``bubble`` is of pipelines alone.
    """

    data_wait: float
    forward: float
    backward: float
    optimizer: float
    sync: float | None = None
    bubble: float | None = None


@dataclass(frozen=True)
class Figures:
    """What an ``ok`` cell measured.

    Attributes:
        samples_per_second: Of the group: global samples ÷ summed wall time of the batches; mean over launches.
        samples_per_second_per_device: The same ÷ world size.
        tokens_per_second: Of the group; ``None`` where samples have no tokens.
        step_p50, step_p95, step_p99: Seconds of the group's step (per step the slowest rank); mean over launches.
        step_maximum: The longest of all launches, in seconds.
        steps: Digest of the first launch's group steps.
        rank_p50: Median step of each rank, first launch.
        phases: Where a step goes.
        half_width: Of the mean step, 95 %, relative, from the batches within a launch; the widest launch's.
        run_half_width: The same from launch to launch; ``None`` for a single launch.
        autocorrelation: Lag-1, of the batches; near 0 the interval holds, near 0.8 it covers about 85 %.
        peak_memory_bytes: Largest over ranks and launches: allocator (CUDA) or growth of resident memory (CPU).
        launch_samples_per_second: Of each launch.
        stop_rule: What ended the first launch's measurement.
        measured_steps: Of the first launch.
        first_loss, last_loss: Rank 0, first launch.
        startup_seconds: Mean wall time of a launch outside warm-up and measurement.
        parts: The mean step by what it is spent on; ``None`` where the exchange was not measured.
        bubble: Of a pipeline, as measured and as its schedule makes unavoidable.
        compile_seconds: What torch's compiler took, the slowest rank's, mean over launches; ``None`` where nothing is
            compiled.
        device: Rank 0's, by name.
        flops: Of the model, from any launch of the run that counted them.
        joules_per_step, samples_per_joule: Of all GPUs, mean over launches; ``None`` where the driver does not say.
        telemetry: Of the first launch.
    """

    samples_per_second: float
    samples_per_second_per_device: float
    tokens_per_second: float | None
    step_p50: float
    step_p95: float
    step_p99: float
    step_maximum: float
    steps: Digest
    rank_p50: tuple[float, ...]
    phases: Phases
    half_width: float | None
    run_half_width: float | None
    autocorrelation: float | None
    peak_memory_bytes: int | None
    launch_samples_per_second: tuple[float, ...]
    stop_rule: StopRule
    measured_steps: int
    first_loss: float | None
    last_loss: float | None
    startup_seconds: float
    parts: Parts | None = None
    bubble: Bubble | None = None
    compile_seconds: float | None = None
    device: str = ""
    flops: FlopCount | None = None
    joules_per_step: float | None = None
    samples_per_joule: float | None = None
    telemetry: Telemetry | None = None


@dataclass(frozen=True)
class CellSummary:
    """A planned cell and what came of it. ``figures`` is ``None`` unless the state is ``ok``.

    ``decomposition`` needs a measured smaller count of its series, ``diagnosis`` the always-on signals of a launch,
    ``compute`` a model whose operations can be counted; ``counted`` is set where this cell's own launches counted them,
    ``profile`` where it was recorded.
    """

    cell: Cell
    state: State
    reason: str
    launches: int
    figures: Figures | None = None
    flags: tuple[Flag, ...] = ()
    efficiency: Efficiency | None = None
    decomposition: Decomposition | None = None
    diagnosis: Diagnosis | None = None
    compute: Compute | None = None
    facts: CellFacts = NO_FACTS
    counted: FlopCount | None = None
    profile: ProfileAnalysis | None = None


AnySummary = CellSummary | CeilingSummary
"""What came of a cell of any kind."""


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
    def cells(self) -> tuple[CellSummary, ...]:
        """Those of training."""
        return tuple(one for one in self.in_plan_order if isinstance(one, CellSummary))

    @cached_property
    def collectives(self) -> tuple[CollectivesSummary, ...]:
        """Sweeps of collectives."""
        return tuple(one for one in self.in_plan_order if isinstance(one, CollectivesSummary))

    @cached_property
    def hardware(self) -> tuple[HardwareSummary, ...]:
        """Ceilings of devices."""
        return tuple(one for one in self.in_plan_order if isinstance(one, HardwareSummary))

    @cached_property
    def memory(self) -> tuple[MemorySummary, ...]:
        """What steps take of memory."""
        return tuple(one for one in self.in_plan_order if isinstance(one, MemorySummary))

    @property
    def machine(self) -> tuple[CeilingSummary, ...]:
        """The cells that measured the machine itself."""
        return (*self.hardware, *self.collectives, *self.memory)

    @property
    def everything(self) -> tuple[AnySummary, ...]:
        """Cells of every kind: the machine's before those of training."""
        return (*self.machine, *self.cells)

    @cached_property
    def measured(self) -> tuple[CellSummary, ...]:
        """The cells with figures."""
        return tuple(cell for cell in self.cells if cell.figures is not None)

    @cached_property
    def sittings(self) -> tuple[MeasuredSitting, ...]:
        """When and under which conditions its figures were measured."""
        launches = (launch for one in self.in_plan_order for launch in one.facts.launches)
        return measured_sittings(self.experiment, launches)


def summarize(run: Run) -> RunSummary:
    """Summaries of every cell; efficiency needs the whole run, since it compares within a series."""
    repeats = run.experiment.config.benchmark.repeats
    everything = [summarize_any(cell_run, repeats, run) for cell_run in run.cells]
    return assemble(run.name, run.experiment, everything, run.problems)


def assemble(
    name: str, experiment: ExperimentFile, everything: Sequence[AnySummary], problems: Sequence[str] = ()
) -> RunSummary:
    """A run from the summaries of its cells, in plan order: here they get what they only have beside each other."""
    counted = _counted_flops(everything)
    cells = [_with_flops(summary, counted) for summary in everything if isinstance(summary, CellSummary)]
    hardware = tuple(summary for summary in everything if isinstance(summary, HardwareSummary))
    measured = [
        (cell.cell, cell.figures.launch_samples_per_second, cell.flags) for cell in cells if cell.figures is not None
    ]
    found, lost = efficiencies(measured), _decompositions(cells)
    whole = {
        cell.cell.id: replace(
            cell,
            efficiency=found.get(cell.cell.id),
            decomposition=lost.get(cell.cell.id),
            compute=_compute(cell, hardware, experiment.config.hardware),
        )
        for cell in cells
    }
    return RunSummary(name, experiment, tuple(whole.get(one.cell.id, one) for one in everything), tuple(problems))


def summarize_any(cell_run: CellRun, repeats: int | None = None, run: Run | None = None) -> AnySummary:
    """One cell of any kind. ``run`` is the whole it belongs to, where that is at hand. ``repeats`` are of
    training: what measured the machine may have joined with fewer.

    A record that contradicts itself, or holds numbers that no measurement has, makes its cell ``invalid``.
    """
    try:
        with np.errstate(all="ignore"):  # what overflows is found below
            summary = _summarize_any(cell_run, repeats, run)
        wrong = implausible(_numbers_of(summary))
    except (ArithmeticError, ValueError, LookupError) as error:
        # Each file is of the right form; what they say together need not be. One cell must not spoil the others.
        wrong = f"{type(error).__name__}: {error}"
    if wrong is None:
        return summary
    return _without_figures(cell_run, f"the record contradicts itself ({wrong})")


def _numbers_of(summary: AnySummary) -> tuple[object, ...]:
    if isinstance(summary, MemorySummary):
        return summary.ranks
    return summary.figures, summary.diagnosis if isinstance(summary, CellSummary) else None


def _without_figures(cell_run: CellRun, reason: str) -> AnySummary:
    cell, count = cell_run.planned.cell, len(cell_run.launches)
    if isinstance(cell, Cell):
        return CellSummary(cell, State.INVALID, reason, count, profile=cell_run.profile)
    if isinstance(cell, CollectivesCell):
        return CollectivesSummary(cell, State.INVALID, reason, count)
    if isinstance(cell, HardwareCell):
        return HardwareSummary(cell, State.INVALID, reason, count)
    return MemorySummary(cell, State.INVALID, reason, count)


def _summarize_any(cell_run: CellRun, repeats: int | None, run: Run | None) -> AnySummary:
    cell = cell_run.planned.cell
    if isinstance(cell, Cell):
        return summarize_cell(cell_run, repeats)
    outcome = _outcome(cell_run, None)
    facts = cell_facts(cell_run, outcome[0])
    if isinstance(cell, CollectivesCell):
        return replace(summarize_collectives(cell_run, cell, outcome, run), facts=facts)
    if isinstance(cell, HardwareCell):
        return replace(summarize_hardware(cell_run, cell, outcome), facts=facts)
    return replace(summarize_memory(cell_run, cell, outcome), facts=facts)


def summarize_cell(cell_run: CellRun, repeats: int | None = None) -> CellSummary:
    """One training cell: its state, and its figures if every launch is ``ok`` and, where given, all ``repeats`` are
    there."""
    cell, launches = cell_run.planned.cell, cell_run.launches
    assert isinstance(cell, Cell)  # noqa: S101 - the caller looked; this tells the type checker
    state, reason = _outcome(cell_run, repeats)
    if state is State.OK and any(len(record.ranks) != cell.world_size or record.steps is None for record in launches):
        state, reason = State.INCOMPLETE, "a record lacks the steps of some ranks"
    summary = CellSummary(
        cell,
        state,
        reason,
        len(launches),
        facts=cell_facts(cell_run, state),
        counted=next((rank.flops for record in launches for rank in record.ranks if rank.flops is not None), None),
        profile=cell_run.profile,
    )
    if state is not State.OK:
        return summary
    flags = sorted({flag for record in launches for flag in launch_flags(record, cell.measurement)})
    figures, diagnosis = _figures(cell, launches), _diagnosis(cell, launches)
    return replace(summary, figures=figures, flags=tuple(flags), diagnosis=diagnosis)


def _outcome(cell_run: CellRun, repeats: int | None) -> tuple[State, str]:
    """The cell's state, and a reason unless it is ``ok``: the worst of its launches'."""
    planned, launches = cell_run.planned, cell_run.launches
    if not launches:
        skipped = planned.skip_reason
        return (State.SKIPPED, skipped) if skipped is not None else (State.INCOMPLETE, "not run yet")
    for state in _WORST_FIRST:
        for record in launches:
            if record.state is state:
                which = f"launch {record.launch + 1}: " if len(launches) > 1 else ""
                return state, which + record.reason
    if repeats is not None and len(launches) < repeats:
        return State.INCOMPLETE, f"{len(launches)} of {repeats} launches done"
    return State.OK, ""


def _counted_flops(everything: Sequence[AnySummary]) -> dict[str, FlopCount]:
    """By model and options: it is counted once in a sweep, and equal for all cells of a model."""
    return {
        model_key(one.cell): one.counted
        for one in everything
        if isinstance(one, CellSummary) and one.counted is not None
    }


def _with_flops(summary: CellSummary, counted: Mapping[str, FlopCount]) -> CellSummary:
    flops = counted.get(model_key(summary.cell)) if counted else None
    if summary.figures is None or flops is None:
        return summary
    return replace(summary, figures=replace(summary.figures, flops=flops))


def _compute(summary: CellSummary, measured: Sequence[HardwareSummary], declared: Hardware) -> Compute | None:
    """The cell against its device's ceilings; ``None`` where its operations were not counted."""
    figures = summary.figures
    if figures is None or figures.flops is None:
        return None
    hardware = hardware_for(summary.cell.world_size, measured)
    ceilings = None if hardware is None else hardware.figures
    phases = figures.phases
    times = StepTimes(
        step=summary.cell.global_batch_size / figures.samples_per_second,
        data_wait=phases.data_wait,
        passes=phases.forward + phases.backward,
        optimizer=phases.optimizer,
        sync=phases.sync,
    )
    peak = find_peak(summary.cell.precision, figures.device, declared.peak_flops, ceilings)
    count = None if hardware is None else hardware.cell.world_size
    return compute_figures(summary.cell, figures.flops, times, peak=peak, hardware=ceilings, hardware_count=count)


def _decompositions(cells: Sequence[CellSummary]) -> dict[str, Decomposition]:
    """By cell id, for every count beyond the smallest measured of its series."""
    series: dict[str, list[tuple[Cell, Parts]]] = {}
    for cell in cells:
        if cell.figures is not None and cell.figures.parts is not None:
            series.setdefault(cell.cell.series, []).append((cell.cell, cell.figures.parts))
    found = {}
    for members in series.values():
        base, base_parts = min(members, key=lambda member: member[0].world_size)
        found.update(
            {cell.id: decompose(cell, parts, base, base_parts) for cell, parts in members if cell.id != base.id}
        )
    return found


def _diagnosis(cell: Cell, launches: Sequence[LaunchRecord]) -> Diagnosis | None:
    """Of one launch what it says; of several, what more than half of them say, with the first one's costs."""
    judged = [diagnose(signals) for record in launches if (signals := launch_signals(record)) is not None]
    if not judged or cell.world_size == 1:
        return None
    seen = Counter((finding.kind, finding.rank) for diagnosis in judged for finding in diagnosis.findings)
    first = {(finding.kind, finding.rank): finding for diagnosis in reversed(judged) for finding in diagnosis.findings}
    kept = [finding for key, finding in first.items() if seen[key] > len(judged) / 2]
    kept.sort(key=lambda finding: -finding.cost_percent)
    named = {finding.kind for finding in kept}
    abstained = dict.fromkeys(item for diagnosis in judged for item in diagnosis.abstentions if item.kind not in named)
    return Diagnosis(findings=tuple(kept), abstentions=tuple(abstained))


def _figures(cell: Cell, launches: Sequence[LaunchRecord]) -> Figures:
    first = launches[0]
    assert first.steps is not None  # noqa: S101 - the caller checked; this tells the type checker
    rates = tuple(samples_per_second(record) for record in launches)
    rate = statistics.fmean(rates)
    digests = [record.steps.seconds for record in launches if record.steps is not None]
    means = [batch_step_seconds(record) for record in launches]
    half_widths = [width for series in means if (width := relative_half_width(series)) is not None]
    peaks = [peak for record in launches for rank in record.ranks if (peak := rank.memory.peak_bytes) is not None]
    tokens = first.ranks[0].tokens_per_step
    phases = _phases(launches)
    totals = [(joules(record.telemetry), record.measured_steps) for record in launches]
    energies = [total / steps for total, steps in totals if total is not None]
    energy = statistics.fmean(energies) if len(energies) == len(launches) else None
    return Figures(
        samples_per_second=rate,
        samples_per_second_per_device=rate / cell.world_size,
        tokens_per_second=None if tokens is None else rate * tokens / first.ranks[0].samples_per_step,
        step_p50=statistics.fmean([digest.p50 for digest in digests]),
        step_p95=statistics.fmean([digest.p95 for digest in digests]),
        step_p99=statistics.fmean([digest.p99 for digest in digests]),
        step_maximum=max(digest.maximum for digest in digests),
        steps=digests[0],
        rank_p50=tuple(steps.seconds.p50 for steps in first.rank_steps),
        phases=phases,
        half_width=max(half_widths, default=None),
        run_half_width=relative_half_width(rates),
        autocorrelation=lag1_autocorrelation(means[0]),
        peak_memory_bytes=max(peaks, default=None),
        launch_samples_per_second=rates,
        stop_rule=first.ranks[0].stop_rule,
        measured_steps=first.measured_steps,
        first_loss=first.ranks[0].first_loss,
        last_loss=first.ranks[0].last_loss,
        startup_seconds=statistics.fmean([startup_seconds(record) for record in launches]),
        parts=launch_parts(launches),
        bubble=bubble(cell, idle=phases.bubble, forward=phases.forward, backward=phases.backward),
        compile_seconds=_compile_seconds(launches),
        device=first.ranks[0].device.name,
        joules_per_step=energy,
        samples_per_joule=None if not energy else cell.global_batch_size / energy,
        telemetry=first.telemetry,
    )


def _compile_seconds(launches: Sequence[LaunchRecord]) -> float | None:
    slowest = [
        max(seconds)
        for record in launches
        if (seconds := [s for rank in record.ranks if (s := rank.setup.compile_seconds) is not None])
    ]
    return statistics.fmean(slowest) if slowest else None


def _phases(launches: Sequence[LaunchRecord]) -> Phases:
    steps = [digest for record in launches for digest in record.rank_steps]
    syncs = [digest.mean_sync for digest in steps if digest.mean_sync is not None]
    bubbles = [digest.mean_bubble for digest in steps if digest.mean_bubble is not None]
    return Phases(
        data_wait=statistics.fmean([digest.mean_data_wait for digest in steps]),
        forward=statistics.fmean([digest.mean_forward for digest in steps]),
        backward=statistics.fmean([digest.mean_backward for digest in steps]),
        optimizer=statistics.fmean([digest.mean_optimizer for digest in steps]),
        sync=statistics.fmean(syncs) if len(syncs) == len(steps) else None,
        bubble=statistics.fmean(bubbles) if len(bubbles) == len(steps) else None,
    )
