"""Recordings of measured cells."""

from __future__ import annotations

from collections.abc import Sequence

from torchscale.analysis.summary.run import RunSummary
from torchscale.report.document import Block, Details, Paragraph, ReportPart, Section
from torchscale.report.profile_blocks import operation_tables, profile_blocks
from torchscale.report.text.labels import batch_label, panel_title
from torchscale.schema.profiles.analysis import ProfileAnalysis
from torchscale.util.units import format_percent
from torchscale.util.words import format_range, plural

MAX_PROFILES = 12
"""Each profile has a timeline of the full page width and two tables."""


def profile_section(summary: RunSummary) -> Section:
    """Each profiled cell: sync stall time, findings, time by rank, and the longest step as a
    timeline."""
    blocks: list[Block] = []
    profiled = [(cell, cell.profile) for cell in summary.cells if cell.profile is not None]
    advised: set[str] = set()
    for cell, analysis in profiled[:MAX_PROFILES]:
        ranks = plural(cell.cell.world_size, "rank")
        title = f"{panel_title(cell.cell)}, {batch_label(cell.cell)}, {ranks}"
        blocks += profile_blocks(analysis, title, advised)
        tables = operation_tables(analysis)
        if tables:
            blocks.append(Details(f"Collectives and kernels: {title}", tables))
    if len(profiled) > MAX_PROFILES:
        blocks.append(Paragraph(f"Showing the first {MAX_PROFILES} of {len(profiled)} profiles."))
    return Section(
        "Profiles", "profiles", tuple(blocks), ReportPart.CAUSES, _key([one for _, one in profiled])
    )


def _key(analyses: Sequence[ProfileAnalysis]) -> str:
    """The range of sync stall times."""
    stalls = [
        one.sync_stall_percent / 100 for one in analyses if one.sync_stall_percent is not None
    ]
    if stalls:
        return format_range(stalls, format_percent, "sync stall ")
    return ""
