"""The sections of training cells."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from torchscale.analysis.summary.run import RunSummary
from torchscale.door import Slot
from torchscale.report.document import Section
from torchscale.report.sections.batch_sizes import frontier_section
from torchscale.report.sections.compute import compute_section
from torchscale.report.sections.cost import cost_section
from torchscale.report.sections.diagnosis import diagnosis_section
from torchscale.report.sections.experts import experts_section
from torchscale.report.sections.lost_time import lost_time_section
from torchscale.report.sections.over_time import over_time_section
from torchscale.report.sections.profiles import profile_section
from torchscale.report.sections.scaling import scaling_section
from torchscale.report.sections.step_times import step_times_section
from torchscale.report.sections.telemetry import telemetry_section
from torchscale.report.sections.workloads import data_section
from torchscale.schema.run.content import LaunchDetail


class TrainingSection(Protocol):
    """What a feature offers to a report of training, after the diagnosis and the profiles."""

    def __call__(self, summary: RunSummary) -> Section:
        """The section; empty where the run has nothing for it."""


_OF_FEATURES: Slot[TrainingSection] = Slot("sections of training")


def sections(
    summary: RunSummary, details: Mapping[str, LaunchDetail], price: float | None
) -> tuple[Section, ...]:
    """How training scales, what limits it, and what it takes of devices, memory and money."""
    return (
        scaling_section(summary),
        lost_time_section(summary),
        diagnosis_section(summary),
        profile_section(summary),
        *(_OF_FEATURES[name](summary) for name in _OF_FEATURES),
        step_times_section(summary),
        over_time_section(summary, details),
        frontier_section(summary),
        cost_section(summary, price),
        compute_section(summary),
        experts_section(summary),
        telemetry_section(summary),
        data_section(summary),
    )
