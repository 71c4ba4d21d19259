"""The mean change of each metric over all cells, and the change of each cell as a chart."""

from __future__ import annotations

from collections.abc import Sequence

from torchscale.config.choices import Metric
from torchscale.features.compare.analysis.change import MetricChange, Reason
from torchscale.features.compare.analysis.pair import CellComparison, Overall, Pair
from torchscale.features.compare.sections.cells import ratio_value, verdict_value
from torchscale.features.compare.text.comparison import (
    UNDISTURBED,
    both_values,
    format_interval,
    format_scores,
    format_undisturbed,
    table_names,
)
from torchscale.features.compare.text.result import METRIC_LABELS, result_label
from torchscale.features.compare.text.verdict import format_nothing_compared
from torchscale.report.charts import Chart, ChartSeries, chart_name
from torchscale.report.document import Block, Bullets, ChartGrid, Paragraph, Section
from torchscale.report.sections.selection import spread_out
from torchscale.report.table import ColumnOf, table_of
from torchscale.report.text.labels import short_batch, short_title
from torchscale.report.values import only_if, shortened
from torchscale.schema.cells.kinds import training_workload
from torchscale.schema.run.result_set import ResultCell
from torchscale.util.units import format_change

_MAX_POINTS = 60
"""Cells in a chart: more points are closer together than their markers are wide."""
_MAX_TICKS = 10
"""Labels of the x axis that fit side by side."""
_VAGUE = 4.0
"""Intervals whose ends are further apart than this factor do not decide how high the chart is: it
would compress all others."""
_SHOWN_OF_VAGUE = 1.5
"""Factor to either side of a change that is shown of such an interval: longer than most others."""
_MARGIN = 0.05
"""Of the height, above and below what is drawn."""
_NAME = 40
"""Characters of a cell's name under the chart; more would take the height of the chart."""
_GROUPS = ("95 % interval", "unclear", "no interval: too few launches")
"""Groups of points, from the most to the least certain; each has its own marker, and the last is
crosses."""


def overall_section(
    pairs: Sequence[Pair], names: Sequence[str], metrics: Sequence[Metric], threshold: float
) -> Section:
    """The geometric mean change of each metric, the changes of all cells as a chart, and the
    scores."""
    sides = [pair.other.name for pair in pairs]
    reference, *others = table_names([names[0], *sides])
    named = dict(zip(sides, others, strict=True))
    rows = [(pair, one) for pair in pairs for one in pair.overall]
    if not rows:
        reasons = tuple(f"{format_nothing_compared(pair, metrics)}." for pair in pairs)
        return Section("Overall", "overall", (Bullets(reasons),))
    disturbed = any(one.conditions for _, one in rows)
    columns: tuple[ColumnOf[tuple[Pair, Overall]], ...] = (
        ColumnOf(f"against {reference}", lambda row: named[row[0].other.name]),
        ColumnOf("metric", lambda row: METRIC_LABELS[row[1].metric]),
        ColumnOf("change", lambda row: ratio_value(row[1].ratio), numeric=True),
        ColumnOf("95 % interval", lambda row: format_interval(row[1].ratio), numeric=True),
        ColumnOf(
            UNDISTURBED, lambda row: format_undisturbed(row[1]), numeric=True, shown=disturbed
        ),
        ColumnOf("cells", lambda row: row[1].cells, str),
        ColumnOf("left out", lambda row: row[1].withheld, str),
        ColumnOf("with warnings", lambda row: row[1].flagged, str),
        ColumnOf("verdict", lambda row: verdict_value(row[1])),
    )
    blocks: list[Block] = [
        Paragraph(
            "The geometric mean of the cells' ratios, each cell with equal weight; higher is "
            "better except for step p95 and memory. Left out are cells with too few launches where "
            "others have enough, and those that were contended or throttled where nothing bounds "
            "what that did."
        ),
        table_of("Overall", columns, rows),
    ]
    charts = (
        change_charts(pairs, metrics, threshold) if len(pairs) > 1 else []
    )  # of two sides: on the first screen
    if charts:
        blocks.append(ChartGrid(tuple(charts)))
    scores = [
        f"{pair.other.name}: {score}" if len(pairs) > 1 else score
        for pair in pairs
        for score in format_scores(pair)
    ]
    if scores:
        text = (
            "Score: 100 × speed relative to the reference over the cells measured on both sides × "
            "the share of the reference's "
        )
        blocks += [
            Paragraph(
                text + "cells that were also measured on this side. Efficiency score: 100 × the "
                "scaling efficiency of this side relative to the reference's, over the counts that "
                "both measured."
            ),
            Bullets(tuple(map(shortened, scores))),
        ]
    return Section("Overall", "overall", tuple(blocks))


