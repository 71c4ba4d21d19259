"""Every cell with its state and main figures."""

from __future__ import annotations

from collections.abc import Sequence

from torchscale.analysis.summary.machine import MachineSummary
from torchscale.analysis.summary.run import RunSummary
from torchscale.analysis.training.summary import TrainingSummary
from torchscale.report.document import Block, Bullets, Paragraph, ReportPart, Section
from torchscale.report.sections.first_screen.recorded import profiled_only
from torchscale.report.table import ColumnOf, Table, table_of
from torchscale.report.text.cell_values import (
    efficiency_value,
    memory_quantity,
    rates,
    state_tone,
    state_value,
)
from torchscale.report.text.figures import PADDING, STEP_MEAN, THROUGHPUT_PER_DEVICE, TOKENS
from torchscale.report.text.labels import variants
from torchscale.report.text.measurement import flag_text
from torchscale.report.text.run_labels import identity_of
from torchscale.report.values import TableValue, caution_where, only_if, shortened
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
            "All cells", "cells", tuple(_problems(summary)), ReportPart.RESULTS, _key(summary)
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
    return Section(title, "cells", (table, *rest), ReportPart.RESULTS, _key(summary), unfolded=True)


def every_cell_section(summary: RunSummary) -> Section:
    """All cells of a run that has more than fit a screen; empty else."""
    blocks: list[Block] = []
    if len(summary.cells) > MAX_FIRST_ROWS and not profiled_only(summary):
        table = _cells_table(summary, summary.cells, "All cells", searchable=True)
        blocks = [table, *_explanations(summary), *_problems(summary)]
    return Section("All cells", "all-cells", tuple(blocks), ReportPart.RESULTS, _key(summary))


def throughput_section(summary: RunSummary) -> Section:
    """What else there is of speed: per device, in tokens, as a mean step."""
    has_padding = any(PADDING.value(cell) is not None for cell in summary.measured)
    figures = (
        *rates(summary.measured),
        THROUGHPUT_PER_DEVICE,
        TOKENS,
        *only_if(has_padding, PADDING),
        STEP_MEAN,
    )
    if not summary.measured:
        return Section("Throughput", "throughput", ())
    per_device = [
        rate
        for cell in summary.measured
        if cell.figures is not None
        and (rate := cell.figures.samples_per_second_per_device) is not None
    ]
    key = f"{format_range(per_device, format_rate)} samples/s per device" if per_device else ""
    table = table_of(
        "Throughput",
        [quantity.shown for quantity in figures],
        summary.measured,
        identity_of(summary, (cell.cell for cell in summary.measured)),
    )
    return Section("Throughput", "throughput", (table,), ReportPart.RESULTS, key)


def _cells_table(
    summary: RunSummary, cells: Sequence[TrainingSummary], caption: str, *, searchable: bool
) -> Table:
    columns: tuple[ColumnOf[TrainingSummary], ...] = (
        ColumnOf("state", state_value, optional=True),
        *(rate.shown for rate in rates(cells)),
        ColumnOf("efficiency", efficiency_value, numeric=True),
        memory_quantity(summary).shown,
        ColumnOf("reason or warnings", _remark, prose=True),
    )
    identity = identity_of(summary, (cell.cell for cell in cells))
    return table_of(caption, columns, cells, identity, searchable=searchable)


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
        columns: tuple[ColumnOf[MachineSummary], ...] = (
            ColumnOf(
                "measured", lambda one: shortened(" ".join([one.cell.title, *one.cell.settings]))
            ),
            ColumnOf("devices", lambda one: one.cell.world_size, str),
            ColumnOf("state", lambda one: _state(one.state)),
            ColumnOf("reason", lambda one: shortened(one.reason), prose=True),
        )
        blocks.append(table_of("Machine cells without figures", columns, missing))
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


def _state(state: State) -> TableValue:
    return TableValue(state.value, state.value, state_tone(state))


def _remark(summary: TrainingSummary) -> TableValue:
    warnings = ", ".join(flag.value for flag in summary.flags)
    reason = ""
    if summary.state is not State.PARTIAL:
        reason = summary.reason
    return TableValue(shortened(reason or warnings, _MAX_REASON), None, caution_where(warnings))
