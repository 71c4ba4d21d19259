"""Checkpoints: how fast the state of training is saved and loaded, and what training loses to it."""

from __future__ import annotations

from collections.abc import Mapping

from torchscale.analysis.summary.machine import CheckpointSummary
from torchscale.analysis.summary.run import RunSummary
from torchscale.features.machine.checkpoint.text import (
    busy_line,
    load_text,
    slowing_line,
    slowing_text,
)
from torchscale.report.document import Block, Bullets, Paragraph, ReportPart, Section
from torchscale.report.table import ColumnOf, table_of
from torchscale.report.text.labels import cell_label
from torchscale.report.text.run_labels import identity_of
from torchscale.report.values import TableValue, only_if, shortened
from torchscale.schema.exports.checkpoint import CheckpointFigures, RankRates
from torchscale.schema.run.content import LaunchDetail
from torchscale.util.units import (
    format_byte_rate,
    format_bytes,
    format_seconds,
    format_whole_percent,
)
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
    blocks: list[Block] = [
        Paragraph(note),
        table_of(
            "Checkpoints",
            _CHECKPOINTS,
            [figures for _, figures in measured],
            identity_of(summary, (cell.cell.training for cell, _ in measured)),
        ),
    ]
    slowest = [
        (cell, rates)
        for cell, figures in measured
        for rates in sorted(figures.ranks, key=lambda one: one.save or 0.0)[:_MAX_RANKS]
    ]
    blocks.append(
        table_of(
            "Each rank while it wrote and read",
            _RANKS,
            [rates for _, rates in slowest],
            identity_of(summary, (cell.cell.training for cell, _ in slowest)),
        )
    )
    remarks = tuple(
        f"{cell_label(cell.cell.training)}: {shortened(remark)}"
        for cell, figures in measured
        for remark in checkpoint_remarks(cell, figures)
    )
    blocks += only_if(remarks, Bullets(remarks))
    rates = [figures.save_bytes_per_second for _, figures in measured]
    key = format_range(rates, format_byte_rate, "saved at ")
    return Section("Checkpoints", "checkpoints", tuple(blocks), ReportPart.MACHINE, key)


def checkpoint_remarks(cell: CheckpointSummary, figures: CheckpointFigures) -> list[str]:
    """What limits the figures, in sentences: slowing, doubts about loads, warnings."""
    remarks = [slowing_line(figures), busy_line(figures)]
    if figures.doubt:
        remarks.append(f"The load is not proved cold: {figures.doubt}.")
    remarks += [f"{flag.value}: {flag.explanation}." for flag in cell.flags]
    return [remark for remark in remarks if remark]


def _place(figures: CheckpointFigures) -> str:
    return shortened(figures.place) + f" ({figures.filesystem})" * bool(figures.filesystem)


def sections(
    summary: RunSummary, details: Mapping[str, LaunchDetail], price: float | None
) -> tuple[Section, ...]:
    """One, with all cells of the kind."""
    return (checkpoint_section(summary),)


_CHECKPOINTS: tuple[ColumnOf[CheckpointFigures], ...] = (
    ColumnOf("directory", _place),
    ColumnOf("bytes", lambda one: one.payload_bytes, format_bytes),
    ColumnOf("saved at", lambda one: one.save_bytes_per_second, format_byte_rate),
    ColumnOf(
        "loaded at", lambda one: TableValue(load_text(one), one.load_bytes_per_second), numeric=True
    ),
    ColumnOf("stop", lambda one: one.stop_seconds, format_seconds),
    ColumnOf("async stop", lambda one: one.async_stop_seconds, format_seconds),
    ColumnOf("durable", lambda one: one.durable_seconds, format_seconds),
    ColumnOf("steps meanwhile", lambda one: TableValue(slowing_text(one), one.slowed)),
    ColumnOf("host memory", lambda one: one.host_bytes, format_bytes),
)
_RANKS: tuple[ColumnOf[RankRates], ...] = (
    ColumnOf("rank", lambda one: one.rank, str),
    ColumnOf("bytes", lambda one: one.payload_bytes, format_bytes),
    ColumnOf("wrote at", lambda one: one.save, format_byte_rate),
    ColumnOf("read at", lambda one: one.load, format_byte_rate),
    ColumnOf("computing while writing", lambda one: one.save_cpu, format_whole_percent),
    ColumnOf("while reading", lambda one: one.load_cpu, format_whole_percent),
)