def change_charts(
    pairs: Sequence[Pair], metrics: Sequence[Metric], threshold: float
) -> list[Chart]:
    """Every cell's change with its interval, from the lowest to the highest."""
    charts = []
    for pair in pairs:
        changes = sorted(pair.decided_by(metrics), key=lambda found: found[1].ratio.log)
        if len(changes) < 2:
            continue
        if len(changes) > _MAX_POINTS:
            changes = [*changes[: _MAX_POINTS // 2], *changes[-_MAX_POINTS // 2 :]]
        places = [float(number) for number in range(1, len(changes) + 1)]
        ticks = spread_out(list(zip(places, changes, strict=True)), _MAX_TICKS)
        title = f"{shortened(pair.other.name)} against {shortened(pair.reference.name)}"
        groups = [
            _points(
                group, [(place, change) for place, (_, change) in zip(places, changes, strict=True)]
            )
            for group in _GROUPS
        ]
        charts.append(
            Chart(
                name=chart_name("changes", title),
                title=title,
                summary=f"The change of each cell with its interval, {title}, from lowest to "
                "highest.",
                x_label="",
                y_label="change, %",
                series=(
                    *(series for series in groups if series.x),
                    *_limits(threshold, places[-1]),
                ),
                x_ticks=tuple(place for place, _ in ticks),
                prominent=True,
                x_names=tuple(_short_label(cell, change) for _, (cell, change) in ticks),
                y_from_zero=False,
                y_range=_cut_range([change for _, change in changes], threshold),
                lines=False,
            )
        )
    return charts


def _points(group: str, changes: Sequence[tuple[float, MetricChange]]) -> ChartSeries:
    """Points of one group; those without an interval are crosses."""
    drawn = [
        (place, change, _interval(change) or (change.ratio.value,) * 2)
        for place, change in changes
        if _group(change) == group
    ]
    return ChartSeries(
        group,
        tuple(place for place, _, _ in drawn),
        tuple((change.ratio.value - 1) * 100 for _, change, _ in drawn),
        tuple((low - 1) * 100 for _, _, (low, _) in drawn),
        tuple((high - 1) * 100 for _, _, (_, high) in drawn),
        marks=group == _GROUPS[-1],
    )


def _limits(threshold: float, last: float) -> list[ChartSeries]:
    return [
        ChartSeries(
            f"threshold {format_change(share)}",
            (0.5, last + 0.5),
            (share * 100,) * 2,
            reference=True,
            legend=False,
        )
        for share in (-threshold, threshold)
    ]


def _group(change: MetricChange) -> str:
    if _interval(change) is None:
        return _GROUPS[2]
    if change.verdict.decided:
        return _GROUPS[0]
    return _GROUPS[1]


def _interval(change: MetricChange) -> tuple[float, float] | None:
    """The ratios that the table has as interval; ``None`` where it says nothing."""
    if change.reason is Reason.FEW_LAUNCHES:
        return None
    return change.ratio.interval


def _cut_range(changes: Sequence[MetricChange], threshold: float) -> tuple[float, float] | None:
    """Ends of the y axis, in percent, where it has no room for the widest intervals; ``None`` where
    it has room for all."""
    known = [found for change in changes if (found := _interval(change)) is not None]
    shown = [1 - threshold, 1 + threshold, *(change.ratio.value for change in changes)]
    for change in changes:
        low, high = _interval(change) or (change.ratio.value,) * 2
        if high > _VAGUE * low:
            low = max(low, change.ratio.value / _SHOWN_OF_VAGUE)
            high = min(high, change.ratio.value * _SHOWN_OF_VAGUE)
        shown += [low, high]
    low, high = min(shown), max(shown)
    if all(low <= ends[0] and ends[1] <= high for ends in known):
        return None
    margin = _MARGIN * (high - low)
    return (low - margin - 1) * 100, (high + margin - 1) * 100


def _short_label(cell: CellComparison, change: MetricChange) -> str:
    """``tiny ResNet b8 n2``, with ``b16 | b8`` where the sides differ."""
    sides = [_short_parts(side) for side in (cell.before, cell.after) if side is not None]
    parts = [both_values(ours, theirs) for ours, theirs in zip(sides[0], sides[-1], strict=True)]
    return shortened(
        " ".join([*(part for part in parts if part), *only_if(change.detail, change.detail)]),
        _NAME,
    )


def _short_parts(cell: ResultCell) -> tuple[str, str, str]:
    workload = training_workload(cell.cell)
    if workload is None:
        return result_label(cell), "", ""
    return short_title(workload), f"b{short_batch(workload)}", f"n{workload.world_size}"
