"""The mean change of each metric over all cells, and the change of each cell as a chart."""

from __future__ import annotations

from collections.abc import Sequence

from torchscale.analysis.comparison.compare import Pair
from torchscale.analysis.stats.ratios import LogRatio
from torchscale.config.choices import Metric
from torchscale.report.document import (
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
from torchscale.report.sections.comparison_cells import verdict_value
from torchscale.report.sections.selection import spread_out
from torchscale.report.text.comparison import (
    METRIC_LABELS,
    format_interval,
    format_ratio_change,
    format_score,
)
from torchscale.report.text.labels import chart_name
from torchscale.util.units import format_change

_MAX_POINTS = 60
"""Cells in a chart: more points are closer together than their markers are wide."""
_MAX_TICKS = 10
"""Labels of the x axis that fit side by side."""
_VAGUE = 4.0
"""Intervals whose ends are further apart than this factor are not drawn: they would compress all others."""


def overall_section(
    pairs: Sequence[Pair], names: Sequence[str], metrics: Sequence[Metric], threshold: float
) -> Section:
    """The geometric mean change of each metric, the changes of all cells as a chart, and the scores."""
    columns = (
        Column("against " + shortened(names[0])),
        Column("metric"),
        Column("change", True),
        Column("95 % interval", True),
        Column("cells", True),
        Column("with warnings", True),
        Column("verdict"),
    )
    rows = [
        (
            TableValue(shortened(pair.other.name)),
            TableValue(METRIC_LABELS[one.metric]),
            TableValue(format_ratio_change(one.ratio), one.ratio.value - 1),
            TableValue(format_interval(one.ratio)),
            TableValue(str(one.cells), one.cells),
            TableValue(str(one.flagged), one.flagged),
            verdict_value(one.verdict),
        )
        for pair in pairs
        for one in pair.overall
    ]
    if not rows:
        return Section("Overall", "overall", (Paragraph("No cell was measured on both sides."),))
    blocks: list[Block] = [
        Paragraph(
            "The geometric mean of the cells' ratios, each cell with equal weight; higher is better except for step "
            "p95 and memory."
        ),
        Table("Overall", columns, tuple(rows)),
    ]
    charts = _charts(pairs, metrics, threshold)
    if charts:
        decided = [change for pair in pairs for _, change in pair.decided_by(metrics)]
        if any(change.ratio.interval != _drawn_interval(change.ratio) for change in decided):
            text = f"Intervals whose ends differ by more than a factor of {_VAGUE:g} are not drawn; see the table."
            blocks.append(Paragraph(text, of_charts=True))
        blocks.append(ChartGrid(tuple(charts)))
    scores = [f"{pair.other.name}: {format_score(pair.score)}." for pair in pairs if pair.score is not None]
    if scores:
        text = (
            "Score: 100 × speed relative to the reference over the cells measured on both sides × the share of the "
            "reference's "
        )
        blocks += [
            Paragraph(text + "cells that were also measured on this side."),
            Bullets(tuple(map(shortened, scores))),
        ]
    return Section("Overall", "overall", tuple(blocks))


def _charts(pairs: Sequence[Pair], metrics: Sequence[Metric], threshold: float) -> list[Chart]:
    """Every cell's change with its interval, from the worst to the best."""
    charts = []
    for pair in pairs:
        changes = [change for _, change in pair.decided_by(metrics)]
        if len(changes) < 2:
            continue
        changes.sort(key=lambda change: change.ratio.log)
        if len(changes) > _MAX_POINTS:
            changes = [*changes[: _MAX_POINTS // 2], *changes[-_MAX_POINTS // 2 :]]
        ends = [_drawn_interval(change.ratio) or (change.ratio.value,) * 2 for change in changes]
        places = tuple(float(number) for number in range(1, len(changes) + 1))
        title = f"{shortened(pair.other.name)} against {shortened(pair.reference.name)}"
        series = [
            ChartSeries(
                "change with 95 % interval",
                places,
                tuple((change.ratio.value - 1) * 100 for change in changes),
                tuple((low - 1) * 100 for low, _ in ends),
                tuple((high - 1) * 100 for _, high in ends),
            )
        ]
        series += [
            ChartSeries(
                f"threshold {format_change(share)}",
                (0.5, places[-1] + 0.5),
                (share * 100,) * 2,
                reference=True,
                legend=False,
            )
            for share in (-threshold, threshold)
        ]
        charts.append(
            Chart(
                name=chart_name("changes", title),
                title=title,
                summary=f"The change of each cell with its interval, {title}, from lowest to highest.",
                x_label="cells, from lowest to highest",
                y_label="change, %",
                series=tuple(series),
                x_ticks=tuple(spread_out(places, _MAX_TICKS)),
                y_from_zero=False,
                lines=False,
            )
        )
    return charts


def _drawn_interval(ratio: LogRatio) -> tuple[float, float] | None:
    interval = ratio.interval
    return interval if interval is not None and interval[1] <= _VAGUE * interval[0] else None
