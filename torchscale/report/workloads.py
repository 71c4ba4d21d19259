"""Parts of the report about what was trained: files that were read, pipelines, compilation."""

from __future__ import annotations

from torchscale.analysis.results import CellSummary, RunSummary
from torchscale.report.document import Column, Paragraph, Section, Table, Value, shortened
from torchscale.report.words import cell_words
from torchscale.schema.record import DataUse
from torchscale.units import format_bytes, format_percent, format_seconds

_COLD = 0.05
"""Share of pages in memory up to which reads are called cold."""


def data_section(summary: RunSummary) -> Section:
    """Which files batches came from, and whether they were read from disk; empty without any."""
    rows = tuple(_data_row(cell, use) for cell in summary.measured if (use := cell.facts.data) is not None)
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
        "Passes: how often the launch went through the data, warm-up included. Reads are cold where the kernel had "
        "forgotten the pages before the first step, and only in the first pass; data wait is a mean per step and rank."
    )
    return Section("Data", "data", (Paragraph(note), Table("Files that were read", columns, rows)))


def bubble_values(cell: CellSummary) -> tuple[Value, Value]:
    """Measured and computed share; dashes without a pipeline."""
    bubble = None if cell.figures is None else cell.figures.bubble
    shares = (None, None) if bubble is None else (bubble.measured, bubble.computed)
    measured, computed = (Value("–") if share is None else Value(format_percent(share), share) for share in shares)
    return measured, computed


def _data_row(cell: CellSummary, use: DataUse) -> tuple[Value, ...]:
    assert cell.figures is not None  # noqa: S101 - only measured cells come here
    wait = cell.figures.phases.data_wait
    return (
        Value(cell_words(cell.cell)),
        Value(shortened(f"{use.source}: {use.path}")),
        Value(format_bytes(use.size_bytes), use.size_bytes),
        Value("–" if use.epochs is None else f"{use.epochs:.2f}", use.epochs),
        Value(_files(use)),
        Value(_reads(use)),
        Value(format_seconds(wait), wait),
    )


def _files(use: DataUse) -> str:
    counts = {"written": use.shards_written, "repaired": use.shards_repaired, "used again": use.shards_reused}
    return ", ".join(f"{count} {word}" for word, count in counts.items() if count) or "–"


def _reads(use: DataUse) -> str:
    if use.resident_share is None:
        return "not known"
    if use.resident_share <= _COLD:
        return "cold"
    refused = "; asked to be cold" if use.asked_cold else ""
    return f"warm: {format_percent(use.resident_share, 0)} in memory{refused}"
