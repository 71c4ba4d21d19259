"""Summaries of training cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torchscale.analysis.diagnosis.signals import Signals
from torchscale.analysis.summary.facts import LaunchConditions, cell_facts
from torchscale.analysis.summary.outcome import cell_outcome, completed_launches
from torchscale.analysis.training.cell_diagnosis import diagnose_cell
from torchscale.analysis.training.contention import delay_bounds, fixed_work
from torchscale.analysis.training.figures import step_seconds, training_figures
from torchscale.analysis.training.flags import (
    Flag,
    bounded_share,
    doubts,
    gpus_are_shared,
    launch_flags,
    other_processes_share,
)
from torchscale.analysis.training.pooling import pool_signals
from torchscale.analysis.training.signals import launch_signals
from torchscale.analysis.training.step_parts import step_parts
from torchscale.analysis.training.summary import Figures, TrainingSummary
from torchscale.analysis.training.telemetry import device_use, joules
from torchscale.analysis.training.throughput import (
    samples_per_second,
    step_samples,
    steps_per_second,
)
from torchscale.config.choices import Metric
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.launch.record import LaunchRecord, payload
from torchscale.schema.launch.training import TrainingResult
from torchscale.schema.profiles.finding import Diagnosis
from torchscale.schema.run.content import CellRun, Run
from torchscale.schema.run.metric_key import MetricKey
from torchscale.schema.state import State
from torchscale.schema.watch.report import WatchReport
from torchscale.util.optional import complete, optional

_THROUGHPUT = MetricKey(metric=Metric.THROUGHPUT)
_STEPS = MetricKey(metric=Metric.STEPS)
_STEP_P95 = MetricKey(metric=Metric.STEP_P95)
_MEMORY = MetricKey(metric=Metric.MEMORY)
_ENERGY = MetricKey(metric=Metric.ENERGY)


def summarize(
    cell_run: CellRun, cell: TrainingCell, repeats: int | None = None, run: Run | None = None
) -> TrainingSummary:
    """The cell's state, and the figures of its launches where all that are complete are ``ok``; of
    a watched job those of what it did before it failed, too.

    Efficiency, decomposition and the roofline need other cells of the run:
    :func:`~torchscale.analysis.summary.run.assemble` adds them.
    """
    launches = completed_launches(cell_run)
    state, reason = cell_outcome(cell_run, None if cell.is_watched else repeats)
    measured = launches if state.has_figures else ()
    if cell.is_watched:
        measured = tuple(one for one in launches if _is_whole(payload(one, TrainingResult), cell))
        reason = reason or (launches[-1].reason if launches and not measured else "")
    results = [payload(record, TrainingResult) for record in launches]
    if measured and not cell.is_watched and not all(_is_whole(one, cell) for one in results):
        state, reason, measured = State.INCOMPLETE, "a record lacks the steps of some ranks", ()
    by_launch: list[Signals | None] = []

    def conditions(record: LaunchRecord) -> LaunchConditions:
        by_launch.append(_signals(record, cell))
        return _conditions(record, cell, by_launch[-1])

    summary = TrainingSummary(
        cell,
        state,
        reason,
        len(launches),
        facts=cell_facts(cell_run, state, _launch_values, conditions, measured=measured),
        counted=next(
            (rank.flops for result in results for rank in result.ranks if rank.flops is not None),
            None,
        ),
        profile=cell_run.profile,
        planned_launches=repeats,
        flops_unknown=next(
            (rank.flops_unknown for one in results for rank in one.ranks if rank.flops_unknown), ""
        ),
        watched=cell_run.watched,
    )
    if cell.is_watched and cell_run.watched is not None:
        summary = replace(summary, diagnosis=_found(cell_run.watched))
    if not measured:
        return summary
    results = [payload(record, TrainingResult) for record in measured]
    flags = sorted({Flag(name) for launch in summary.facts.launches for name in launch.flags or ()})
    pooled = _pooled(by_launch, step_seconds(results))
    diagnosis = summary.diagnosis
    figures = training_figures(cell, measured, pooled)
    if cell.is_watched:
        figures = _of_job(figures, cell_run.watched)
    else:
        diagnosis = diagnose_cell(by_launch, pooled, results[0].ranks, flags)
    return replace(
        summary,
        figures=figures,
        flags=tuple(flags),
        diagnosis=diagnosis,
    )


def _is_whole(result: TrainingResult, cell: TrainingCell) -> bool:
    return len(result.ranks) == cell.world_size and result.steps is not None


def _found(report: WatchReport) -> Diagnosis:
    """What ``watch`` found: a job's steps are judged once."""
    findings = tuple(item.finding for item in report.findings)
    return Diagnosis(findings=findings, abstentions=report.abstentions)


