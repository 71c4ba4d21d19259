"""A run as JSON for other programs."""

from __future__ import annotations

from torchscale.analysis.summary.run import RunSummary
from torchscale.analysis.training.decomposition import Decomposition
from torchscale.analysis.training.roofline import Compute
from torchscale.analysis.training.scaling import Efficiency
from torchscale.analysis.training.summary import Figures, TrainingSummary
from torchscale.report.formats.machine_export import machine_export
from torchscale.report.sections.headline import headline
from torchscale.schema.exports.report import (
    BubbleExport,
    ComputeExport,
    DecompositionExport,
    EfficiencyExport,
    FiguresExport,
    NodeTelemetryExport,
    PartsExport,
    PeakExport,
    PhasesExport,
    ReportExport,
    SessionExport,
    TrainingCellExport,
)
from torchscale.util.interval_text import finite


def summary_json(summary: RunSummary) -> str:
    """Everything that the report shows: the environment, and each cell with its figures."""
    return report_export(summary).model_dump_json(indent=1)


def report_export(summary: RunSummary) -> ReportExport:
    """A run as it is published."""
    experiment = summary.experiment
    return ReportExport(
        tool_version=experiment.tool_version,
        run=summary.name,
        experiment_name=experiment.config.experiment_name,
        headline=headline(summary).text,
        environment=experiment.environment,
        sessions=tuple(
            SessionExport(
                started_at=measured.session.started_at,
                tool_version=measured.session.tool_version,
                environment=measured.session.environment,
                launches=measured.launches,
                changed=measured.changed,
            )
            for measured in summary.sessions
        ),
        problems=summary.problems,
        cells=tuple(cell_export(cell, summary.flops_unknown(cell)) for cell in summary.cells),
        machine=tuple(map(machine_export, summary.machine)),
    )


def cell_export(summary: TrainingSummary, flops_unknown: str | None = None) -> TrainingCellExport:
    """A training cell with everything that was worked out of it. ``flops_unknown``: why that is not
    its FLOP/s, by :meth:`RunSummary.flops_unknown`; by default what its own launches say."""
    if flops_unknown is None:
        flops_unknown = "" if summary.compute is not None else summary.flops_unknown
    return TrainingCellExport(
        cell_id=summary.cell.id,
        cell=summary.cell,
        state=summary.state,
        reason=summary.reason,
        launches=summary.launches,
        hosts=tuple(node.hostname for node in summary.facts.nodes),
        sessions=summary.sessions,
        planned_launches=summary.planned_launches,
        flags=tuple(flag.value for flag in summary.flags),
        autopsy=summary.facts.autopsy,
        figures=None if summary.figures is None else _figures(summary.figures),
        compute=None if summary.compute is None else _compute(summary.compute),
        flops_unknown=flops_unknown,
        decomposition=None
        if summary.decomposition is None
        else _decomposition(summary.decomposition),
        diagnosis=summary.diagnosis,
        efficiency=None if summary.efficiency is None else _efficiency(summary.efficiency),
    )


def _figures(figures: Figures) -> FiguresExport:
    phases, parts, bubble = figures.phases, figures.parts, figures.bubble
    rates, step = figures.rate_interval(figures.samples_per_second), figures.step_interval
    return FiguresExport(
        samples_per_second=figures.samples_per_second,
        samples_per_second_per_device=figures.samples_per_second_per_device,
        tokens_per_second=figures.tokens_per_second,
        step_mean=figures.step_mean,
        step_p50=figures.steps.p50,
        step_p95=figures.steps.p95,
        step_p99=figures.steps.p99,
        step_maximum=figures.steps.maximum,
        rank_step_means=figures.rank_step_means,
        half_width=figures.half_width,
        run_half_width=figures.run_half_width,
        samples_per_second_low=None if rates is None else rates[0],
        samples_per_second_high=None if rates is None else finite(rates[1]),
        step_mean_low=None if step is None else step[0],
        step_mean_high=None if step is None else step[1],
        autocorrelation=figures.autocorrelation,
        peak_memory_bytes=figures.peak_memory_bytes,
        launch_samples_per_second=figures.launch_samples_per_second,
        measured_steps=figures.measured_steps,
        first_loss=figures.first_loss,
        last_loss=figures.last_loss,
        startup_seconds=figures.startup_seconds,
        compile_seconds=figures.compile_seconds,
        device=figures.device,
        joules_per_step=figures.joules_per_step,
        samples_per_joule=figures.samples_per_joule,
        stop_rule=figures.stop_rule,
        phases=PhasesExport(
            data_wait=phases.data_wait,
            forward=phases.forward,
            backward=phases.backward,
            optimizer=phases.optimizer,
            sync=phases.sync,
            bubble=phases.bubble,
        ),
        parts=None
        if parts is None
        else PartsExport(
            compute=parts.compute,
            data_wait=parts.data_wait,
            straggler_wait=parts.straggler_wait,
            transfer=parts.transfer,
            step=parts.step,
        ),
        bubble=None
        if bubble is None
        else BubbleExport(measured=bubble.measured, computed=bubble.computed),
        flops=figures.flops,
        telemetry=figures.telemetry,
        nodes=tuple(
            NodeTelemetryExport(hostname=host, telemetry=telemetry)
            for host, telemetry in figures.nodes
        ),
        steps=figures.steps,
    )


def _compute(compute: Compute) -> ComputeExport:
    peak = compute.peak
    return ComputeExport(
        flops_per_step=compute.flops_per_step,
        flops_per_second=compute.flops_per_second,
        mfu=compute.mfu,
        hfu=compute.hfu,
        peak=None
        if peak is None
        else PeakExport(flops_per_second=peak.flops_per_second, source=peak.source),
        intensity=compute.intensity,
        passes_flops_per_second=compute.passes_flops_per_second,
        roof=compute.roof,
        bound=compute.bound,
        headroom=compute.headroom,
        roof_source=compute.roof_source,
    )


def _decomposition(parts: Decomposition) -> DecompositionExport:
    return DecompositionExport(
        baseline_world_size=parts.baseline_world_size,
        ideal=parts.ideal,
        compute=parts.compute,
        data_wait=parts.data_wait,
        straggler_wait=parts.straggler_wait,
        exposed_communication=parts.exposed_communication,
        unexplained=parts.unexplained,
        step=parts.step,
    )


def _efficiency(efficiency: Efficiency) -> EfficiencyExport:
    return EfficiencyExport(
        value=efficiency.value,
        baseline_world_size=efficiency.baseline_world_size,
        interval=efficiency.interval,
        flags=tuple(flag.value for flag in efficiency.flags),
    )
