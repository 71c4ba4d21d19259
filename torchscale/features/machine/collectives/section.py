"""The report's part about collectives: bus bandwidth over sizes, pairs, the verdict on the link."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from torchscale.analysis.summary.machine import CollectivesSummary
from torchscale.analysis.summary.run import RunSummary
from torchscale.features.machine.text import (
    fewer_calls_line,
    flagged_sizes,
    format_fit,
    point_flag_lines,
)
from torchscale.report.charts import Chart, ChartSeries, chart_name
from torchscale.report.document import (
    MAX_BLOCK,
    Block,
    Bullets,
    ChartGrid,
    Details,
    Paragraph,
    ReportPart,
    Section,
)
from torchscale.report.table import Column, ColumnOf, Table, table_of
from torchscale.report.values import DASH, TableValue, Tone, only_if, optional_value, shortened
from torchscale.schema.exports.machine import CollectiveFigures, CollectivePoint, Curve
from torchscale.schema.run.content import LaunchDetail
from torchscale.util.units import (
    format_byte_rate,
    format_bytes,
    format_seconds,
    format_whole_percent,
)

_MAX_DISTINCT = 12
"""Lines in a chart: more overlap, and colours repeat after seven."""


def collectives_section(summary: RunSummary) -> Section:
    """Bus bandwidth over sizes, the link's latency and bandwidth, pairs and the verdict; empty
    without any sweep."""
    blocks: list[Block] = []
    for sweep in summary.collectives:
        if sweep.figures is not None and not sweep.cell.logs_choices:
            blocks += _sweep_blocks(sweep, sweep.figures)
    if blocks:
        blocks.insert(
            0,
            Paragraph(
                "Bandwidths as defined by nccl-tests: algorithm bandwidth is bytes ÷ time, bus "
                "bandwidth is the load on the busiest link. Times are means over ranks of one "
                "timed loop; every element of every result was checked."
            ),
        )
    return Section("Collectives", "collectives", tuple(blocks), ReportPart.MACHINE, _key(summary))


def _key(summary: RunSummary) -> str:
    """The highest bus bandwidth, of a size without a warning where there is one."""
    peaks = [
        curve.peak
        for sweep in summary.collectives
        if sweep.figures
        for curve in sweep.figures.curves
    ]
    rates = [peak.busbw for peak in peaks if not peak.flags] or [peak.busbw for peak in peaks]
    if not rates:
        return ""
    warning = ", every size with a warning"
    if any(not peak.flags for peak in peaks):
        warning = ""
    return f"up to {format_byte_rate(max(rates))} bus bandwidth{warning}"


def _sweep_blocks(sweep: CollectivesSummary, figures: CollectiveFigures) -> list[Block]:
    cell = sweep.cell
    chosen = cell.settings[: len(cell.settings) - len(cell.dtypes)]
    place = ", ".join(
        [f"{cell.world_size} ranks over {figures.backend}", *_link_name(sweep), *chosen]
    )
    title = ", ".join([place, *cell.dtypes])
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
        x_label="message size",
        y_label="bus bandwidth, GB/s",
        series=(*lines[:_MAX_DISTINCT], *_ceiling_line(sweep, lines)),
        log_x=True,
        log_y=True,
        byte_sizes=True,
    )
    blocks: list[Block] = []
    if lines:
        blocks.append(ChartGrid((chart,)))
    blocks.append(_table(sweep, figures, title))
    rates, times = _sizes_tables(figures, place)
    blocks += [*rates, *only_if(times, Details("Mean time of every size", tuple(times)))]
    if figures.pairs:
        blocks.append(_pairs_table(figures, title))
    notes = [f"Not measured: {what}: {shortened(text)}" for what, text in figures.unsupported]
    if any(not point.flags for curve in figures.curves for point in curve.points):
        notes += [f"{text}." for text in (flagged_sizes(figures),) if text]
    notes += [f"{line}." for line in point_flag_lines(figures)]
    notes += [f"{line}." for line in (fewer_calls_line(sweep.cell, figures),) if line]
    if sweep.moved_by:
        notes.append(f"Moved by: {shortened(sweep.moved_by)}.")
    if sweep.verdict is not None:
        notes.append(shortened(sweep.verdict.text))
        notes += [
            f"Possible cause: {cause.text}; check: {cause.check}" for cause in sweep.verdict.causes
        ]
    if notes:
        blocks.append(Bullets(tuple(notes)))
    if sweep.place is not None and sweep.place.topology:
        blocks.append(Paragraph(shortened(sweep.place.topology, MAX_BLOCK), code=True))
    return blocks


def _link_name(sweep: CollectivesSummary) -> list[str]:
    """``between n0 and n1``, ``between 4 nodes``; nothing on one node."""
    hosts = sorted({node.hostname for node in sweep.facts.nodes})
    if len(hosts) < 2:
        return []
    return [
        f"between {shortened(hosts[0])} and {shortened(hosts[1])}"
        if len(hosts) == 2
        else f"between {len(hosts)} nodes"
    ]


def _ceiling_line(
    sweep: CollectivesSummary, lines: Sequence[ChartSeries]
) -> tuple[ChartSeries, ...]:
    """The link's bandwidth as a line over all sizes; empty where it is unknown."""
    ceiling = sweep.ceiling
    sizes = [x for line in lines for x in line.x]
    if ceiling is None or not sizes:
        return ()
    level = ceiling.bytes_per_second / 1e9
    return (
        ChartSeries(
            shortened(ceiling.link), (min(sizes), max(sizes)), (level, level), reference=True
        ),
    )