def _of_job(figures: Figures, report: WatchReport | None) -> Figures:
    """A job's mean step is that of ``watch``. It has no interval: its steps are all that there are,
    and what changes in them is a finding and no noise."""
    step = figures.step_mean
    if report is not None and report.step_seconds:
        step = report.step_seconds
    return replace(
        figures, step_mean=step, half_width=None, run_half_width=None, autocorrelation=None
    )


def _signals(record: LaunchRecord, cell: TrainingCell) -> Signals | None:
    """Of its ranks, with what was read beside them."""
    result = payload(record, TrainingResult)
    signals = launch_signals(result, cell)
    if signals is None:
        return None
    return replace(signals, device_use=device_use(record.machine_telemetry, result.ranks))


def _pooled(by_launch: Sequence[Signals | None], step: float) -> Signals | None:
    """Signals of all launches together; ``None`` where a launch left none."""
    known = complete(by_launch)
    if not known:
        return None
    return pool_signals(known, step)


def without_figures(cell_run: CellRun, cell: TrainingCell, reason: str) -> TrainingSummary:
    """Only what its profile showed."""
    return TrainingSummary(
        cell, State.INVALID, reason, len(cell_run.launches), profile=cell_run.profile
    )


def flag_names(summary: TrainingSummary) -> tuple[str, ...]:
    """Warnings about the measurement, such as ``noisy``."""
    return tuple(flag.value for flag in summary.flags)


def _conditions(
    record: LaunchRecord, cell: TrainingCell, signals: Signals | None
) -> LaunchConditions:
    ranks = payload(record, TrainingResult).ranks
    # A job's steps are measured by no rule that noise or a trend could break.
    found = launch_flags(record, cell.measurement)
    if cell.is_watched:
        found = doubts(record.machine_telemetry, ranks)
    flags = sorted(flag.value for flag in found)
    share = optional(bounded_share, other_processes_share(ranks))
    # Nothing bounds what others on a GPU or lower clocks take.
    slowed = Flag.THROTTLED in found or gpus_are_shared(record.machine_telemetry, ranks)
    return LaunchConditions(
        flags=tuple(flags),
        other_processes=share,
        delay=None if slowed else delay_bounds(record),
        fixed_work=fixed_work(ranks),
        parts=step_parts(record, signals),
    )


def _launch_values(record: LaunchRecord) -> dict[MetricKey, float | None]:
    """Throughput, or steps per second where samples are not known; p95 of the step, memory of the
    fullest rank, samples per joule."""
    result = payload(record, TrainingResult)
    peaks = [peak for rank in result.ranks if (peak := rank.memory.peak_bytes) is not None]
    energy, steps = joules(record.machine_telemetry), result.measured_steps
    samples = step_samples(result)
    step_p95 = samples_per_joule = None
    if result.steps is not None:
        step_p95 = result.steps.seconds.p95
    if energy and samples is not None:
        samples_per_joule = steps * samples / energy
    rate = {_THROUGHPUT: samples_per_second(result)}
    if samples is None:
        rate = {_STEPS: steps_per_second(result)}
    return {
        **rate,
        _STEP_P95: step_p95,
        _MEMORY: max(peaks, default=None),
        _ENERGY: samples_per_joule,
    }
