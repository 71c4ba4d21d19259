"""Collectives, ceilings and memory as tables on the terminal; collectives as users of nccl-tests
know them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from torchscale.analysis.summary.machine import CollectivesSummary, HardwareSummary, MemorySummary
from torchscale.config.strategy import strategy_label
from torchscale.report.document import only_if, optional_text
from torchscale.report.text.machine import (
    copy_label,
    format_fit,
    format_slowest_share,
    format_warning,
    point_flag_lines,
    predicted_text,
)
from torchscale.schema.exports.machine import CollectiveFigures, Curve
from torchscale.schema.state import State
from torchscale.util.units import (
    format_byte_rate,
    format_bytes,
    format_flops,
    format_percent,
    format_seconds,
)

_HEADINGS = (
    "size (B)",
    "count",
    "type",
    "time (µs)",
    "algbw (GB/s)",
    "busbw (GB/s)",
    "p95 (µs)",
    "spread",
    "#wrong",
)


def print_collectives(summaries: Sequence[CollectivesSummary], console: Console) -> None:
    """Print for each sweep a table of each operation and dtype, the link's fit, pairs, and the
    verdict."""
    for summary in summaries:
        _print_sweep(summary, console)


def _print_sweep(summary: CollectivesSummary, console: Console) -> None:
    cell, figures = summary.cell, summary.figures
    words = ", ".join([f"{cell.world_size} ranks", *cell.settings])
    if figures is None:
        console.print(
            f"collectives ({words}): {summary.state.value}: {summary.reason}",
            markup=False,
            soft_wrap=True,
        )
        return
    console.print(f"\n[bold]Collectives[/bold] ({escape(words)}, {escape(figures.backend)})")
    for curve in figures.curves:
        _print_curve(summary, curve, console)
    for line in point_flag_lines(figures):
        console.print(f"* {line}", style="dim", markup=False, soft_wrap=True)
    _print_pairs(figures, console)
    for what, said in figures.unsupported:
        console.print(f"not measured: {what}: {said}", markup=False, soft_wrap=True)
    if summary.place is not None and summary.place.topology:
        console.print(f"\n{summary.place.topology}", markup=False, soft_wrap=True)
    if summary.log is not None and summary.log.transports:
        console.print(
            f"NCCL transports: {', '.join(summary.log.transports)}", markup=False, soft_wrap=True
        )
    if summary.verdict is not None:
        console.print(f"\n{summary.verdict.text}", markup=False, soft_wrap=True)
        for cause in summary.verdict.causes:
            console.print(
                f"  possible cause: {cause.text}; check: {cause.check}",
                markup=False,
                soft_wrap=True,
            )


def print_hardware(summaries: Sequence[HardwareSummary], console: Console) -> None:
    """Matmuls, copies and the disk, for each number of devices at once."""
    for summary in summaries:
        _print_ceilings(summary, console)


def _print_ceilings(summary: HardwareSummary, console: Console) -> None:
    cell, figures = summary.cell, summary.figures
    where = f"{cell.world_size} device{'s' * (cell.world_size > 1)} at once"
    if figures is None:
        console.print(
            f"hardware ({where}): {summary.state.value}: {summary.reason}",
            markup=False,
            soft_wrap=True,
        )
        return
    console.print(f"\n[bold]Peak rates of a device[/bold] ({where})\n")
    table = _table("matmuls", "peak", "at m×n×k", "cold caches", "typical", "slowest device")
    for rates in figures.matmuls:
        shape = "×".join(map(str, rates.peak_shape))
        cold = optional_text(rates.cold, format_flops)
        slowest = format_slowest_share(rates.slowest_device)
        table.add_row(
            rates.dtype, format_flops(rates.peak), shape, cold, format_flops(rates.typical), slowest
        )
    console.print(table)
    copies = _table("copies", "rate", "slowest device")
    for rate in figures.copies:
        copies.add_row(
            copy_label(rate),
            format_byte_rate(rate.bytes_per_second),
            format_slowest_share(rate.slowest_device),
        )
    console.print()
    console.print(copies)
    if figures.disk is not None:
        disk = figures.disk
        written = format_byte_rate(disk.payload_bytes / disk.write_seconds)
        read = format_byte_rate(disk.payload_bytes / disk.read_seconds)
        warm = ""
        if disk.resident_share:
            warm = f" ({format_percent(disk.resident_share, 0)} in the page cache)"
        console.print(
            f"\ndisk at {disk.path}: written {written}, read {read}{warm}",
            markup=False,
            soft_wrap=True,
        )
    for dtype, said in figures.unsupported:
        console.print(f"not measured: {dtype}: {said}", markup=False, soft_wrap=True)
    for flag in summary.flags:
        console.print(f"warning: {flag.value}: {flag.explanation}", markup=False, soft_wrap=True)


def print_memory(summaries: Sequence[MemorySummary], console: Console) -> None:
    """One row per cell, of the rank that uses most; then the reasons of cells without figures."""
    reserves = any(
        summary.fullest and summary.fullest.reserved_bytes is not None for summary in summaries
    )
    headings = (
        "batch",
        "n",
        "params",
        "grads",
        "optim.",
        "activ.",
        "peak",
        *only_if(reserves, "reserved"),
    )
    table = _table("model", *headings, "predicted")
    for summary in summaries:
        rank = summary.fullest
        if rank is None:
            continue
        training, parts = summary.cell.training, rank.parts
        label = strategy_label(training.strategy)
        words = [training.title, *only_if(training.precision != "fp32", training.precision)]
        words += [*only_if(label != "ddp", label), *training.settings]
        table.add_row(
            escape(" ".join(words)),
            str(training.batch_size),
            str(training.world_size),
            *(
                format_bytes(part)
                for part in (parts.parameters, parts.gradients, parts.optimizer_states)
            ),
            _or_dash(parts.activations),
            format_bytes(rank.peak_bytes),
            *only_if(reserves, _or_dash(rank.reserved_bytes)),
            predicted_text(summary),
        )
    if table.row_count:
        console.print("\n[bold]Memory per device[/bold]\n")
        console.print(table)
    for summary in summaries:
        if summary.state is not State.OK:
            console.print(
                f"{summary.state.value}: {summary.cell.id}: {summary.reason}",
                markup=False,
                soft_wrap=True,
            )
        elif summary.ranks and summary.ranks[0].not_predicted:
            console.print(
                f"no prediction: {summary.ranks[0].not_predicted}", markup=False, soft_wrap=True
            )


def _print_curve(summary: CollectivesSummary, curve: Curve, console: Console) -> None:
    placed = "out of place"
    if curve.points[0].in_place:
        placed = "in place"
    if curve.operation == "barrier":
        point = curve.points[0]
        warning = format_warning(point.flags)
        console.print(
            f"\nbarrier: {format_seconds(point.seconds)}, p95 {format_seconds(point.p95)}{warning}"
        )
        return
    console.print(f"\n{curve.operation}, {placed}")
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    flagged = any(point.flags for point in curve.points)
    for heading in _HEADINGS:
        table.add_column(heading, justify="right", no_wrap=True)
    for point in curve.points:
        table.add_row(
            str(point.payload_bytes),
            str(point.elements),
            curve.dtype,
            f"{point.seconds * 1e6:,.1f}{'*' * bool(point.flags)}",
            _gigabytes(point.algbw),
            _gigabytes(point.busbw),
            f"{point.p95 * 1e6:,.1f}",
            format_percent(point.rank_spread, 0),
            optional_text(point.wrong_elements, str),
        )
    console.print(table)
    clean = [point for point in curve.points if not point.flags]
    average = statistics.fmean(point.busbw for point in clean or curve.points)
    line = (
        f"average busbw {format_byte_rate(average)}, highest {format_byte_rate(curve.peak.busbw)}"
    )
    if flagged:
        line += f" ({_counted(len(clean), len(curve.points))})"
    share, fit = curve.peak.link_share, format_fit(curve)
    if share is not None and summary.ceiling is not None:
        line += f" ({format_percent(share, 0)} of {summary.ceiling.link})"
    console.print(
        line + (f"; time ≈ {fit}" if fit else ""), style="dim", markup=False, soft_wrap=True
    )


def _counted(clean: int, sizes: int) -> str:
    if clean:
        return f"of {clean} of {sizes} sizes without a warning"
    return "every size has a warning"


def _gigabytes(per_second: float) -> str:
    """GB/s with three decimals, or three significant digits where these would all be zeros or
    nearly so."""
    value = per_second / 1e9
    return f"{value:.3f}" if value >= 0.1 else f"{value:#.3g}"


def _print_pairs(figures: CollectiveFigures, console: Console) -> None:
    """Bandwidth from each rank (row) to each (column), and the latency below."""
    if not figures.pairs:
        return
    ranks = sorted({pair.source for pair in figures.pairs})
    by_pair = {(pair.source, pair.target): pair for pair in figures.pairs}
    size = format_bytes(figures.pairs[0].payload_bytes)
    rates = {key: f"{pair.payload_bytes / pair.seconds / 1e9:.3f}" for key, pair in by_pair.items()}
    latencies = {key: f"{pair.latency_seconds * 1e6:,.1f}" for key, pair in by_pair.items()}
    for title, words in (
        (f"pairs, {size}, GB/s from row to column", rates),
        ("pairs, latency in µs", latencies),
    ):
        table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
        table.add_column("")
        for rank in ranks:
            table.add_column(str(rank), justify="right")
        for source in ranks:
            cells = [words.get((source, target), "–") for target in ranks]
            table.add_row(str(source), *cells)
        console.print(f"\n{title}")
        console.print(table)


def _or_dash(count: int | None) -> str:
    if count is None:
        return "–"
    return format_bytes(count)


def _table(first: str, *others: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column(first, overflow="fold", min_width=min(12, len(first) + 4))
    for heading in others:
        table.add_column(heading, justify="right", no_wrap=True)
    return table
