"""The section of hardware cells: peak rates of products, copies and disks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torchscale.analysis.summary.machine import HardwareSummary
from torchscale.analysis.summary.run import RunSummary
from torchscale.report.document import Block, Bullets, Paragraph, ReportPart, Section
from torchscale.report.table import ColumnOf, table_of
from torchscale.report.values import TableValue, shortened
from torchscale.schema.exports.machine import CopyRate, HardwareFigures, MatmulRates
from torchscale.schema.run.content import LaunchDetail
from torchscale.util.units import format_byte_rate, format_flops, format_percent
from torchscale.util.words import plural

_DASH = TableValue("–")


def sections(
    summary: RunSummary, details: Mapping[str, LaunchDetail], price: float | None
) -> tuple[Section, ...]:
    """One, with all cells of the kind."""
    return (_hardware_section(summary),)


def _copy_label(rate: CopyRate) -> str:
    """Source and destination of a copy."""
    memory = {True: ", pinned", False: ", pageable", None: ""}[rate.pinned]
    return {
        "device": "within the device, read + written",
        "host_to_device": f"host to device{memory}",
        "device_to_host": f"device to host{memory}",
        "device_to_device": f"GPU {rate.source} to GPU {rate.peer}",
    }[rate.kind]


def _format_slowest_share(share: float) -> str:
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
    ColumnOf("slowest device", lambda row: row[1].slowest_device, _format_slowest_share),
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
        _format_slowest_share,
    ),
)


def _hardware_section(summary: RunSummary) -> Section:
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
        (count, _copy_label(rate), rate.bytes_per_second, rate.slowest_device)
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
