"""Results over time as JSON for other programs."""

from __future__ import annotations

from torchscale.analysis.stats.change_points import FALSE_DISCOVERY_RATE, MIN_LENGTH
from torchscale.features.compare.history.export_schema import (
    ChangePointExport,
    HistoryDifferenceExport,
    HistoryExport,
    HistoryPointExport,
    HistoryRunExport,
    TrendExport,
)
from torchscale.features.compare.history.next_commands import RunPlaces, next_commands
from torchscale.features.compare.history.page import HistoryReport
from torchscale.features.compare.history.records import HistoryRun
from torchscale.features.compare.history.text import trend_label
from torchscale.features.compare.history.trends import ChangePoint, Point, Trend


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
        runs=tuple(map(_run, report.runs)),
        trends=tuple(
            _trend(trend, places, report.places, report.threshold) for trend in report.trends
        ),
        left_out=report.left_out,
    )


def _run(run: HistoryRun) -> HistoryRunExport:
    return HistoryRunExport(
        name=run.name,
        measured_at=run.measured_at,
        host=run.host,
        driver=run.driver,
        torch=run.torch,
        nccl=run.nccl,
        torchscale=run.torchscale,
        git_branch=run.git_branch,
        git_commit=run.git_commit,
        config_hash=run.config_hash,
    )


def _trend(
    trend: Trend, places: dict[int, int], of_runs: RunPlaces, threshold: float
) -> TrendExport:
    return TrendExport(
        cell_id=trend.cell.id,
        label=trend_label(trend),
        device=trend.device,
        metric=trend.metric.metric,
        detail=trend.metric.detail,
        points=tuple(_point(point, places) for point in trend.points),
        changes=tuple(_change(change, places, of_runs) for change in trend.changes),
        regression=trend.regression(threshold) is not None,
    )


def _point(point: Point, places: dict[int, int]) -> HistoryPointExport:
    figure, outcome = point.figure, point.outcome
    return HistoryPointExport(
        run=places[point.run.number],
        level=figure.level,
        low=figure.low,
        high=figure.high,
        launches=figure.launches,
        state=outcome.state,
        flags=outcome.flags,
        left_out=point.left_out,
    )


def _change(change: ChangePoint, places: dict[int, int], of_runs: RunPlaces) -> ChangePointExport:
    return ChangePointExport(
        since=change.first.measured_at,
        last_before=places[change.last.run.number],
        first_after=places[change.first.run.number],
        ratio=change.ratio.value,
        interval=change.ratio.interval,
        runs_before=change.runs[0],
        runs_after=change.runs[1],
        worse=change.worse,
        differences=tuple(
            HistoryDifferenceExport(
                what=difference.what, before=difference.values[0], after=difference.values[1]
            )
            for difference in change.differences
        ),
        commands=next_commands(change, of_runs),
    )
