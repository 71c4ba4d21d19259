"""The section of memory cells."""

from __future__ import annotations

from collections.abc import Mapping

from torchscale.analysis.summary.run import RunSummary
from torchscale.report.document import Section
from torchscale.report.sections.resources import memory_section
from torchscale.schema.run.content import LaunchDetail


def sections(
    summary: RunSummary, details: Mapping[str, LaunchDetail], price: float | None
) -> tuple[Section, ...]:
    """One, with all cells of the kind."""
    return (memory_section(summary),)