def _table(sweep: CollectivesSummary, figures: CollectiveFigures, title: str) -> Table:
    """A row for each operation and dtype; the share of the link's bandwidth where that is known."""
    columns: tuple[ColumnOf[Curve], ...] = (
        ColumnOf("operation", lambda curve: curve.operation),
        ColumnOf("type", lambda curve: curve.dtype),
        ColumnOf("time of smallest", lambda curve: _time_value(curve.points[0]), numeric=True),
        ColumnOf("its p95", lambda curve: curve.points[0].p95, format_seconds),
        ColumnOf("highest busbw", lambda curve: _busbw_value(curve.peak), numeric=True),
        ColumnOf(
            "of the link",
            lambda curve: curve.peak.link_share,
            format_whole_percent,
            shown=sweep.ceiling is not None,
        ),
        ColumnOf("at size", lambda curve: curve.peak.payload_bytes or None, format_bytes),
        ColumnOf(
            "spread of ranks",
            lambda curve: max(point.rank_spread for point in curve.points),
            format_whole_percent,
        ),
        ColumnOf("latency and bandwidth", lambda curve: format_fit(curve) or "–"),
        ColumnOf("wrong", _wrong_elements, str),
    )
    return table_of(f"Collectives, {title}", columns, figures.curves)


def _wrong_elements(curve: Curve) -> int | None:
    checked = [point.wrong_elements for point in curve.points if point.wrong_elements is not None]
    return sum(checked) if checked else None


def _sizes_tables(figures: CollectiveFigures, place: str) -> tuple[list[Table], list[Table]]:
    """Bus bandwidth and mean time of each dtype: a row a size, a column an operation."""
    rates, times = [], []
    for dtype in dict.fromkeys(curve.dtype for curve in figures.curves):
        curves = [
            curve
            for curve in figures.curves
            if curve.dtype == dtype and curve.points[0].payload_bytes
        ]
        if curves:
            which = f"{place}, {dtype}"
            rates.append(_sizes_table(f"Bus bandwidth by size, {which}", curves, _busbw_value))
            times.append(_sizes_table(f"Mean time by size, {which}", curves, _time_value))
    return rates, times


def _sizes_table(
    caption: str, curves: Sequence[Curve], value: Callable[[CollectivePoint], TableValue]
) -> Table:
    by_size: dict[int, dict[str, TableValue]] = {}
    for curve in curves:
        for point in curve.points:
            by_size.setdefault(point.payload_bytes, {})[curve.operation] = value(point)
    operations = [curve.operation for curve in curves]
    columns = (Column("size", True), *(Column(operation, True) for operation in operations))
    rows = tuple(
        (
            TableValue(format_bytes(size), size),
            *(values.get(operation, DASH) for operation in operations),
        )
        for size, values in sorted(by_size.items())
    )
    return Table(caption, columns, rows)


def _time_value(point: CollectivePoint) -> TableValue:
    return _marked(format_seconds(point.seconds), point.seconds, point)


def _busbw_value(point: CollectivePoint) -> TableValue:
    if point.busbw:
        return _marked(format_byte_rate(point.busbw), point.busbw, point)
    return DASH


def _marked(text: str, value: float, point: CollectivePoint) -> TableValue:
    """A table value with ``*`` where the size has a warning; the notes say which."""
    if point.flags:
        return TableValue(f"{text}*", value, Tone.CAUTION)
    return TableValue(text, value)


def _pairs_table(figures: CollectiveFigures, title: str) -> Table:
    pairs = {(pair.source, pair.target): pair for pair in figures.pairs}
    ranks = sorted({pair.source for pair in figures.pairs})
    rows = []
    for source in ranks:
        row = [TableValue(f"from {source}", source)]
        for target in ranks:
            pair = pairs.get((source, target))
            rate = None
            if pair is not None:
                rate = pair.payload_bytes / pair.seconds
            row.append(optional_value(rate, format_byte_rate))
        rows.append(tuple(row))
    columns = (Column("rank"), *(Column(f"to {rank}", True) for rank in ranks))
    size = format_bytes(figures.pairs[0].payload_bytes)
    return Table(
        f"Bandwidth of {size} messages between each pair of ranks, {title}", columns, tuple(rows)
    )


def sections(
    summary: RunSummary, details: Mapping[str, LaunchDetail], price: float | None
) -> tuple[Section, ...]:
    """One, with all cells of the kind."""
    return (collectives_section(summary),)
