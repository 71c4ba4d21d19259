"""Verdicts on changes: whether each, and all of a metric together, are beyond noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torchscale.analysis.stats.ratios import LogRatio, holm, mean_ratio
from torchscale.config.choices import Metric
from torchscale.features.compare.analysis.bounds import Bounds
from torchscale.features.compare.analysis.change import ChangeVerdict, MetricChange, interval_end
from torchscale.features.compare.analysis.pair import CellComparison, Overall
from torchscale.util.optional import complete, optional

LEVEL = 0.05
"""Level of significance, after Holm's correction (docs/method.md). Measured false alarms:
docs/tested-on.md."""


def nearest_p(low: LogRatio | None, high: LogRatio | None) -> float:
    """p-value of the end that is nearest to no change; 1 where "no change" lies between the ends,
    or nothing bounds it."""
    if high is not None and high.value < 1:
        return 1.0 if high.p is None else high.p
    if low is not None and low.value > 1:
        return 1.0 if low.p is None else low.p
    return 1.0


Changes = list[tuple[CellComparison, MetricChange]]


def changes_by_metric(cells: Sequence[CellComparison]) -> dict[Metric, Changes]:
    """The changes of all cells, with the cell of each."""
    by_metric: dict[Metric, Changes] = {}
    for cell in cells:
        for change in cell.changes:
            by_metric.setdefault(change.metric, []).append((cell, change))
    return by_metric


def judge_metric(
    metric: Metric, changes: Changes, threshold: float
) -> tuple[list[tuple[MetricChange, MetricChange]], Overall]:
    """Each change without and with its verdict, and all of them together.

    Changes between sides of unequal conditions count where these are bounded from both sides, and
    are tested by the bound. Cells with too few launches count where no cell has more. Holm's
    correction covers every test of the metric: its cells and, where there are several, their mean.
    """
    bounded = [
        (cell, change)
        for cell, change in changes
        if change.low is not None and change.high is not None
    ]
    counted = [(cell, change) for cell, change in bounded if change.enough_launches]
    shown = counted or bounded or changes
    compared = [change for _, change in shown]
    mean = _mean_change(compared)
    tests = {id(change): _test(change) for _, change in changes}
    if len(shown) > 1 and counted:
        tests[id(mean)] = nearest_p(mean.low, mean.high)
    tested = {key: p for key, p in tests.items() if p is not None}
    adjusted = dict(zip(tested, holm(list(tested.values())), strict=True))
    with_verdicts = [
        (change, _with_verdict(change, adjusted.get(id(change)), threshold))
        for _, change in changes
    ]
    overall_p = adjusted.get(id(mean) if len(shown) > 1 else id(compared[0]))
    overall = _with_verdict(mean, overall_p, threshold)
    cells = {id(cell): cell for cell, _ in shown}.values()
    return with_verdicts, Overall(
        metric,
        mean.ratio,
        len(cells),
        sum(bool(cell.flags) for cell in cells),
        overall.verdict,
        mean.low,
        mean.high,
        overall.reason,
        len({id(cell) for cell, _ in changes}) - len(cells),
        mean.conditions,
    )


def _mean_change(changes: Sequence[MetricChange]) -> MetricChange:
    """All of them together, as a change of its own: geometric means of the ratios and of what
    bounds them."""
    conditions = tuple(dict.fromkeys(flag for change in changes for flag in change.conditions))
    fewest = min((change.launches for change in changes), key=min)
    mean = replace(
        changes[0],
        ratio=mean_ratio([change.ratio for change in changes]),
        launches=fewest,
        conditions=conditions,
        bounds=None,
    )
    if not conditions:
        return mean
    lows, highs = [change.low for change in changes], [change.high for change in changes]
    bases = [change.bounds.basis for change in changes if change.bounds is not None]
    if not bases:
        return mean
    return replace(mean, bounds=Bounds(_mean_end(lows), _mean_end(highs), bases[0]))


def _mean_end(ends: Sequence[LogRatio | None]) -> LogRatio | None:
    return optional(mean_ratio, complete(ends))


def _test(change: MetricChange) -> float | None:
    """p of a change; ``None`` where it is not tested: with too few launches, and where nothing
    bounds an end that the other one leaves open."""
    if not change.enough_launches:
        return None
    p = nearest_p(change.low, change.high)
    one_sided = change.low is None or change.high is None
    if one_sided and p == 1.0:
        return None
    return p


def _with_verdict(change: MetricChange, adjusted_p: float | None, threshold: float) -> MetricChange:
    if adjusted_p is None:
        return change
    verdict = _verdict(change, adjusted_p, threshold)
    return replace(change, adjusted_p=adjusted_p, verdict=verdict)


def _verdict(change: MetricChange, p: float, threshold: float) -> ChangeVerdict:
    """Judge a change by the end of its possible values that is nearest to no change."""
    low, high = change.low, change.high
    higher_is_better = change.metric.higher_is_better
    if p < LEVEL and high is not None and high.value < 1 - threshold:
        return ChangeVerdict.WORSE if higher_is_better else ChangeVerdict.BETTER
    if p < LEVEL and low is not None and low.value > 1 + threshold:
        return ChangeVerdict.BETTER if higher_is_better else ChangeVerdict.WORSE
    least, most = interval_end(low, 0), interval_end(high, 1)
    within = (
        least is not None and most is not None and 1 - threshold <= least and most <= 1 + threshold
    )
    if within:
        return ChangeVerdict.SAME
    return ChangeVerdict.UNCLEAR
