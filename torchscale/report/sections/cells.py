"""Every cell with its state and main figures."""

from __future__ import annotations

from collections.abc import Sequence

from torchscale.analysis.summary.machine import MachineSummary
from torchscale.analysis.summary.run import RunSummary
from torchscale.analysis.training.summary import TrainingSummary
from torchscale.report.document import (
    Block,
    Bullets,
    Column,
    Group,
    Paragraph,
    Section,
    Table,
    TableValue,
    Tone,
    shortened,
)
from torchscale.report.text.figures import (
    STEP_MEAN,
    THROUGHPUT,
    THROUGHPUT_PER_DEVICE,
    TOKENS,
    Quantity,
    efficiency_value,
    memory_quantity,
    state_tone,
    state_value,
)
from torchscale.report.text.labels import identity_columns, identity_values
from torchscale.report.text.measurement import flag_text
from torchscale.schema.state import State

_MAX_REASON = 240
"""Characters of a reason in a table, about four lines of its column; files hold the whole text."""


def cells_section(summary: RunSummary) -> Section:
    """All cells with state, throughput, efficiency and warnings; machine cells; flags; unreadable files."""
    figures = (THROUGHPUT, THROUGHPUT_PER_DEVICE, TOKENS, STEP_MEAN, memory_quantity(summary))
    columns = (
        *identity_columns(summary),
        Column("state"),
        *(quantity.column for quantity in figures),
        Column("efficiency", True),
        Column("reason or warnings", prose=True),
    )
    rows = tuple(_cell_row(cell, figures) for cell in summary.cells)
    table = Table("All cells", columns, rows, searchable=True)
    blocks: list[Block] = [table] if summary.cells else []
    missing = [cell for cell in summary.machine if cell.state is not State.OK]
    if missing:
        rows = tuple(_machine_row(cell) for cell in missing)
        columns = (Column("measured"), Column("devices", True), Column("state"), Column("reason", prose=True))
        blocks.append(Table("Machine cells without figures", columns, rows))
    used = sorted({flag for cell in summary.cells for flag in cell.flags})
    if used:
        blocks.append(Bullets(tuple(f"{flag.value}: {flag_text(flag, summary.cells)}." for flag in used)))
    if summary.problems:
        blocks.append(Paragraph("Skipped because they could not be read:"))
        blocks.append(Bullets(tuple(shortened(problem) for problem in summary.problems)))
    return Section("All cells", "cells", tuple(blocks), Group.RESULTS, _key(summary))


def _key(summary: RunSummary) -> str:
    """``7 of 12 measured, 2 in part``."""
    cells = summary.cells or summary.everything
    partial = sum(cell.state is State.PARTIAL for cell in cells)
    text = f"{sum(cell.state is State.OK for cell in cells):,} of {len(cells):,} measured"
    return f"{text}, {partial:,} in part" if partial else text


def _machine_row(summary: MachineSummary) -> tuple[TableValue, ...]:
    cell = summary.cell
    return (
        TableValue(shortened(" ".join([cell.title, *cell.settings]))),
        TableValue(str(cell.world_size), cell.world_size),
        TableValue(summary.state.value, summary.state.value, state_tone(summary.state)),
        TableValue(shortened(summary.reason)),
    )


def _cell_row(summary: TrainingSummary, figures: Sequence[Quantity]) -> tuple[TableValue, ...]:
    warnings = ", ".join(flag.value for flag in summary.flags)
    reason = "" if summary.state is State.PARTIAL else summary.reason
    remark = TableValue(shortened(reason or warnings, _MAX_REASON), None, Tone.CAUTION if warnings else Tone.PLAIN)
    return (
        *identity_values(summary.cell),
        state_value(summary),
        *(quantity.of(summary) for quantity in figures),
        efficiency_value(summary),
        remark,
    )
