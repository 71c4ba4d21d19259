"""The summary of a run, or the checks of a node, as what exporters take."""

from __future__ import annotations

from torchscale.analysis.kinds import AnySummary
from torchscale.analysis.summary.run import RunSummary
from torchscale.report.exporters.figure import ExportedCell, ExportedRun
from torchscale.report.kinds import report_kind
from torchscale.schema.node.check import Validation
from torchscale.util.text import strip_control

_LABELS = {"model": "model", "gpu_count": "gpus"}
"""Columns of ``summary.csv`` that people select by → their names there."""
_PROPERTIES = (
    *("batch_size", "precision", "strategy", "scaling", "optimizer", "compile", "gradient_accumulation"),
    *("activation_checkpointing", "data_source"),
)
"""Columns that say what was measured."""


def exported_run(summary: RunSummary) -> ExportedRun:
    """Every cell of a run, those without figures too."""
    return ExportedRun(summary.name, tuple(_cell(cell) for cell in summary.in_plan_order))


def exported_checks(validation: Validation, name: str) -> ExportedRun:
    """The checks of a node."""
    return ExportedRun(name, checks=validation.checks)


def _cell(summary: AnySummary) -> ExportedCell:
    kind = report_kind(summary.cell.kind)
    row = {name: str(value) for name, value in kind.csv_row(summary).items() if value not in (None, "")}
    return ExportedCell(
        id=summary.cell.id,
        kind=summary.cell.kind,
        labels={label: row[name] for name, label in _LABELS.items() if name in row},
        properties={name: row[name] for name in _PROPERTIES if name in row},
        state=summary.state,
        reason=strip_control(summary.reason),
        flags=tuple(sorted({*row.get("flags", "").split(), *row.get("efficiency_flags", "").split()})),
        figures=kind.figures(summary),
    )
