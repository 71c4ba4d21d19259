"""Builds the document of a run from its summary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from torchscale.analysis.summary.run import RunSummary
from torchscale.door import Slot
from torchscale.report.document import ChartGrid, Document, Overview, ReportPart, Section
from torchscale.report.sections.cells import cells_section, every_cell_section, throughput_section
from torchscale.report.sections.environment import environment_section
from torchscale.report.sections.first_screen.recorded import profiled_only
from torchscale.report.sections.first_screen.verdict import overview
from torchscale.report.sections.method import method_section
from torchscale.report.sections.reproduce import reproduce_section
from torchscale.report.text.run_labels import device_names, run_period
from torchscale.report.text.times import format_period
from torchscale.report.values import shortened
from torchscale.schema.cells.kinds import KINDS
from torchscale.schema.run.content import LaunchDetail


class KindSections(Protocol):
    """Makes the sections of a kind of cell; some may be empty. Arguments as of
    :func:`build_document`."""

    def __call__(
        self, summary: RunSummary, details: Mapping[str, LaunchDetail], price: float | None
    ) -> tuple[Section, ...]: ...


_SECTIONS: Slot[KindSections] = Slot("sections of kinds")


def build_document(
    summary: RunSummary,
    details: Mapping[str, LaunchDetail] | None = None,
    *,
    price: float | None = None,
) -> Document:
    """The report of a run, complete or not.

    Args:
        summary: What came of its cells.
        details: Details by cell id, for those of
            :func:`~torchscale.report.sections.selection.detailed_cells`.
        price: Dollars for a device and hour; without it there is no cost.
    """
    experiment = summary.experiment
    parts = (
        device_names(summary),
        shortened(experiment.environment.hostname),
        format_period(*run_period(summary)),
    )
    of_kinds = [
        section
        for name in reversed(KINDS)
        for section in _SECTIONS[name](summary, details or {}, price)
    ]
    of_all = (
        cells_section(summary),
        every_cell_section(summary),
        throughput_section(summary),
        environment_section(summary),
        method_section(summary),
        reproduce_section(summary),
    )
    sections = [section for section in (*of_kinds, *of_all) if section.blocks]
    return Document(
        title=_title(summary),
        subtitle=" · ".join(parts),
        verdict=(),
        key_figures=(),
        sections=tuple(sorted(sections, key=_place)),
        overview=_with_chart(overview(summary), sections),
    )


def _title(summary: RunSummary) -> str:
    if summary.job is not None:
        return f"Watched job: {shortened(summary.cells[0].cell.title)}"
    kind = "Training scaling"
    if not summary.cells:
        kind = "Machine"
    elif profiled_only(summary):
        kind = "Training profile"
    return f"{kind}: {summary.experiment.config.experiment_name}"


def _with_chart(first: Overview, sections: Sequence[Section]) -> Overview:
    """Add the first chart of the sections to the first screen of a run of machine cells."""
    charts = (chart for section in sections for block in section.blocks if isinstance(block, ChartGrid)
              for chart in block.charts)  # fmt: skip
    chart = next(charts, None) if first.chart is None else None
    return first if chart is None else replace(first, chart=replace(chart, name="overview"))


def _place(section: Section) -> int:
    """Place of the section's group; sections of one group keep their order, and tables of cells
    come first."""
    groups = list(ReportPart)
    if section.anchor in ("cells", "all-cells"):
        return -1
    return groups.index(section.group) if section.group else len(groups)
