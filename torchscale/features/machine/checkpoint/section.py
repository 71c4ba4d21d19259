"""Checkpoints: how fast the state of training is saved and loaded, and what training loses to it."""

from __future__ import annotations

from collections.abc import Mapping

from torchscale.analysis.machine.checkpoint import CheckpointFigures
from torchscale.analysis.summary.machine import CheckpointSummary
from torchscale.analysis.summary.run import RunSummary
from torchscale.features.machine.checkpoint.text import (
    busy_line,
    load_text,
    slowing_line,
    slowing_text,
)
from torchscale.report.document import (
    Block,
    Bullets,
    Column,
    Group,
    Paragraph,
    Section,
    Table,
    TableValue,
    only_if,
    optional_value,
    shortened,
)
from torchscale.report.text.labels import cell_label, identity_values
from torchscale.report.text.run_labels import identity_columns
from torchscale.schema.run.content import LaunchDetail
from torchscale.util.units import format_byte_rate, format_bytes, format_percent, format_seconds
from torchscale.util.words import format_range

_MAX_RANKS = 16
"""Maximum number of ranks of a cell in the table; JSON has all."""


def checkpoint_section(summary: RunSummary) -> Section:
    """Rates, stops and slowing of each cell; empty where no checkpoint was measured."""
    measured = [(cell, cell.figures) for cell in summary.checkpoints if cell.figures is not None]
    if not measured:
        return Section("Checkpoints", "checkpoints", ())
    note = (
        "Parameters and optimizer states, saved and loaded by torch.distributed.checkpoint; medians "
        "over repeats. Saved at: bytes of all ranks over the slowest rank's time until the disk has "
        "them. Loaded at: with the files dropped from the page cache. Stop: from the end of a step "
        "to the begin of the next. Durable: from that end until the disk has an asynchronous save. "
        "Steps meanwhile: against those before and after it."
    )
    columns = (
        *identity_columns(summary),
        Column("directory"),
        Column("bytes", True),
        Column("saved at", True),
        Column("loaded at", True),
        Column("stop", True),
        Column("async stop", True),
        Column("durable", True),
        Column("steps meanwhile"),
        Column("host memory", True),
    )
    rows = tuple(_row(cell, figures) for cell, figures in measured)
    blocks: list[Block] = [Paragraph(note), Table("Checkpoints", columns, rows)]
    ranks = tuple(row for cell, figures in measured for row in _rank_rows(cell, figures))
    rank_columns = (
        *identity_columns(summary),
        Column("rank", True),
        Column("bytes", True),
        Column("wrote at", True),
        Column("read at", True),
        Column("computing while writing", True),
        Column("while reading", True),
    )
    blocks.append(Table("Each rank while it wrote and read", rank_columns, ranks))
    remarks = tuple(
        f"{cell_label(cell.cell.training)}: {shortened(remark)}"
        for cell, figures in measured
        for remark in checkpoint_remarks(cell, figures)
    )
    blocks += only_if(remarks, Bullets(remarks))
    rates = [figures.save_bytes_per_second for _, figures in measured]
    key = format_range(rates, format_byte_rate, "saved at ")
    return Section("Checkpoints", "checkpoints", tuple(blocks), Group.MACHINE, key)


def checkpoint_remarks(cell: CheckpointSummary, figures: CheckpointFigures) -> list[str]:
    """What limits the figures, in sentences: slowing, doubts about loads, warnings."""
    remarks = [slowing_line(figures), busy_line(figures)]
    if figures.doubt:
        remarks.append(f"The load is not proved cold: {figures.doubt}.")
    remarks += [f"{flag.value}: {flag.explanation}." for flag in cell.flags]
    return [remark for remark in remarks if remark]


def _row(cell: CheckpointSummary, figures: CheckpointFigures) -> tuple[TableValue, ...]:
    place = shortened(figures.place) + f" ({figures.filesystem})" * bool(figures.filesystem)
    return (
        *identity_values(cell.cell.training),
        TableValue(place),
        TableValue(format_bytes(figures.payload_bytes), figures.payload_bytes),
        optional_value(figures.save_bytes_per_second, format_byte_rate),
        TableValue(load_text(figures), figures.load_bytes_per_second),
        optional_value(figures.stop_seconds, format_seconds),
        optional_value(figures.async_stop_seconds, format_seconds),
        optional_value(figures.durable_seconds, format_seconds),
        TableValue(slowing_text(figures), figures.slowed),
        optional_value(figures.host_bytes, format_bytes),
    )


def _rank_rows(cell: CheckpointSummary, figures: CheckpointFigures) -> list[tuple[TableValue, ...]]:
    """The slowest writers first."""
    slowest = sorted(figures.ranks, key=lambda one: one.save or 0.0)[:_MAX_RANKS]
    return [
        (
            *identity_values(cell.cell.training),
            TableValue(str(rates.rank), rates.rank),
            TableValue(format_bytes(rates.payload_bytes), rates.payload_bytes),
            optional_value(rates.save, format_byte_rate),
            optional_value(rates.load, format_byte_rate),
            optional_value(rates.save_cpu, lambda share: format_percent(share, 0)),
            optional_value(rates.load_cpu, lambda share: format_percent(share, 0)),
        )
        for rates in slowest
    ]


def sections(
    summary: RunSummary, details: Mapping[str, LaunchDetail], price: float | None
) -> tuple[Section, ...]:
    """One, with all cells of the kind."""
    return (checkpoint_section(summary),)
