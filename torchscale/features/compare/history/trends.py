"""Results over time: the series of each cell's figure, and where its level changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torchscale.analysis.stats.change_points import NoisySeries, change_points
from torchscale.analysis.stats.ratios import LogRatio, log_ratio
from torchscale.config.choices import Metric
from torchscale.features.compare.analysis.differences import SideDifference
from torchscale.features.compare.analysis.headlines import HEADLINES
from torchscale.features.compare.analysis.matching import workload_key
from torchscale.features.compare.history.records import (
    HistoryContent,
    HistoryFigure,
    HistoryOutcome,
    HistoryRun,
)
from torchscale.schema.cells.kinds import AnyCell, as_kind
from torchscale.schema.cells.memory import MemoryCell
from torchscale.schema.run.metric_key import MetricKey

OTHER_METRICS = (Metric.MEMORY,)
"""What decides of a cell that measures memory alone."""


@dataclass(frozen=True)
class Point:
    """A figure of one run.

    Attributes:
        run: Which.
        figure: The figure with its level and interval.
        outcome: How its cell ended.
        left_out: Why it does not count (``contended``, ``crashed``); empty where it does.
    """

    run: HistoryRun
    figure: HistoryFigure
    outcome: HistoryOutcome
    left_out: str = ""

    @property
    def measured_at(self) -> str:
        """UTC, ISO 8601."""
        return self.outcome.measured_at or self.run.measured_at


@dataclass(frozen=True)
class ChangePoint:
    """A change of level.

    Attributes:
        last, first: The last run of the level before, the first of the one after.
        ratio: Level after ÷ level before, with the interval from run to run.
        runs: How many runs each level rests on.
        worse: Whether it is a change for the worse.
        differences: Machine, software and settings that ``last`` and ``first`` do not have in
            common.
    """

    last: Point
    first: Point
    ratio: LogRatio
    runs: tuple[int, int]
    worse: bool
    differences: tuple[SideDifference, ...] = ()


@dataclass(frozen=True)
class Trend:
    """One figure of one cell on one kind of device, over time.

    Attributes:
        cell: The cell as it was measured last.
        device: What its ranks ran on.
        metric: Which figure.
        points: All runs with that figure, oldest first.
        changes: Where its level changed, oldest first.
    """

    cell: AnyCell
    device: str
    metric: MetricKey
    points: tuple[Point, ...]
    changes: tuple[ChangePoint, ...] = ()

    @property
    def counted(self) -> tuple[Point, ...]:
        """Points that count."""
        return tuple(point for point in self.points if not point.left_out)

    @property
    def segments(self) -> tuple[tuple[Point, ...], ...]:
        """The points that count, split where the level changed."""
        counted = self.counted
        firsts = [change.first for change in self.changes]
        starts = [
            0,
            *(
                number
                for number, point in enumerate(counted)
                if any(point is first for first in firsts)
            ),
        ]
        return tuple(
            counted[start:end]
            for start, end in zip(starts, [*starts[1:], len(counted)], strict=True)
        )

    @property
    def newest_change(self) -> ChangePoint | None:
        """The last change; ``None`` where the level never changed."""
        if not self.changes:
            return None
        return self.changes[-1]

    def regression(self, threshold: float) -> ChangePoint | None:
        """The newest change, where it is for the worse and larger than ``threshold``."""
        newest = self.newest_change
        if newest is not None and newest.worse and abs(newest.ratio.value - 1) > threshold:
            return newest
        return None


def metrics_of(metrics: Sequence[Metric]) -> tuple[Metric, ...]:
    """What is followed: as asked for; speed, and the peak of memory cells, by default."""
    return tuple(metrics) or (*HEADLINES, *OTHER_METRICS)


def trends(
    content: HistoryContent, metrics: Sequence[Metric] = (), *, accept_flags: bool = False
) -> list[Trend]:
    """The series of every cell, in the order in which cells appeared, with their change points.

    A series is one workload on one kind of device; host, driver, software and settings may change
    within it, and are named where its level changes.

    Args:
        content: Runs, cells and figures.
        metrics: Which to follow; speed by default, and the peak of memory cells.
        accept_flags: Count figures of contended and throttled runs too.
    """
    series = _series(content, metrics, accept_flags=accept_flags)
    places = change_points([_noisy(trend.counted) for trend in series])
    return [_with_changes(trend, starts) for trend, starts in zip(series, places, strict=True)]


def _series(
    content: HistoryContent, metrics: Sequence[Metric], *, accept_flags: bool
) -> list[Trend]:
    wanted = metrics_of(metrics)
    runs = {run.number: (place, run) for place, run in enumerate(content.runs)}
    outcomes = {(outcome.run, outcome.cell): outcome for outcome in content.outcomes}
    keys = {number: workload_key(cell) for number, cell in content.cells.items()}
    grouped: dict[tuple[str, str, str], list[tuple[int, Point]]] = {}
    for figure in content.figures:
        place, run = runs.get(figure.run, (0, None))
        outcome, cell = outcomes.get((figure.run, figure.cell)), content.cells.get(figure.cell)
        if (
            run is None
            or outcome is None
            or cell is None
            or not _followed(cell, figure.metric, wanted, metrics)
        ):
            continue
        point = Point(run, figure, outcome, _left_out(outcome, accept_flags=accept_flags))
        grouped.setdefault((keys[figure.cell], outcome.device, figure.metric.text), []).append(
            (place, point)
        )
    found = []
    for (_, device, _), members in grouped.items():
        points = tuple(
            point
            for _, point in sorted(members, key=lambda member: (member[0], member[1].figure.cell))
        )
        newest = points[-1].figure
        found.append(
            (points[0].figure, Trend(content.cells[newest.cell], device, newest.metric, points))
        )
    return [trend for _, trend in sorted(found, key=lambda one: (one[0].cell, one[0].metric.text))]


def _followed(
    cell: AnyCell, key: MetricKey, wanted: Sequence[Metric], asked: Sequence[Metric]
) -> bool:
    """Whether a figure is followed over time; memory of a training cell only if it was asked
    for."""
    if key.metric not in wanted:
        return False
    return bool(asked) or key.metric not in OTHER_METRICS or as_kind(cell, MemoryCell) is not None


def _left_out(outcome: HistoryOutcome, *, accept_flags: bool) -> str:
    if not outcome.state.has_figures:
        return outcome.state.value
    if accept_flags:
        return ""
    return ", ".join(outcome.conditions)


def _noisy(points: Sequence[Point]) -> NoisySeries:
    """Levels with the variance that launches give them. A variance of three launches is coarse by
    itself, so that of one launch is taken as the same in all runs."""
    figures = [point.figure for point in points]
    known = [
        (one.log_variance, one.launches - 1) for one in figures if one.log_variance is not None
    ]
    degrees = sum(count for _, count in known)
    pooled = 0.0
    if degrees:
        pooled = sum(variance * count for variance, count in known) / degrees
    return NoisySeries(
        tuple(log_ratio([one.level], [1.0]).log for one in figures),
        tuple(pooled / max(1, one.launches) for one in figures),
    )


def _with_changes(trend: Trend, starts: Sequence[int]) -> Trend:
    counted = trend.counted
    bounds = [0, *starts, len(counted)]
    changes = []
    for before, start, end in zip(bounds, bounds[1:], bounds[2:], strict=False):
        levels = [
            [point.figure.level for point in counted[first:last]]
            for first, last in ((before, start), (start, end))
        ]
        ratio = log_ratio(levels[1], levels[0])
        worse = (ratio.value < 1) == trend.metric.metric.higher_is_better
        changes.append(
            ChangePoint(
                counted[start - 1], counted[start], ratio, (len(levels[0]), len(levels[1])), worse
            )
        )
    return replace(trend, changes=tuple(changes))
