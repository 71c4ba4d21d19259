"""Compute: measured peak rates of devices, and how close training comes to them."""

from __future__ import annotations

from collections.abc import Sequence

from torchscale.analysis.summary.machine import HardwareSummary
from torchscale.analysis.summary.run import RunSummary
from torchscale.analysis.training.roofline import FAR_BELOW_ROOF
from torchscale.analysis.training.summary import TrainingSummary
from torchscale.report.charts import Chart, ChartSeries
from torchscale.report.document import Block, Bullets, ChartGrid, Paragraph, ReportPart, Section
from torchscale.report.table import ColumnOf, Table, table_of
from torchscale.report.text.labels import panel_title
from torchscale.report.text.run_labels import identity_of
from torchscale.report.values import TableValue, shortened
from torchscale.schema.exports.machine import CopyRate, HardwareFigures, MatmulRates
from torchscale.schema.exports.training import Compute
from torchscale.util.units import format_byte_rate, format_flops, format_percent, format_rate
from torchscale.util.words import format_range, plural

_MAX_DISTINCT = 12
"""Series in a chart: more overlap, and colours repeat after seven."""
_DASH = TableValue("–")


def copy_label(rate: CopyRate) -> str:
    """Source and destination of a copy."""
    memory = {True: ", pinned", False: ", pageable", None: ""}[rate.pinned]
    return {
        "device": "within the device, read + written",
        "host_to_device": f"host to device{memory}",
        "device_to_host": f"device to host{memory}",
        "device_to_device": f"GPU {rate.source} to GPU {rate.peer}",
    }[rate.kind]


def format_slowest_share(share: float) -> str:
    """The slowest device relative to the mean; – where all are equal (within 0.05 %)."""
    if share > -0.0005:
        return "–"
    return format_percent(share)


_MATMULS: tuple[ColumnOf[tuple[int, MatmulRates]], ...] = (
    ColumnOf("devices at once", lambda row: row[0], str),
    ColumnOf("type", lambda row: row[1].dtype),
    ColumnOf("peak", lambda row: row[1].peak, format_flops),
    ColumnOf("at m×n×k", lambda row: "×".join(map(str, row[1].peak_shape))),
    ColumnOf("cold caches", lambda row: row[1].cold, format_flops),
    ColumnOf("typical", lambda row: row[1].typical, format_flops),
    ColumnOf("slowest device", lambda row: row[1].slowest_device, format_slowest_share),
)
_Copy = tuple[int, str, float, float | None]
"""Devices at once, what was copied, bytes per second, the slowest device's share."""
_COPIES: tuple[ColumnOf[_Copy], ...] = (
    ColumnOf("devices at once", lambda row: row[0], str),
    ColumnOf("what", lambda row: row[1]),
    ColumnOf("rate", lambda row: row[2], format_byte_rate),
    ColumnOf(
        "slowest device",
        lambda row: _DASH if row[3] is None else row[3],
        format_slowest_share,
    ),
)


def hardware_section(summary: RunSummary) -> Section:
    """Matmuls, copies and disks; empty where no peak rate was measured."""
    measured = [
        (ceilings, ceilings.figures)
        for ceilings in summary.hardware
        if ceilings.figures is not None
    ]
    if not measured:
        return Section("Peak rates", "ceilings", ())
    products = [
        (ceilings.cell.world_size, rates)
        for ceilings, figures in measured
        for rates in figures.matmuls
    ]
    note = (
        "Rates of one device while the given number of devices work at once: matmuls of random "
        "numbers (peak: the fastest shape; typical: the median over shapes; both medians over "
        "time), and copies. Slowest device: relative to the mean."
    )
    copies = [row for ceilings, figures in measured for row in _copy_rates(ceilings, figures)]
    blocks: list[Block] = [Paragraph(note), table_of("Matmuls", _MATMULS, products)]
    if copies:
        blocks.append(table_of("Copies and disk", _COPIES, copies))
    warnings = tuple(
        f"{plural(ceilings.cell.world_size, 'device')} at once, {flag.value}: {flag.explanation}."
        for ceilings, _ in measured
        for flag in ceilings.flags
    )
    if warnings:
        blocks.append(Bullets(warnings))
    return Section(
        "Peak rates", "ceilings", tuple(blocks), ReportPart.MACHINE, _ceilings_key(measured)
    )


def _ceilings_key(measured: Sequence[tuple[HardwareSummary, HardwareFigures]]) -> str:
    """What a device reaches at the largest count."""
    _, figures = max(measured, key=lambda item: item[0].cell.world_size)
    parts = [f"{rates.dtype} {format_flops(rates.peak)}" for rates in figures.matmuls]
    copies = figures.memory_bytes_per_second
    if copies is not None:
        parts.append(f"copies {format_byte_rate(copies)}")
    return ", ".join(parts)


def _copy_rates(ceilings: HardwareSummary, figures: HardwareFigures) -> list[_Copy]:
    count = ceilings.cell.world_size
    copies: list[_Copy] = [
        (count, copy_label(rate), rate.bytes_per_second, rate.slowest_device)
        for rate in figures.copies
    ]
    disk = figures.disk
    if disk is not None:
        warm = ""
        if disk.resident_share:
            warm = f", {format_percent(disk.resident_share, 0)} in memory"
        for what, seconds in (("written", disk.write_seconds), (f"read{warm}", disk.read_seconds)):
            name = f"disk at {shortened(disk.path)}, {what}"
            copies.append((count, name, disk.payload_bytes / seconds, None))
    return copies


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
