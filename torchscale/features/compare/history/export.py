"""Results over time as JSON for other programs."""

from __future__ import annotations

from torchscale.analysis.stats.change_points import FALSE_DISCOVERY_RATE, MIN_LENGTH
from torchscale.features.compare.history.export_schema import (
    ChangePointExport,
    HistoryExport,
    HistoryPointExport,
    HistoryRunExport,
    TrendExport,
)
from torchscale.features.compare.history.next_commands import RunPlaces, next_commands
from torchscale.features.compare.history.page import HistoryReport
from torchscale.features.compare.history.text import trend_label
from torchscale.features.compare.history.trends import ChangePoint, Trend
from torchscale.schema.exports.base import exported


def history_json(report: HistoryReport) -> str:
    """Every run, series and change point, as JSON (``docs schema history``)."""
    return history_export(report).model_dump_json(indent=1)


def history_export(report: HistoryReport) -> HistoryExport:
    """The whole history as it is published."""
    places = {run.number: place for place, run in enumerate(report.runs)}
    return HistoryExport(
        threshold=report.threshold,
        false_discovery_rate=FALSE_DISCOVERY_RATE,
        min_runs=MIN_LENGTH,
        runs=tuple(map(HistoryRunExport.model_validate, report.runs)),
        trends=tuple(
            _trend(trend, places, report.places, report.threshold) for trend in report.trends
        ),
        left_out=report.left_out,
    )


def _trend(
    trend: Trend, places: dict[int, int], of_runs: RunPlaces, threshold: float
) -> TrendExport:
    return exported(
        TrendExport,
        trend,
        label=trend_label(trend),
        points=tuple(
            exported(HistoryPointExport, point, run=places[point.run.number])
            for point in trend.points
        ),
        changes=tuple(_change(change, places, of_runs) for change in trend.changes),
        regression=trend.regression(threshold) is not None,
    )


def _change(change: ChangePoint, places: dict[int, int], of_runs: RunPlaces) -> ChangePointExport:
    return exported(
        ChangePointExport,
        change,
        last_before=places[change.last.run.number],
        first_after=places[change.first.run.number],
        commands=next_commands(change, of_runs),
    )
