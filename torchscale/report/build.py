"""From a run's summary to the document."""

from __future__ import annotations

from collections.abc import Mapping

from torchscale.analysis.summary.run import RunSummary
from torchscale.report.document import (
    Document,
    shortened,
)
from torchscale.report.kinds import report_kind
from torchscale.report.sections.cells import cells_section
from torchscale.report.sections.environment import environment_section
from torchscale.report.sections.method import method_section
from torchscale.report.sections.reproduce import reproduce_section
from torchscale.report.sections.verdict import key_figures, verdict
from torchscale.report.text.labels import (
    device_names,
    format_run_days,
)
from torchscale.schema.cells.kinds import KINDS
from torchscale.schema.run.content import LaunchDetail


def build_document(
    summary: RunSummary, details: Mapping[str, LaunchDetail] | None = None, *, price: float | None = None
) -> Document:
    """The report of a run, complete or not.

    Args:
        summary: What came of its cells.
        details: By cell id, for those of :func:`~torchscale.report.sections.selection.detailed_cells`.
        price: Dollars for a device and hour; without it there is no cost.
    """
    experiment = summary.experiment
    subtitle = f"{device_names(summary)} · {shortened(experiment.environment.hostname)} · {format_run_days(summary)}"
    of_kinds = [
        section for name in reversed(KINDS) for section in report_kind(name).sections(summary, details or {}, price)
    ]
    of_all = (
        cells_section(summary),
        environment_section(summary),
        method_section(summary),
        reproduce_section(summary),
    )
    return Document(
        title=f"{'Training scaling' if summary.cells else 'Machine'}: {experiment.config.experiment_name}",
        subtitle=subtitle,
        verdict=verdict(summary),
        key_figures=key_figures(summary),
        sections=tuple(section for section in (*of_kinds, *of_all) if section.blocks),
    )
