"""Details of the workload: data files, and the pipeline bubble."""

from __future__ import annotations

from torchscale.analysis.summary.run import RunSummary
from torchscale.analysis.training.summary import TrainingSummary
from torchscale.report.document import Paragraph, ReportPart, Section
from torchscale.report.table import ColumnOf, table_of
from torchscale.report.text.labels import cell_label
from torchscale.report.values import TableValue, optional_text, shortened
from torchscale.schema.launch.rank import DataUse
from torchscale.util.units import format_bytes, format_percent, format_seconds
from torchscale.util.words import plural

_COLD = 0.05
"""Reads count as cold up to this share of pages in the page cache: the kernel keeps some pages
(directory blocks, file headers) after it was asked to drop them."""


def data_section(summary: RunSummary) -> Section:
    """Which files batches came from, and whether they were read from disk; empty without any."""
    cells = [
        (cell, cell.figures.phases.data_wait, use)
        for cell in summary.measured
        if (use := cell.facts.data) is not None and cell.figures is not None
    ]
    if not cells:
        return Section("Data", "data", ())
    columns: tuple[ColumnOf[tuple[TrainingSummary, float, DataUse]], ...] = (
        ColumnOf("cell", lambda row: cell_label(row[0].cell), prose=True),
        ColumnOf("source", lambda row: shortened(f"{row[2].source}: {row[2].path}")),
        ColumnOf("size", lambda row: row[2].size_bytes, format_bytes),
        ColumnOf("passes", lambda row: _passes(row[2]), numeric=True),
        ColumnOf("files", lambda row: _files(row[2])),
        ColumnOf("reads", lambda row: _reads(row[2])),
        ColumnOf("data wait", lambda row: row[1], format_seconds),
    )
    note = (
        "Passes: how often the launch read the whole data set, including warm-up. Reads are cold "
        "if the files were not in the page cache before the first step, and only in the first "
        "pass. Data wait is a mean per step and rank."
    )
    return Section(
        "Data",
        "data",
        (Paragraph(note), table_of("Files that were read", columns, cells)),
        ReportPart.CAUSES,
        f"{plural(len(cells), 'cell')} read files",
    )


def bubble_values(cell: TrainingSummary) -> tuple[TableValue, TableValue]:
    """Measured and computed share; dashes without a pipeline."""
    if cell.figures is None or cell.figures.bubble is None:
        return TableValue("–"), TableValue("–")
    bubble = cell.figures.bubble
    return _share_value(bubble.measured), _share_value(bubble.computed)


def _share_value(share: float | None) -> TableValue:
    return TableValue(optional_text(share, format_percent), share)


def _passes(use: DataUse) -> TableValue:
    return TableValue(optional_text(use.epochs, "{:.2f}".format), use.epochs)


def _files(use: DataUse) -> str:
    counts = {
        "written": use.shards_written,
        "repaired": use.shards_repaired,
        "reused": use.shards_reused,
    }
    return ", ".join(f"{count} {word}" for word, count in counts.items() if count) or "–"


def _reads(use: DataUse) -> str:
    if use.resident_share is None:
        return "unknown"
    if use.resident_share <= _COLD:
        return "cold"
    refused = ""
    if use.asked_cold:
        refused = "; cold reads were requested"
    return f"warm: {format_percent(use.resident_share, 0)} in memory{refused}"
