"""The report's parts about compute: what devices reach, and how near to it training comes."""

from __future__ import annotations

from collections.abc import Sequence

from torchscale.analysis.ceilings import HardwareSummary
from torchscale.analysis.hardware import HardwareFigures
from torchscale.analysis.results import CellSummary, RunSummary
from torchscale.analysis.roofline import Compute
from torchscale.report.ceiling_words import copy_words, share_words
from torchscale.report.document import (
    Block,
    Bullets,
    Chart,
    ChartGrid,
    Column,
    Paragraph,
    Section,
    Series,
    Table,
    Value,
    optional_value,
    shortened,
)
from torchscale.report.words import cell_words, panel_title, plural
from torchscale.units import format_byte_rate, format_flops, format_percent, format_rate

_MAX_DISTINCT = 12
_DASH = Value("–")


def hardware_section(summary: RunSummary) -> Section:
    """Products, copies and disks; empty where no ceiling was measured."""
    measured = [(one, one.figures) for one in summary.hardware if one.figures is not None]
    if not measured:
        return Section("Ceilings", "ceilings", ())
    columns = (
        Column("devices at once", True),
        Column("type"),
        Column("peak", True),
        Column("at m×n×k"),
        Column("cold caches", True),
        Column("typical", True),
        Column("slowest device", True),
    )
    products = [
        (
            Value(str(one.cell.world_size), one.cell.world_size),
            Value(rates.dtype),
            Value(format_flops(rates.peak), rates.peak),
            Value("×".join(map(str, rates.peak_shape))),
            optional_value(rates.cold, format_flops),
            Value(format_flops(rates.typical), rates.typical),
            Value(share_words(rates.slowest_device), rates.slowest_device),
        )
        for one, figures in measured
        for rates in figures.matmuls
    ]
    note = (
        "What a device reaches while as many work at once: matrix products of random numbers (peak: the fastest shape; "
        "typical: the median over shapes; both the median over time), and copies. Slowest device: against the mean."
    )
    copies = tuple(row for one, figures in measured for row in _copy_rows(one, figures))
    copy_columns = (
        Column("devices at once", True),
        Column("what"),
        Column("rate", True),
        Column("slowest device", True),
    )
    blocks: list[Block] = [Paragraph(note), Table("Matrix products", columns, tuple(products))]
    if copies:
        blocks.append(Table("Copies and disk", copy_columns, copies))
    return Section("Ceilings", "ceilings", tuple(blocks))


def _copy_rows(one: HardwareSummary, figures: HardwareFigures) -> list[tuple[Value, ...]]:
    count = Value(str(one.cell.world_size), one.cell.world_size)
    rows: list[tuple[Value, ...]] = [
        (
            count,
            Value(copy_words(rate)),
            Value(format_byte_rate(rate.bytes_per_second), rate.bytes_per_second),
            Value(share_words(rate.slowest_device), rate.slowest_device),
        )
        for rate in figures.copies
    ]
    disk = figures.disk
    if disk is not None:
        warm = f", {format_percent(disk.resident_share, 0)} in memory" if disk.resident_share else ""
        for what, seconds in (("written", disk.write_seconds), (f"read{warm}", disk.read_seconds)):
            rate = disk.payload_bytes / seconds
            rows.append(
                (count, Value(f"disk at {shortened(disk.path)}, {what}"), Value(format_byte_rate(rate), rate), _DASH)
            )
    return rows


def compute_section(summary: RunSummary) -> Section:
    """FLOP/s, MFU and the roofline of every training cell; empty where no operations were counted."""
    cells = [(cell, cell.compute) for cell in summary.measured if cell.compute is not None]
    if not cells:
        return Section("Compute", "compute", ())
    columns = (
        Column("cell", prose=True),
        Column("per step", True),
        Column("per device", True),
        Column("MFU", True),
        Column("HFU", True),
        Column("FLOP/byte", True),
        Column("roof", True),
        Column("bound by"),
        Column("roof ÷ achieved", True),
    )
    rows = tuple(_compute_row(cell, compute) for cell, compute in cells)
    peaks = dict.fromkeys(
        f"Peak of {cell.cell.precision} at {plural(cell.cell.world_size, 'device')}: "
        f"{format_flops(compute.peak.flops_per_second)}, {compute.peak.source}."
        for cell, compute in cells
        if compute.peak is not None
    )
    note = (
        "Operations of the model's forward and backward passes, counted and not measured, without what activation "
        "checkpointing computes again; over the measured step they make FLOP/s, and against the device's peak MFU (HFU "
        "adds what is computed again). FLOP/byte counts what every operator reads and writes, as if nothing stayed in "
        "a cache; the roof is the lower of measured matrix products and FLOP/byte × measured copies, against what the "
        "passes alone achieve: below 1 where caches and fused operators save traffic, and far above it where neither "
        "ceiling holds the passes back but small operators and their launches."
    )
    missing = [] if peaks else ["No peak is known for this device, so there is no MFU: declare hardware.peak_flops, or "
                                "measure it with `torchscale hardware`."]  # fmt: skip
    blocks: list[Block] = [Paragraph(note), Table("Compute", columns, rows), Bullets((*peaks, *missing))]
    chart = _roofline(summary, cells)
    if chart is not None:
        blocks.insert(1, ChartGrid((chart,)))
    return Section("Compute", "compute", tuple(blocks))


def _compute_row(cell: CellSummary, compute: Compute) -> tuple[Value, ...]:
    return (
        Value(cell_words(cell.cell)),
        Value(format_flops(compute.flops_per_step).replace("/s", ""), compute.flops_per_step),
        Value(format_flops(compute.flops_per_second), compute.flops_per_second),
        optional_value(compute.mfu, format_percent),
        optional_value(compute.hfu, format_percent),
        optional_value(compute.intensity, format_rate),
        optional_value(compute.roof, format_flops),
        Value(compute.bound or "–"),
        optional_value(compute.headroom, lambda ratio: f"{ratio:.2f}"),
    )


def _roofline(summary: RunSummary, cells: Sequence[tuple[CellSummary, Compute]]) -> Chart | None:
    """The ceilings of the largest count, and the cells at it."""
    known = [one for one in summary.hardware if one.figures is not None]
    if not known:
        return None
    largest = max(known, key=lambda one: one.cell.world_size)
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
            roofs.append(Series(f"roof {dtype}", x, tuple(min(peak, at * memory) / 1e9 for at in x), reference=True))
    by_panel: dict[str, list[tuple[float, float]]] = {}
    for cell, at, rate in placed:
        by_panel.setdefault(panel_title(cell.cell), []).append((at, rate / 1e9))
    points = [
        Series(title, tuple(x for x, _ in found), tuple(y for _, y in found))
        for title, found in list(by_panel.items())[:_MAX_DISTINCT]
    ]
    return Chart(
        name="roofline",
        title="Roofline: forward and backward passes",
        summary="Achieved FLOP/s of every training cell over its arithmetic intensity, under the measured ceilings.",
        x_label="FLOP per byte",
        y_label="GFLOP/s per device",
        series=(*roofs, *points),
        log_x=True,
        log_y=True,
        lines=False,
    )
