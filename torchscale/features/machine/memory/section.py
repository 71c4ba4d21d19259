"""The section of memory cells: what a step holds, measured and predicted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from torchscale.analysis.summary.machine import MemorySummary
from torchscale.analysis.summary.run import RunSummary
from torchscale.report.charts import BarLayer, StackedChart
from torchscale.report.document import Block, ChartGrid, Paragraph, ReportPart, Section
from torchscale.report.table import ColumnOf, table_of
from torchscale.report.text.labels import batch_label, short_title
from torchscale.report.text.run_labels import identity_of
from torchscale.schema.cells.memory import MemoryParts, MemoryRank
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.run.content import LaunchDetail
from torchscale.util.optional import optional
from torchscale.util.units import (
    byte_unit,
    format_bytes,
    format_change,
    format_percent,
)
from torchscale.util.words import format_range, plural

_MAX_BARS = 12
"""Bars in a chart: more are narrower than their labels."""


def sections(
    summary: RunSummary, details: Mapping[str, LaunchDetail], price: float | None
) -> tuple[Section, ...]:
    """One, with all cells of the kind."""
    return (_memory_section(summary),)


def _memory_section(summary: RunSummary) -> Section:
    """Memory of a step by part, measured and predicted; empty where it was not measured."""
    blocks: list[Block] = []
    measured = [cell for cell in summary.memory if cell.fullest is not None]
    if measured:
        blocks.append(
            Paragraph(
                "Bytes of tensors on the device that uses most. Activations are the most that "
                "autograd saved for the backward pass (where unknown, they are part of the rest). "
                "Tensor peak: the peak over two steps, including model construction. Predicted: "
                "computed without running; error: relative to the peak. What training takes in "
                "all, in Cells, also contains what libraries and the allocator hold."
            )
        )
        blocks.append(ChartGrid((_memory_chart(measured[:_MAX_BARS]),), on_paper=False))
        identity = identity_of(summary, (cell.cell.training for cell in measured))
        blocks.append(table_of("Memory by part", _MEMORY, measured, identity))
    return Section("Memory", "memory", tuple(blocks), ReportPart.MACHINE, _memory_key(measured))


def _memory_key(measured: Sequence[MemorySummary]) -> str:
    """The range of peaks, and how far predictions are off."""
    text = format_range(
        [cell.fullest.peak_bytes for cell in measured if cell.fullest], format_bytes, "peak "
    )
    errors = [abs(error) for cell in measured if (error := cell.prediction_error) is not None]
    return text + (f", predicted within {format_percent(max(errors))}" if errors else "")


def _memory_chart(measured: Sequence[MemorySummary]) -> StackedChart:
    names = ("parameters", "gradients", "optimizer states", "activations", "rest of the peak")
    parts: list[list[float]] = [[] for _ in names]
    for cell in measured:
        rank = cell.fullest
        assert rank is not None  # noqa: S101 - only measured ones come here
        known_parts = (
            rank.parts.parameters,
            rank.parts.gradients,
            rank.parts.optimizer_states,
            rank.parts.activations or 0,
        )
        for values, count in zip(
            parts, (*known_parts, max(0, rank.peak_bytes - sum(known_parts))), strict=True
        ):
            values.append(count)
    unit, size = byte_unit(max(map(sum, zip(*parts, strict=True)), default=0.0))
    return StackedChart(
        name="memory-parts",
        title="Memory of a device by part",
        summary="Tensor bytes of each cell by part, and the rest of the allocator's peak.",
        x_label=unit,
        y_label="",
        bars=tuple(_bar_name(cell.cell.training) for cell in measured),
        parts=tuple(
            BarLayer(
                name,
                tuple(value / size for value in values),
                None if number == len(names) - 1 else number,
            )
            for number, (name, values) in enumerate(zip(names, parts, strict=True))
        ),
        horizontal=True,
    )


def _bar_name(cell: TrainingCell) -> str:
    return f"{short_title(cell)}, {batch_label(cell)}, {plural(cell.world_size, 'device')}"


def _part_column(title: str, part: Callable[[MemoryParts], int | None]) -> ColumnOf[MemorySummary]:
    return ColumnOf(title, _of_fullest(lambda rank: part(rank.parts)), format_bytes)


def _of_fullest(
    value: Callable[[MemoryRank], int | None],
) -> Callable[[MemorySummary], int | None]:
    return lambda cell: optional(value, cell.fullest)


_MEMORY: tuple[ColumnOf[MemorySummary], ...] = (
    _part_column("parameters", lambda parts: parts.parameters),
    _part_column("gradients", lambda parts: parts.gradients),
    _part_column("optimizer", lambda parts: parts.optimizer_states),
    _part_column("activations", lambda parts: parts.activations),
    ColumnOf("tensor peak", _of_fullest(lambda rank: rank.peak_bytes), format_bytes),
    ColumnOf("reserved", _of_fullest(lambda rank: rank.reserved_bytes), format_bytes),
    ColumnOf(
        "predicted", lambda cell: optional(lambda one: one.peak_bytes, cell.predicted), format_bytes
    ),
    ColumnOf("error", lambda cell: cell.prediction_error, format_change),
)
