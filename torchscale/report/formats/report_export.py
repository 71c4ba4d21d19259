"""A run as JSON for other programs."""

from __future__ import annotations

from torchscale.analysis.summary.run import RunSummary
from torchscale.analysis.training.summary import TrainingSummary
from torchscale.report.formats.machine_export import machine_export
from torchscale.report.sections.first_screen.headline import headline
from torchscale.schema.exports.base import exported
from torchscale.schema.exports.report import ReportExport, SessionExport, TrainingCellExport


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
        sessions=tuple(map(SessionExport.model_validate, summary.sessions)),
        problems=summary.problems,
        cells=tuple(cell_export(cell, summary.flops_unknown(cell)) for cell in summary.cells),
        machine=tuple(map(machine_export, summary.machine)),
    )


def cell_export(summary: TrainingSummary, flops_unknown: str | None = None) -> TrainingCellExport:
    """A training cell with everything that was worked out of it. ``flops_unknown``: why that is not
    its FLOP/s, by :meth:`RunSummary.flops_unknown`; by default what its own launches say."""
    if flops_unknown is None:
        flops_unknown = summary.compute_unknown
    return exported(TrainingCellExport, summary, compute_unknown=flops_unknown)
