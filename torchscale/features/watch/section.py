"""What ``watch`` saw of a program over time: since which step it is limited by what, at which line,
and where the wall time went."""

from __future__ import annotations

from torchscale.analysis.summary.run import RunSummary
from torchscale.features.watch.blocks import watched_blocks
from torchscale.features.watch.text import goodput_text, job_name
from torchscale.report.document import ReportPart, Section
from torchscale.report.text.labels import cell_label


def watched_section(summary: RunSummary) -> Section:
    """A table of findings with their steps for each program that was watched; empty without any."""
    seen = [
        (job_name(cell.watched) if cell.cell.is_watched else cell_label(cell.cell), cell.watched)
        for cell in summary.cells
        if cell.watched is not None
    ]
    blocks = [block for label, report in seen for block in watched_blocks(label, report)]
    key = ""
    if len(seen) == 1:
        key = f"goodput {goodput_text(seen[0][1])}"
    return Section("Over the job", "watched", tuple(blocks), ReportPart.CAUSES, key)
