"""The batch-size frontier: throughput of larger batches, up to out of memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torchscale.analysis.summary.run import RunSummary
from torchscale.analysis.training.summary import TrainingSummary
from torchscale.report.charts import Chart, ChartSeries, chart_name
from torchscale.report.document import Block, ChartGrid, Paragraph, ReportPart, Section
from torchscale.report.sections.selection import MAX_LINES, MAX_PANELS, spread_out
from torchscale.report.table import ColumnOf, Table, table_of
from torchscale.report.text.labels import panel_title
from torchscale.report.text.run_labels import device_noun
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.state import State
from torchscale.util.units import byte_unit


def frontier_section(summary: RunSummary) -> Section:
    """Throughput and peak memory over batch sizes; empty where each model has one and none ran out
    of memory."""
    groups: dict[str, list[TrainingSummary]] = {}
    for cell in _with_batch(summary.cells):
        groups.setdefault(panel_title(cell.cell), []).append(cell)
    drawn = [
        (title, cells)
        for title, cells in groups.items()
        if _batches(cells) > 1 and _measured(cells)
    ]
    blocks: list[Block] = []
    if drawn:
        text = "Total throughput, and peak memory of the device that uses most, by batch size."
        if any(cell.state is State.OOM for _, cells in drawn for cell in cells):
            text += " A cross on the axis marks a batch size that ran out of memory."
        blocks.append(Paragraph(text, of_charts=True))
        charts = [
            _chart(title, cells, summary, memory=memory)
            for title, cells in drawn
            for memory in (False, True)
        ]
        blocks.append(ChartGrid(tuple(chart for chart in charts if chart is not None)[:MAX_PANELS]))
    table = _edge_table(summary)
    if table is not None:
        blocks.append(table)
    return Section("Batch sizes", "batches", tuple(blocks), ReportPart.RESULTS, _key(summary))


def _with_batch(cells: Sequence[TrainingSummary]) -> list[TrainingSummary]:
    """Without scripts that are not told their batch size."""
    return [cell for cell in cells if cell.cell.batch_size is not None]


def _key(summary: RunSummary) -> str:
    """The largest batch that ran, and the smallest that did not fit."""
    ran = [size for cell in summary.measured if (size := cell.cell.batch_size) is not None]
    failed = [
        size
        for cell in summary.cells
        if cell.state is State.OOM and (size := cell.cell.batch_size) is not None
    ]
    texts = []
    if ran:
        texts.append(f"up to {max(ran)}")
    if failed:
        texts.append(f"out of memory from {min(failed)}")
    return "; ".join(texts)


def _batches(cells: Sequence[TrainingSummary]) -> int:
    return len({cell.cell.batch_size for cell in cells if cell.state in (State.OK, State.OOM)})


def _measured(cells: Sequence[TrainingSummary]) -> bool:
    return any(cell.figures is not None for cell in cells)


def _chart(
    title: str, cells: Sequence[TrainingSummary], summary: RunSummary, *, memory: bool
) -> Chart | None:
    counts = sorted({cell.cell.world_size for cell in cells if cell.figures})
    series = []
    for count in spread_out(counts, MAX_LINES):
        here = sorted(
            (cell for cell in cells if cell.cell.world_size == count),
            key=lambda cell: cell.cell.batch_size or 0,
        )
        series += _lines(f"{count} {device_noun(summary, count)}", here, memory=memory)
    batches = sorted({x for line in series for x in line.x})
    if len(batches) < 2:
        return None
    name, what, unit = "batch-rate", "Throughput", "samples/s"
    if memory:
        unit, size = byte_unit(max(y for line in series for y in line.y))
        series = [replace(line, y=tuple(y / size for y in line.y)) for line in series]
        name, what = "batch-memory", "Peak memory"
    fixed = "of all devices"
    if cells[0].cell.scaling == "weak":
        fixed = "per device"
    return Chart(
        name=chart_name(name, title),
        title=f"{title}: {what.lower()}",
        summary=f"{what} over batch sizes for {title}.",
        x_label=f"batch size {fixed}",
        y_label=unit,
        series=tuple(series),
        x_ticks=tuple(spread_out(batches, 10)),
        log_x=True,
    )


def _lines(name: str, cells: Sequence[TrainingSummary], *, memory: bool) -> list[ChartSeries]:
    """The line of one count over its batch sizes, and a mark at each that ran out of memory."""
    lines = []
    points = [
        (float(cell.cell.batch_size or 0), value)
        for cell in cells
        if (value := _level(cell, memory)) is not None
    ]
    if points:
        lines.append(ChartSeries(name, tuple(x for x, _ in points), tuple(y for _, y in points)))
    failed = tuple(float(cell.cell.batch_size or 0) for cell in cells if cell.state is State.OOM)
    if failed and not memory:
        zeros = (0.0,) * len(failed)
        lines.append(ChartSeries(f"{name}: out of memory", failed, zeros, marks=True))
    return lines


def _level(cell: TrainingSummary, memory: bool) -> float | None:
    figures = cell.figures
    if figures is None:
        return None
    if not memory:
        return figures.samples_per_second
    if figures.peak_memory_bytes is None:
        return None
    return float(figures.peak_memory_bytes)


def _edge_table(summary: RunSummary) -> Table | None:
    """Largest batch that ran and smallest that ran out of memory, where any did."""
    trained: list[tuple[TrainingCell, State]] = [(cell.cell, cell.state) for cell in summary.cells]
    trained += [(cell.cell.training, cell.state) for cell in summary.memory]
    groups: dict[tuple[str, int], list[tuple[int, State]]] = {}
    for cell, state in trained:
        if cell.batch_size is not None:
            groups.setdefault((panel_title(cell), cell.world_size), []).append(
                (cell.batch_size, state)
            )
    rows = []
    for (title, count), found in groups.items():
        failed = [batch for batch, state in found if state is State.OOM]
        if failed:
            fitted = max((batch for batch, state in found if state is State.OK), default=None)
            rows.append((title, count, fitted, min(failed)))
    if not rows:
        return None
    columns: tuple[ColumnOf[tuple[str, int, int | None, int]], ...] = (
        ColumnOf("model and setting", lambda row: row[0], prose=True),
        ColumnOf("devices", lambda row: row[1], str),
        ColumnOf("largest that ran", lambda row: row[2], str),
        ColumnOf("smallest out of memory", lambda row: row[3], str),
    )
    return table_of("Largest batch sizes that fit in memory", columns, rows)
