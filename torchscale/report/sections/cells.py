"""Every cell with its state and main figures."""

from __future__ import annotations

from torchscale.analysis.summary.machine import MachineSummary
from torchscale.analysis.summary.run import RunSummary
from torchscale.analysis.training.summary import TrainingSummary
from torchscale.report.document import (
    DASH,
    Block,
    Bullets,
    Column,
    Paragraph,
    Section,
    Table,
    TableValue,
    Tone,
    optional_value,
    shortened,
)
from torchscale.report.kinds import report_kind
from torchscale.report.text.labels import (
    format_half_width,
    identity_columns,
    identity_values,
)
from torchscale.schema.state import State
from torchscale.util.units import format_bytes, format_percent, format_rate

_STATE_TONE = {
    State.OK: Tone.GOOD,
    State.SKIPPED: Tone.DIM,
    State.INTERRUPTED: Tone.CAUTION,
    State.INCOMPLETE: Tone.CAUTION,
}
_GRADE_TONE = {"excellent": Tone.GOOD, "good": Tone.GOOD, "low": Tone.CAUTION}
_MAX_REASON = 240
"""Characters of a reason in a table, about four lines of its column; files hold the whole text."""


def cells_section(summary: RunSummary) -> Section:
    """All cells with state, throughput, efficiency and warnings; machine cells; flags; unreadable files."""
    columns = (
        *identity_columns(summary),
        Column("state"),
        Column("samples/s", True),
        Column("per device", True),
        Column("tokens/s", True),
        Column("±95 %", True),
        Column("efficiency", True),
        Column("peak memory", True),
        Column("reason or warnings", prose=True),
    )
    table = Table("All cells", columns, tuple(_cell_row(cell) for cell in summary.cells), searchable=True)
    blocks: list[Block] = [table] if summary.cells else []
    if summary.machine:
        rows = tuple(_machine_row(cell) for cell in summary.machine)
        columns = (Column("measured"), Column("devices", True), Column("state"), Column("outcome", prose=True))
        blocks.append(Table("Machine cells", columns, rows))
    used = sorted({flag for cell in summary.cells for flag in cell.flags})
    if used:
        blocks.append(Bullets(tuple(f"{flag.value}: {flag.explanation}." for flag in used)))
    if summary.problems:
        blocks.append(Paragraph("Skipped because they could not be read:"))
        blocks.append(Bullets(tuple(shortened(problem) for problem in summary.problems)))
    return Section("Cells", "cells", tuple(blocks))


def _machine_row(summary: MachineSummary) -> tuple[TableValue, ...]:
    cell = summary.cell
    return (
        TableValue(shortened(" ".join([cell.title, *cell.settings]))),
        TableValue(str(cell.world_size), cell.world_size),
        TableValue(summary.state.value, summary.state.value, _STATE_TONE.get(summary.state, Tone.BAD)),
        TableValue(shortened(report_kind(cell.kind).outcome(summary) if summary.state is State.OK else summary.reason)),
    )


def _cell_row(summary: TrainingSummary) -> tuple[TableValue, ...]:
    state = TableValue(summary.state.value, summary.state.value, _STATE_TONE.get(summary.state, Tone.BAD))
    warnings = ", ".join(flag.value for flag in summary.flags)
    remark = TableValue(
        shortened(summary.reason or warnings, _MAX_REASON), None, Tone.CAUTION if warnings else Tone.PLAIN
    )
    figures = summary.figures
    if figures is None:
        return (*identity_values(summary.cell), state, *[DASH] * 6, remark)
    half_width = figures.run_half_width if figures.run_half_width is not None else figures.half_width
    return (
        *identity_values(summary.cell),
        state,
        TableValue(format_rate(figures.samples_per_second), figures.samples_per_second),
        TableValue(format_rate(figures.samples_per_second_per_device), figures.samples_per_second_per_device),
        optional_value(figures.tokens_per_second, format_rate),
        optional_value(half_width, format_half_width),
        _efficiency_value(summary),
        optional_value(figures.peak_memory_bytes, format_bytes),
        remark,
    )


def _efficiency_value(summary: TrainingSummary) -> TableValue:
    efficiency = summary.efficiency
    if efficiency is None:
        return DASH
    if efficiency.baseline_world_size == summary.cell.world_size:
        return TableValue("baseline", efficiency.value, Tone.DIM)
    text = format_percent(efficiency.value) + ("*" if efficiency.flags else "")
    if efficiency.is_vague:
        text += " (± over 100 %)"
    elif efficiency.interval is not None:
        low, high = (format_percent(end) for end in efficiency.interval)
        text += f" ({low} to {high})"
    return TableValue(text, efficiency.value, _GRADE_TONE[efficiency.grade])
