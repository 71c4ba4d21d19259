"""Compute: how close training comes to the measured peak rates of devices."""

from __future__ import annotations

from collections.abc import Sequence

from torchscale.analysis.summary.run import RunSummary
from torchscale.analysis.training.roofline import FAR_BELOW_ROOF
from torchscale.analysis.training.summary import TrainingSummary
from torchscale.report.charts import Chart, ChartSeries
from torchscale.report.document import Block, Bullets, ChartGrid, Paragraph, ReportPart, Section
from torchscale.report.table import ColumnOf, Table, table_of
from torchscale.report.text.labels import panel_title
from torchscale.report.text.run_labels import identity_of
from torchscale.report.values import shortened
from torchscale.schema.exports.training import Compute
from torchscale.util.units import format_flops, format_percent, format_rate
from torchscale.util.words import format_range, plural

_MAX_DISTINCT = 12
"""Series in a chart: more overlap, and colours repeat after seven."""


def compute_section(summary: RunSummary) -> Section:
    """FLOP/s, MFU and the roofline of every training cell; empty where no operations were
    counted."""
    cells = [(cell, cell.compute) for cell in summary.measured if cell.compute is not None]
    unknown = _unknown(summary)
    if not cells:
        if not unknown:
            return Section("Compute", "compute", (), ReportPart.CAUSES)
        return Section(
            "Compute", "compute", (Bullets(unknown),), ReportPart.CAUSES, "FLOPs unknown"
        )
    recomputed = any(compute.hfu is not None and compute.hfu != compute.mfu for _, compute in cells)
    peaks = dict.fromkeys(
        f"Peak of {cell.cell.precision} at {plural(cell.cell.world_size, 'device')}: "
        f"{format_flops(compute.peak.flops_per_second)}, {compute.peak.source}."
        for cell, compute in cells
        if compute.peak is not None
    )
    note = (
        "Model FLOPs of the forward and backward passes are counted, not measured, and exclude "
        "recomputation by activation checkpointing. FLOP/s = FLOPs ÷ measured step time; MFU = "
        "FLOP/s ÷ the device's peak; HFU, shown where activations are computed again, includes "
        "that. FLOP/byte counts the bytes that every operator reads and writes, without caches. "
        "The roof is the lower of the measured matmul rate and FLOP/byte × measured copy "
        "bandwidth. Roof ÷ achieved compares it with the forward and backward passes: below 1, "
        f"caches or fused operators save memory traffic; above {FAR_BELOW_ROOF:g}, small operators "
        "and kernel launches are the limit (overhead), not compute or memory."
    )
    missing = (
        "The peak FLOP/s of this device is unknown, so MFU is not available: set "
        "hardware.peak_flops, or measure it with torchscale measure hardware."
    )
    notes = (*(tuple(peaks) or (missing,)), *_without_bytes(cells), *unknown)
    blocks: list[Block] = [Paragraph(note)]
    chart = _roofline(summary, cells)
    if chart is not None:
        blocks.append(ChartGrid((chart,)))
    blocks += [_compute_table(summary, cells, recomputed=recomputed), Bullets(notes)]
    return Section(
        "Compute",
        "compute",
        tuple(blocks),
        ReportPart.CAUSES,
        _compute_key([one for _, one in cells]),
    )


def _unknown(summary: RunSummary) -> tuple[str, ...]:
    """Why models have no MFU and no roofline, each once."""
    reasons = {
        cell.cell.title: reason
        for cell in summary.measured
        if (reason := summary.flops_unknown(cell))
    }
    return tuple(f"{shortened(title)}: {shortened(reason)}." for title, reason in reasons.items())


def _without_bytes(cells: Sequence[tuple[TrainingSummary, Compute]]) -> tuple[str, ...]:
    """Why some have no roofline; empty where all have."""
    titles = dict.fromkeys(
        shortened(cell.cell.title) for cell, compute in cells if compute.intensity is None
    )
    if not titles:
        return ()
    return (
        f"No FLOP/byte, and so no roof, of {', '.join(titles)}: the bytes are known neither of "
        "experts (whose weights a batch reads depends on the data), nor of models split over "
        "devices or with flops_per_sample.",
    )


def _compute_key(computes: Sequence[Compute]) -> str:
    utilizations = [compute.mfu for compute in computes if compute.mfu is not None]
    if utilizations:
        return f"MFU {format_range(utilizations, format_percent)}"
    return (
        f"{format_range([compute.flops_per_second for compute in computes], format_flops)} per "
        "device"
    )


def _compute_table(
    summary: RunSummary, cells: Sequence[tuple[TrainingSummary, Compute]], *, recomputed: bool
) -> Table:
    """``recomputed``: whether any cell computes activations again, so that its HFU differs from its
    MFU."""
    columns: tuple[ColumnOf[Compute], ...] = (
        ColumnOf("per step", lambda one: one.flops_per_step, _format_operations),
        ColumnOf("per device", lambda one: one.flops_per_second, format_flops),
        ColumnOf("MFU", lambda one: one.mfu, format_percent),
        ColumnOf("HFU", lambda one: one.hfu, format_percent, shown=recomputed),
        ColumnOf("FLOP/byte", lambda one: one.intensity, format_rate),
        ColumnOf("roof", lambda one: one.roof, format_flops),
        ColumnOf("bound by", lambda one: one.bound or "–"),
        ColumnOf("roof ÷ achieved", lambda one: one.headroom, "{:.2f}".format),
    )
    identity = identity_of(summary, (cell.cell for cell, _ in cells))
    return table_of("Compute", columns, [compute for _, compute in cells], identity)


def _format_operations(flops: float) -> str:
    return format_flops(flops).replace("/s", "")


def _roofline(
    summary: RunSummary, cells: Sequence[tuple[TrainingSummary, Compute]]
) -> Chart | None:
    """The ceilings of the largest count, and the cells at it."""
    known = [ceilings for ceilings in summary.hardware if ceilings.figures is not None]
    if not known:
        return None
    largest = max(known, key=lambda ceilings: ceilings.cell.world_size)
    figures = largest.figures
    placed = [
        (cell, compute.intensity, compute.passes_flops_per_second)
        for cell, compute in cells
        if compute.intensity is not None and compute.passes_flops_per_second is not None
    ]
    if figures is None or figures.memory_bytes_per_second is None or not placed:
        return None
    memory = figures.memory_bytes_per_second
    places = [intensity for _, intensity, _ in placed]
    roofs = []
    for dtype in dict.fromkeys(cell.cell.precision for cell, _, _ in placed):
        peak = figures.peak(dtype)
        if peak is not None:
            ridge = peak / memory
            x = (min(*places, ridge) / 2, ridge, max(*places, ridge) * 2)
            roofs.append(
                ChartSeries(
                    f"roof {dtype}",
                    x,
                    tuple(min(peak, at * memory) / 1e9 for at in x),
                    reference=True,
                )
            )
    by_panel: dict[str, list[tuple[float, float]]] = {}
    for cell, at, rate in placed:
        by_panel.setdefault(panel_title(cell.cell), []).append((at, rate / 1e9))
    points = [
        ChartSeries(title, tuple(x for x, _ in found), tuple(y for _, y in found))
        for title, found in list(by_panel.items())[:_MAX_DISTINCT]
    ]
    return Chart(
        name="roofline",
        title="Roofline: forward and backward passes",
        summary="Achieved FLOP/s of every training cell over its arithmetic intensity, under the "
        "measured ceilings.",
        x_label="FLOP per byte",
        y_label="GFLOP/s per device",
        series=(*roofs, *points),
        log_x=True,
        log_y=True,
        lines=False,
    )
