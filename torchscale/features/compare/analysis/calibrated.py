"""Verdicts by the thresholds of a calibrated reference.

The noise between runs is known from A/A runs, so that one launch is enough, and neither an interval
nor a p-value decides: a loss beyond the threshold is worse, a gain beyond it better.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from torchscale.analysis.stats.ratios import LogRatio, mean_ratio
from torchscale.config.choices import Metric
from torchscale.features.compare.analysis.change import ChangeVerdict, MetricChange, Reason
from torchscale.features.compare.analysis.headlines import HEADLINES
from torchscale.features.compare.analysis.machine_speed import SLOWED
from torchscale.features.compare.analysis.matching import is_same_work
from torchscale.features.compare.analysis.pair import (
    CellComparison,
    CellOutcome,
    Overall,
    Pair,
)
from torchscale.schema.run.calibration import Calibration
from torchscale.util.optional import complete, optional


def judged_by_calibration(pair: Pair, calibration: Calibration) -> Pair:
    """A pair with verdicts by the thresholds of its reference, wherever that has one. A cell of
    another workload or on another device keeps its verdict: its scatter is not known."""
    cells = tuple(_judged_cell(cell, calibration) for cell in pair.cells)
    overall = tuple(_judged_overall(one, cells, calibration) for one in pair.overall)
    score = pair.score
    if score is not None:
        speed = [one for one in overall if one.metric in HEADLINES]
        certain = all(one.verdict.decided and not one.conditions for one in speed)
        score = replace(score, certain=certain)
    return replace(pair, cells=cells, overall=overall, score=score)


def _judged_cell(cell: CellComparison, calibration: Calibration) -> CellComparison:
    before, after = cell.before, cell.after
    if cell.outcome is not CellOutcome.COMPARED or before is None or after is None:
        return cell
    if before.device != after.device or not is_same_work(before, after):
        return cell
    scatter = {one.figure: one for one in calibration.cells if one.cell == before.cell.id}
    changes = [
        _judged(change, scatter[change.key].threshold_of(change.launches[1]), calibration)
        if change.key in scatter
        else change
        for change in cell.changes
    ]
    return replace(cell, changes=tuple(changes))


def _judged(change: MetricChange, limit: float, calibration: Calibration) -> MetricChange:
    """A change by its threshold. Conditions that A/A runs were measured under are in the scatter;
    others bound the change as they do without a calibration."""
    covered = (*calibration.conditions, SLOWED)
    conditions = tuple(flag for flag in change.conditions if flag not in covered)
    change = replace(
        change,
        limit=limit,
        adjusted_p=None,
        conditions=conditions,
        bounds=change.bounds if conditions else None,
    )
    return replace(change, verdict=_verdict(change.metric, change.low, change.high, limit))


def _judged_overall(
    one: Overall, cells: Sequence[CellComparison], calibration: Calibration
) -> Overall:
    """The mean over the calibrated cells of a metric; as it was where none is."""
    of_metric = [
        (cell, change) for cell in cells for change in cell.changes if change.metric is one.metric
    ]
    judged = [(cell, change) for cell, change in of_metric if change.limit is not None]
    if not judged:
        return one
    bounded = [(cell, change) for cell, change in judged if None not in (change.low, change.high)]
    judged = bounded or judged
    changes = [change for _, change in judged]
    low, high = (
        optional(mean_ratio, complete(ends))
        for ends in ([change.low for change in changes], [change.high for change in changes])
    )
    limit = _overall_limit(one.metric, changes, calibration)
    counted = {id(cell): cell for cell, _ in judged}
    return Overall(
        one.metric,
        mean_ratio([change.ratio for change in changes]),
        len(counted),
        sum(bool(cell.flags) for cell in counted.values()),
        verdict := _verdict(one.metric, low, high, limit),
        low,
        high,
        None if verdict.decided else Reason.CONDITIONS,
        len({id(cell) for cell, _ in of_metric}) - len(counted),
        tuple(dict.fromkeys(flag for change in changes for flag in change.conditions)),
        limit,
    )


def _overall_limit(
    metric: Metric, changes: Sequence[MetricChange], calibration: Calibration
) -> float:
    """The threshold of a mean over cells; of other cells than were calibrated together the mean of
    theirs, which their mean exceeds no more often, however they scatter together."""
    launches = min(change.launches[1] for change in changes)
    calibrated = sum(one.figure.metric is metric for one in calibration.cells)
    for scatter in calibration.overall:
        if scatter.metric is metric and len(changes) == calibrated:
            return scatter.threshold_of(launches)
    limits = [change.limit for change in changes if change.limit is not None]
    return -math.expm1(math.fsum(map(math.log1p, (-limit for limit in limits))) / len(limits))


def _verdict(
    metric: Metric, low: LogRatio | None, high: LogRatio | None, limit: float
) -> ChangeVerdict:
    """The verdict on a change that lies between two ends; a gain of the same factor as the loss is
    better."""
    least, most = 1 - limit, 1 / (1 - limit)
    fallen, risen = ChangeVerdict.WORSE, ChangeVerdict.BETTER
    if not metric.higher_is_better:
        fallen, risen = risen, fallen
    if high is not None and high.value < least:
        return fallen
    if low is not None and low.value > most:
        return risen
    if low is None or high is None or low.value < least or high.value > most:
        return ChangeVerdict.UNCLEAR
    return ChangeVerdict.SAME
