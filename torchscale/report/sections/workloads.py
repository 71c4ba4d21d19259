"""Details of the workload: data files, and the pipeline bubble."""

from __future__ import annotations

from torchscale.analysis.summary.run import RunSummary
from torchscale.analysis.training.summary import TrainingSummary
from torchscale.report.document import (
    Column,
    Group,
    Paragraph,
    Section,
    Table,
    TableValue,
    optional_text,
    shortened,
)
from torchscale.report.text.labels import cell_label
from torchscale.report.text.words import plural
from torchscale.schema.launch.rank import DataUse
from torchscale.util.units import format_bytes, format_percent, format_seconds

_COLD = 0.05
"""Reads count as cold up to this share of pages in the page cache: the kernel keeps some pages
(directory blocks, file headers) after it was asked to drop them."""


def data_section(summary: RunSummary) -> Section:
    """Which files batches came from, and whether they were read from disk; empty without any."""
    rows = tuple(
        _data_row(cell, use) for cell in summary.measured if (use := cell.facts.data) is not None
    )
    if not rows:
        return Section("Data", "data", ())
    columns = (
        Column("cell", prose=True),
        Column("source"),
        Column("size", True),
        Column("passes", True),
        Column("files"),
        Column("reads"),
        Column("data wait", True),
    )
    note = (
        "Passes: how often the launch read the whole data set, including warm-up. Reads are cold "
        "if the files were not in the page cache before the first step, and only in the first "
        "pass. Data wait is a mean per step and rank."
    )
    return Section(
        "Data",
        "data",
        (Paragraph(note), Table("Files that were read", columns, rows)),
        Group.CAUSES,
        f"{plural(len(rows), 'cell')} read files",
    )


def bubble_values(cell: TrainingSummary) -> tuple[TableValue, TableValue]:
    """Measured and computed share; dashes without a pipeline."""
    if cell.figures is None or cell.figures.bubble is None:
        return TableValue("–"), TableValue("–")
    bubble = cell.figures.bubble
    return _share_value(bubble.measured), _share_value(bubble.computed)


def _share_value(share: float | None) -> TableValue:
    return TableValue(optional_text(share, format_percent), share)


def _data_row(cell: TrainingSummary, use: DataUse) -> tuple[TableValue, ...]:
    assert cell.figures is not None  # noqa: S101 - only measured cells come here
    wait = cell.figures.phases.data_wait
    return (
        TableValue(cell_label(cell.cell)),
        TableValue(shortened(f"{use.source}: {use.path}")),
        TableValue(format_bytes(use.size_bytes), use.size_bytes),
        TableValue(optional_text(use.epochs, "{:.2f}".format), use.epochs),
        TableValue(_files(use)),
        TableValue(_reads(use)),
        TableValue(format_seconds(wait), wait),
    )


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
