"""The sections of training cells."""

from __future__ import annotations

from collections.abc import Mapping

from torchscale.analysis.summary.run import RunSummary
from torchscale.features.trace.sections.section import profile_section
from torchscale.features.watch.section import watched_section
from torchscale.report.document import Section
from torchscale.report.sections.compute import compute_section
from torchscale.report.sections.cost import cost_section
from torchscale.report.sections.diagnosis import diagnosis_section
from torchscale.report.sections.experts import experts_section
from torchscale.report.sections.frontier import frontier_section
from torchscale.report.sections.lost_time import lost_time_section
from torchscale.report.sections.over_time import over_time_section
from torchscale.report.sections.resources import telemetry_section
from torchscale.report.sections.scaling import scaling_section
from torchscale.report.sections.step_times import step_times_section
from torchscale.report.sections.workloads import data_section
from torchscale.schema.run.content import LaunchDetail


def sections(
    summary: RunSummary, details: Mapping[str, LaunchDetail], price: float | None
) -> tuple[Section, ...]:
    """How training scales, what limits it, and what it takes of devices, memory and money."""
    return (
        scaling_section(summary),
        lost_time_section(summary),
        diagnosis_section(summary),
        profile_section(summary),
        watched_section(summary, details),
        step_times_section(summary),
        over_time_section(summary, details),
        frontier_section(summary),
        cost_section(summary, price),
        compute_section(summary),
        experts_section(summary),
        telemetry_section(summary),
        data_section(summary),
    )
