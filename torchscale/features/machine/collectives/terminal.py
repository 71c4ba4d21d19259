"""Collectives on the terminal, as users of nccl-tests know them."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from rich.console import Console

from torchscale.analysis.summary.machine import CollectivesSummary
from torchscale.features.machine.text import (
    fewer_calls_line,
    format_fit,
    format_warning,
    point_flag_lines,
)
from torchscale.report.document import Block, Document, Paragraph, Section
from torchscale.report.formats.console import print_document
from torchscale.report.table import Column, Table
from torchscale.report.values import DASH, TableValue, optional_text
from torchscale.schema.cells.collectives import PairSample
from torchscale.schema.exports.machine import CollectiveFigures, CollectivePoint, Curve
from torchscale.util.units import format_byte_rate, format_bytes, format_percent, format_seconds

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
        words = ", ".join([f"{summary.cell.world_size} ranks", *summary.cell.settings])
        if summary.figures is None:
            title = f"collectives ({words}): {summary.state.value}: {summary.reason}"
            print_document(Document(title, "", (), (), ()), console)
            continue
        blocks = tuple(_sweep_blocks(summary, summary.figures))
        title = f"Collectives ({words}, {summary.figures.backend})"
        sections = (Section("", "collectives", blocks),)
        print_document(Document(title, "", (), (), sections), console)


def _sweep_blocks(summary: CollectivesSummary, figures: CollectiveFigures) -> list[Block]:
    lines = [f"* {line}" for line in point_flag_lines(figures)]
    lines += filter(None, [fewer_calls_line(summary.cell, figures)])
    lines += [f"not measured: {what}: {said}" for what, said in figures.unsupported]
    if summary.moved_by:
        lines.append(f"Moved by: {summary.moved_by}")
    if summary.verdict is not None:
        lines.append(summary.verdict.text)
        lines += [
            f"  possible cause: {cause.text}; check: {cause.check}"
            for cause in summary.verdict.causes
        ]
    blocks = [block for curve in figures.curves for block in _curve_blocks(summary, curve)]
    blocks += _pair_tables(figures.pairs)
    if summary.place is not None and summary.place.topology:
        blocks.append(Paragraph(summary.place.topology, code=True))
    return [*blocks, *map(Paragraph, lines)]


def _curve_blocks(summary: CollectivesSummary, curve: Curve) -> list[Block]:
    first = curve.points[0]
    if curve.operation == "barrier":
        warning = format_warning(first.flags)
        times = f"{format_seconds(first.seconds)}, p95 {format_seconds(first.p95)}"
        return [Paragraph(f"barrier: {times}{warning}")]
    placed = "in place" if first.in_place else "out of place"
    columns = tuple(Column(heading, numeric=True) for heading in _HEADINGS)
    rows = tuple(_row(curve, point) for point in curve.points)
    return [
        Table(f"{curve.operation}, {placed}", columns, rows),
        Paragraph(_curve_line(summary, curve)),
    ]


def _row(curve: Curve, point: CollectivePoint) -> tuple[TableValue, ...]:
    texts = (
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
    return tuple(map(TableValue, texts))


def _curve_line(summary: CollectivesSummary, curve: Curve) -> str:
    clean = [point for point in curve.points if not point.flags]
    average = statistics.fmean(point.busbw for point in clean or curve.points)
    line = (
        f"average busbw {format_byte_rate(average)}, highest {format_byte_rate(curve.peak.busbw)}"
    )
    if len(clean) < len(curve.points):
        line += f" ({_counted(len(clean), len(curve.points))})"
    share, fit = curve.peak.link_share, format_fit(curve)
    if share is not None and summary.ceiling is not None:
        line += f" ({format_percent(share, 0)} of {summary.ceiling.link})"
    if fit:
        line += f"; time ≈ {fit}"
    return line


def _counted(clean: int, sizes: int) -> str:
    if clean:
        return f"of {clean} of {sizes} sizes without a warning"
    return "every size has a warning"


def _gigabytes(per_second: float) -> str:
    """GB/s with three decimals, or three significant digits where these would all be zeros or
    nearly so."""
    value = per_second / 1e9
    return f"{value:.3f}" if value >= 0.1 else f"{value:#.3g}"


def _pair_tables(pairs: Sequence[PairSample]) -> list[Block]:
    """Bandwidth from each rank (row) to each (column), and the latency."""
    if not pairs:
        return []
    size = format_bytes(pairs[0].payload_bytes)
    return [
        _pair_table(
            f"pairs, {size}, GB/s from row to column",
            pairs,
            lambda pair: f"{pair.payload_bytes / pair.seconds / 1e9:.3f}",
        ),
        _pair_table(
            "pairs, latency in µs", pairs, lambda pair: f"{pair.latency_seconds * 1e6:,.1f}"
        ),
    ]


def _pair_table(
    caption: str, pairs: Sequence[PairSample], text: Callable[[PairSample], str]
) -> Table:
    values = {(pair.source, pair.target): TableValue(text(pair)) for pair in pairs}
    ranks = sorted({pair.source for pair in pairs})
    columns = (Column("rank", numeric=True), *(Column(str(rank), numeric=True) for rank in ranks))
    rows = tuple(
        (TableValue(str(source)), *(values.get((source, target), DASH) for target in ranks))
        for source in ranks
    )
    return Table(caption, columns, rows)
