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
    caution_where,
    only_if,
    shortened,
)
from torchscale.report.sections.first_screen.status import profiled_only
from torchscale.report.text.figures import (
    PADDING,
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
from torchscale.report.text.labels import identity_values, variants
from torchscale.report.text.measurement import flag_text
from torchscale.report.text.run_labels import identity_columns
from torchscale.schema.state import State
from torchscale.util.units import format_rate
from torchscale.util.words import format_range

MAX_FIRST_ROWS = 20
"""Cells that are shown at once: half a page of paper, less than a screen."""
_MAX_REASON = 240
"""Characters of a reason in a table, about four lines of its column; files hold the whole text."""


def cells_section(summary: RunSummary) -> Section:
    """The cells of a run of usual size, else the first of them: speed, efficiency, memory and
    warnings in one row."""
    if not summary.cells or profiled_only(summary):
        return Section(
            "All cells", "cells", tuple(_problems(summary)), Group.RESULTS, _key(summary)
        )
    shown = summary.cells[:MAX_FIRST_ROWS]
    everything = len(shown) == len(summary.cells)
    title = "All cells"
    if not everything:
        title = f"First {len(shown)} of {len(summary.cells):,} cells"
    table = _cells_table(summary, shown, title, searchable=everything)
    if everything:
        rest = [*_explanations(summary), *_problems(summary)]
    else:
        rest = []
    return Section(title, "cells", (table, *rest), Group.RESULTS, _key(summary), unfolded=True)


def every_cell_section(summary: RunSummary) -> Section:
    """All cells of a run that has more than fit a screen; empty else."""
    blocks: list[Block] = []
    if len(summary.cells) > MAX_FIRST_ROWS and not profiled_only(summary):
        table = _cells_table(summary, summary.cells, "All cells", searchable=True)
        blocks = [table, *_explanations(summary), *_problems(summary)]
    return Section("All cells", "all-cells", tuple(blocks), Group.RESULTS, _key(summary))


def throughput_section(summary: RunSummary) -> Section:
    """What else there is of speed: per device, in tokens, as a mean step."""
    has_padding = any(PADDING.value(cell) is not None for cell in summary.measured)
    figures = (
        THROUGHPUT,
        THROUGHPUT_PER_DEVICE,
        TOKENS,
        *only_if(has_padding, PADDING),
        STEP_MEAN,
    )
    columns = (*identity_columns(summary), *(quantity.column for quantity in figures))
    rows = tuple(
        (*identity_values(cell.cell), *(quantity.of(cell) for quantity in figures))
        for cell in summary.measured
    )
    if not rows:
        return Section("Throughput", "throughput", ())
    rates = [
        rate
        for cell in summary.measured
        if cell.figures is not None
        and (rate := cell.figures.samples_per_second_per_device) is not None
    ]
    key = f"{format_range(rates, format_rate)} samples/s per device" if rates else ""
    return Section(
        "Throughput", "throughput", (Table("Throughput", columns, rows),), Group.RESULTS, key
    )


def _cells_table(
    summary: RunSummary, cells: Sequence[TrainingSummary], caption: str, *, searchable: bool
) -> Table:
    figures = (THROUGHPUT, memory_quantity(summary))
    columns = (
        *identity_columns(summary),
        Column("state", optional=True),
        THROUGHPUT.column,
        Column("efficiency", True),
        memory_quantity(summary).column,
        Column("reason or warnings", prose=True),
    )
    return Table(
        caption, columns, tuple(_cell_row(cell, figures) for cell in cells), searchable=searchable
    )


def _explanations(summary: RunSummary) -> list[Block]:
    """The options of models whose names stand for them, and the meaning of flags."""
    options = variants(cell.cell for cell in summary.cells)
    used = sorted({flag for cell in summary.cells for flag in cell.flags})
    texts = (*options, *(f"{flag.value}: {flag_text(flag, summary.cells)}." for flag in used))
    if texts:
        return [Bullets(texts)]
    return []


def _problems(summary: RunSummary) -> list[Block]:
    """Machine cells without figures, and files that could not be read."""
    blocks: list[Block] = []
    missing = [cell for cell in summary.machine if cell.state is not State.OK]
    if missing:
        rows = tuple(_machine_row(cell) for cell in missing)
        columns = (
            Column("measured"),
            Column("devices", True),
            Column("state"),
            Column("reason", prose=True),
        )
        blocks.append(Table("Machine cells without figures", columns, rows))
    if summary.problems:
        blocks.append(Paragraph("Skipped because they could not be read:"))
        blocks.append(Bullets(tuple(shortened(problem) for problem in summary.problems)))
    return blocks


def _key(summary: RunSummary) -> str:
    """``7 of 12 measured, 2 in part``."""
    cells = summary.cells or summary.everything
    partial = sum(cell.state is State.PARTIAL for cell in cells)
    text = f"{sum(cell.state is State.OK for cell in cells):,} of {len(cells):,} measured"
    if partial:
        return f"{text}, {partial:,} in part"
    return text


def _machine_row(summary: MachineSummary) -> tuple[TableValue, ...]:
    cell = summary.cell
    return (
        TableValue(shortened(" ".join([cell.title, *cell.settings]))),
        TableValue(str(cell.world_size), cell.world_size),
        TableValue(summary.state.value, summary.state.value, state_tone(summary.state)),
        TableValue(shortened(summary.reason)),
    )


def _cell_row(
    summary: TrainingSummary, figures: tuple[Quantity, Quantity]
) -> tuple[TableValue, ...]:
    warnings = ", ".join(flag.value for flag in summary.flags)
    reason = ""
    if summary.state is not State.PARTIAL:
        reason = summary.reason
    remark = TableValue(shortened(reason or warnings, _MAX_REASON), None, caution_where(warnings))
    throughput, memory = (quantity.of(summary) for quantity in figures)
    return (
        *identity_values(summary.cell),
        state_value(summary),
        throughput,
        efficiency_value(summary),
        memory,
        remark,
    )
