"""The report's part about collectives: bus bandwidth over sizes, pairs, the verdict on the link."""

from __future__ import annotations

from collections.abc import Sequence

from torchscale.analysis.machine.collectives import CollectiveFigures
from torchscale.analysis.summary.machine import CollectivesSummary
from torchscale.analysis.summary.run import RunSummary
from torchscale.report.document import (
    MAX_BLOCK,
    Block,
    Bullets,
    Chart,
    ChartGrid,
    ChartSeries,
    Column,
    Paragraph,
    Section,
    Table,
    TableValue,
    shortened,
)
from torchscale.report.text.labels import chart_name
from torchscale.report.text.machine import format_fit
from torchscale.util.units import format_byte_rate, format_bytes, format_percent, format_seconds

_MAX_DISTINCT = 12
"""Lines in a chart: more overlap, and colours repeat after seven."""
_DASH = TableValue("–")


def collectives_section(summary: RunSummary) -> Section:
    """Bus bandwidth over sizes, the link's latency and bandwidth, pairs and the verdict; empty without any sweep."""
    blocks: list[Block] = []
    for sweep in summary.collectives:
        if sweep.figures is not None and not sweep.cell.logs_choices:
            blocks += _sweep_blocks(sweep, sweep.figures)
    if blocks:
        blocks.insert(
            0,
            Paragraph(
                "Bandwidths as defined by nccl-tests: algorithm bandwidth is bytes ÷ time, bus bandwidth is the "
                "load on the busiest link. Times are means over ranks of one timed loop; every element of every "
                "result was checked."
            ),
        )
    return Section("Collectives", "collectives", tuple(blocks))


def _sweep_blocks(sweep: CollectivesSummary, figures: CollectiveFigures) -> list[Block]:
    cell = sweep.cell
    title = ", ".join([f"{cell.world_size} ranks over {figures.backend}", *cell.settings])
    lines = [
        ChartSeries(
            f"{curve.operation} {curve.dtype}" if len(cell.dtypes) > 1 else curve.operation,
            tuple(float(point.payload_bytes) for point in curve.points),
            tuple(point.busbw / 1e9 for point in curve.points),
        )
        for curve in figures.curves
        if curve.operation != "barrier" and all(point.busbw > 0 for point in curve.points)
    ]
    chart = Chart(
        name=chart_name("busbw", f"{title} {cell.id}"),
        title=title,
        summary=f"Bus bandwidth against message size for {title}.",
        x_label="message size, bytes",
        y_label="bus bandwidth, GB/s",
        series=(*lines[:_MAX_DISTINCT], *_ceiling_line(sweep, lines)),
        log_x=True,
        log_y=True,
    )
    blocks: list[Block] = [ChartGrid((chart,))] if lines else []
    blocks.append(_table(figures, title))
    if figures.pairs:
        blocks.append(_pairs_table(figures, title))
    notes = [f"Not measured: {what}: {shortened(text)}" for what, text in figures.unsupported]
    if sweep.log is not None and sweep.log.transports:
        notes.append(f"NCCL transports: {', '.join(sweep.log.transports)}.")
    if sweep.verdict is not None:
        notes.append(shortened(sweep.verdict.text))
        notes += [f"Possible cause: {cause.text}; check: {cause.check}" for cause in sweep.verdict.causes]
    if notes:
        blocks.append(Bullets(tuple(notes)))
    if sweep.place is not None and sweep.place.topology:
        blocks.append(Paragraph(shortened(sweep.place.topology, MAX_BLOCK), code=True))
    return blocks


def _ceiling_line(sweep: CollectivesSummary, lines: Sequence[ChartSeries]) -> tuple[ChartSeries, ...]:
    """The link's bandwidth as a line over all sizes; empty where it is unknown."""
    ceiling = None if sweep.verdict is None else sweep.verdict.ceiling
    sizes = [x for line in lines for x in line.x]
    if ceiling is None or not sizes:
        return ()
    level = ceiling.bytes_per_second / 1e9
    return (ChartSeries(shortened(ceiling.link), (min(sizes), max(sizes)), (level, level), reference=True),)


def _table(figures: CollectiveFigures, title: str) -> Table:
    """A row for each operation and dtype."""
    columns = (
        Column("operation"),
        Column("type"),
        Column("smallest", True),
        Column("p95 there", True),
        Column("highest busbw", True),
        Column("at size", True),
        Column("spread of ranks", True),
        Column("latency and bandwidth"),
        Column("wrong", True),
    )
    rows = []
    for curve in figures.curves:
        first, peak = curve.points[0], curve.peak
        checked = [point.wrong_elements for point in curve.points if point.wrong_elements is not None]
        spread = max(point.rank_spread for point in curve.points)
        rows.append(
            (
                TableValue(curve.operation),
                TableValue(curve.dtype),
                TableValue(format_seconds(first.seconds), first.seconds),
                TableValue(format_seconds(first.p95), first.p95),
                TableValue(format_byte_rate(peak.busbw), peak.busbw) if peak.payload_bytes else _DASH,
                TableValue(format_bytes(peak.payload_bytes), peak.payload_bytes) if peak.payload_bytes else _DASH,
                TableValue(format_percent(spread, 0), spread),
                TableValue(format_fit(curve) or "–"),
                TableValue(str(sum(checked)), sum(checked)) if checked else _DASH,
            )
        )
    return Table(f"Collectives, {title}", columns, tuple(rows))


def _pairs_table(figures: CollectiveFigures, title: str) -> Table:
    pairs = {(pair.source, pair.target): pair for pair in figures.pairs}
    ranks = sorted({pair.source for pair in figures.pairs})
    rows = []
    for source in ranks:
        row = [TableValue(f"from {source}", source)]
        for target in ranks:
            pair = pairs.get((source, target))
            rate = None if pair is None else pair.payload_bytes / pair.seconds
            text = None if pair is None or rate is None else format_byte_rate(rate)
            row.append(_DASH if text is None else TableValue(text, rate))
        rows.append(tuple(row))
    columns = (Column("rank"), *(Column(f"to {rank}", True) for rank in ranks))
    size = format_bytes(figures.pairs[0].payload_bytes)
    return Table(f"Bandwidth of {size} messages between each pair of ranks, {title}", columns, tuple(rows))
