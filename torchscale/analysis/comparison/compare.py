"""Two result sets against each other: which cells match, what changed, and whether that is beyond noise.

Pure; definitions in ``docs/method.md``. The unit is the launch: steps of one launch are not independent, and pooled
they call most equal pairs different.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from torchscale.analysis.comparison.conditions import session_numbers, unequal_conditions
from torchscale.analysis.comparison.matching import match_cells
from torchscale.analysis.comparison.pair import (
    HEADLINES,
    MIN_LAUNCHES,
    CellComparison,
    Change,
    EfficiencyScore,
    Outcome,
    Overall,
    Pair,
    Score,
    Verdict,
)
from torchscale.analysis.stats.ratios import LogRatio, holm, log_ratio, mean_ratio, quotient, ratio_to_median
from torchscale.analysis.stats.sessions import session_noise, with_session_noise
from torchscale.config.choices import MatchKey, Metric
from torchscale.schema.cells.kinds import as_kind
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.run.metric_key import MetricKey
from torchscale.schema.run.result_set import ResultCell, ResultSet
from torchscale.schema.state import State

LEVEL = 0.05
"""Of significance, after Holm's correction (docs/method.md). Measured false alarms: docs/tested-on.md."""
THRESHOLD = 0.02
"""A change up to this share counts as none: launches of one configuration differ by 2 to 3 % on a shared machine, and
smaller changes rarely matter (docs/method.md; ``--threshold`` sets it)."""
_UNAFFECTED = (Metric.MEMORY,)
"""Other processes and low clocks change times, not the bytes that a cell needs."""


@dataclass(frozen=True)
class _Side:
    """A cell's launches: each metric's values, the number of the session of each launch."""

    values: dict[MetricKey, list[float]]
    sessions: list[int]

    def groups(self, key: MetricKey) -> list[list[float]]:
        """Values by session."""
        by_session: dict[int, list[float]] = {}
        for session, value in zip(self.sessions, self.values[key], strict=True):
            by_session.setdefault(session, []).append(value)
        return list(by_session.values())


def compare(
    reference: ResultSet,
    other: ResultSet,
    *,
    threshold: float = THRESHOLD,
    prices: tuple[float | None, float | None] = (None, None),
    ignore_precision: bool = False,
    match: Sequence[MatchKey] = (),
    accept_flags: bool = False,
    median: bool = False,
) -> Pair:
    """``other`` against ``reference``.

    Args:
        reference, other: The sides.
        threshold: A change up to this share is none.
        prices: Of a device and hour on each side; without both there is no cost.
        ignore_precision: Match cells that differ in precision alone.
        match: Match training and memory cells by these alone, whatever else differs.
        accept_flags: Give a verdict also where the sides were measured under unequal conditions.
        median: Take the median over the reference's sessions instead of the mean over its launches.

    Raises:
        UsageError: ``match`` does not tell cells of a side apart.
    """
    matches, notes = match_cells(reference, other, ignore_precision=ignore_precision, keys=match)
    cells = []
    for before, after in matches:
        outcome = _outcome(before, after)
        if before is None or after is None or outcome is not Outcome.COMPARED:
            cells.append(CellComparison(before, after, outcome))
            continue
        sides = (_side(before, reference, prices[0]), _side(after, other, prices[1]))
        cells.append(_compare_cells(before, after, sides, accept_flags=accept_flags, median=median))
    judged = {metric: _judged(metric, changes, threshold) for metric, changes in _by_metric(cells).items()}
    verdicts = {id(change): new for changes, _ in judged.values() for change, new in changes}
    cells = [replace(cell, changes=tuple(verdicts[id(change)] for change in cell.changes)) for cell in cells]
    overall = tuple(of_metric for _, of_metric in judged.values())
    score, efficiency = _score(cells, overall), _efficiency(cells)
    return Pair(reference, other, tuple(cells), overall, score, notes, threshold, efficiency)


def _outcome(before: ResultCell | None, after: ResultCell | None) -> Outcome:
    if before is None or after is None:
        return Outcome.UNMATCHED
    if before.state.has_failed and after.state is State.OK:
        return Outcome.GAINED
    if not before.launches or not before.state.has_figures:
        return Outcome.UNMEASURED
    if after.state.has_failed:
        return Outcome.LOST
    return Outcome.COMPARED if after.launches and after.state.has_figures else Outcome.UNMEASURED


def _side(cell: ResultCell, results: ResultSet, price: float | None) -> _Side:
    """A metric that some launch lacks is left out."""
    keys = list(cell.launches[0].values)
    values = {
        key: [launch.values[key] for launch in cell.launches]
        for key in keys
        if all(key in launch.values for launch in cell.launches)
    }
    rates = values.get(MetricKey(metric=Metric.THROUGHPUT))
    if price is not None and price > 0 and rates is not None:
        values[MetricKey(metric=Metric.COST)] = [rate * 3600 / (price * cell.cell.world_size) for rate in rates]
    return _Side(values, session_numbers(results.sessions, cell.launches))


def _compare_cells(
    before: ResultCell, after: ResultCell, sides: tuple[_Side, _Side], *, accept_flags: bool, median: bool
) -> CellComparison:
    conditions = () if accept_flags else unequal_conditions(before, after)
    keys = list(sides[0].values)
    changes = [
        _change(key, sides, () if key.metric in _UNAFFECTED else conditions, median=median)
        for key in keys
        if key in sides[1].values
    ]
    absent = tuple(key for key in keys if key not in sides[1].values)
    return CellComparison(before, after, Outcome.COMPARED, tuple(changes), absent)


def _change(key: MetricKey, sides: tuple[_Side, _Side], conditions: tuple[str, ...], *, median: bool) -> Change:
    old, new = (side.values[key] for side in sides)
    groups = [side.groups(key) for side in sides]
    ratio = ratio_to_median(new, groups[0]) if median else log_ratio(new, old)
    noise = session_noise(groups)
    return Change(
        key,
        math.exp(math.log(_level(new)) - ratio.log) if median else _level(old),
        _level(new),
        ratio if noise is None else with_session_noise(ratio, groups, noise),
        (len(old), len(new)),
        (len(groups[0]), len(groups[1])),
        None if noise is None else noise.spread,
        conditions=conditions,
    )


def _level(values: Sequence[float]) -> float:
    return log_ratio(values, [1.0]).value


_Changes = list[tuple[CellComparison, Change]]


def _by_metric(cells: Sequence[CellComparison]) -> dict[Metric, _Changes]:
    by_metric: dict[Metric, _Changes] = {}
    for cell in cells:
        for change in cell.changes:
            by_metric.setdefault(change.metric, []).append((cell, change))
    return by_metric


def _judged(metric: Metric, changes: _Changes, threshold: float) -> tuple[list[tuple[Change, Change]], Overall]:
    """Each change without and with its verdict, and all of them together.

    Changes between sides of unequal conditions neither count nor are tested. Holm's correction covers every test of the
    metric: its cells and, where there are several, their mean.
    """
    counted = [(cell, change) for cell, change in changes if not change.conditions]
    shown = counted or changes
    ratio = mean_ratio([change.ratio for _, change in shown])
    decidable = {id(change): change.ratio.p for _, change in counted if min(change.launches) >= MIN_LAUNCHES}
    tested = {key: p for key, p in decidable.items() if p is not None}
    if ratio.p is not None and len(tested) == len(counted) > 1:
        tested[id(ratio)] = ratio.p
    adjusted = dict(zip(tested, holm(list(tested.values())), strict=True))
    with_verdicts = [(change, _with_verdict(change, adjusted.get(id(change)), threshold)) for _, change in changes]
    overall_p = adjusted.get(id(ratio) if len(counted) > 1 else id(shown[0][1]))
    verdict = _verdict(metric, ratio, overall_p, threshold)
    if not counted and all(min(change.launches) >= MIN_LAUNCHES for _, change in shown):
        verdict = Verdict.UNCLEAR
    conditions = tuple(dict.fromkeys(flag for _, change in shown for flag in change.conditions))
    cells = {id(cell): cell for cell, _ in shown}.values()
    flagged, withheld = sum(bool(cell.flags) for cell in cells), len({id(cell) for cell, _ in changes}) - len(cells)
    return with_verdicts, Overall(metric, ratio, len(cells), flagged, verdict, withheld, conditions)


def _with_verdict(change: Change, adjusted_p: float | None, threshold: float) -> Change:
    if change.conditions and min(change.launches) >= MIN_LAUNCHES:
        return replace(change, verdict=Verdict.UNCLEAR)
    verdict = _verdict(change.metric, change.ratio, adjusted_p, threshold)
    return replace(change, adjusted_p=adjusted_p, verdict=verdict)


def _verdict(metric: Metric, ratio: LogRatio, p: float | None, threshold: float) -> Verdict:
    interval = ratio.interval
    if p is None or interval is None:
        return Verdict.NOT_DECIDABLE
    if p < LEVEL and abs(ratio.value - 1) > threshold:
        return Verdict.BETTER if (ratio.value > 1) == metric.higher_is_better else Verdict.WORSE
    within = 1 - threshold <= interval[0] and interval[1] <= 1 + threshold
    return Verdict.SAME if within else Verdict.UNCLEAR


def _score(cells: Sequence[CellComparison], overall: Sequence[Overall]) -> Score | None:
    speeds = [cell for cell in cells if cell.before and cell.before.launches and cell.cell.cell.kind != "memory"]
    ratios = []
    for cell in speeds:
        changes = [change for change in cell.changes if change.metric in HEADLINES]
        if changes:
            ratios.append((mean_ratio([change.ratio for change in changes]), any(one.conditions for one in changes)))
    if not ratios:
        return None
    counted = [ratio for ratio, withheld in ratios if not withheld] or [ratio for ratio, _ in ratios]
    measured = sum(cell.after is not None and cell.after.state is State.OK for cell in speeds)
    certain = all(one.verdict.decided for one in overall if one.metric in HEADLINES)
    return Score(mean_ratio(counted).value, measured, len(speeds), certain)


def _efficiency(cells: Sequence[CellComparison]) -> EfficiencyScore | None:
    """E(n) = T(n)·n₀ ÷ (T(n₀)·n) on both sides, so that counts cancel: the ratio of throughputs at n ÷ that at n₀."""
    series: dict[tuple[str, str], dict[int, LogRatio]] = {}
    for cell in cells:
        ours, theirs = (side and as_kind(side.cell, TrainingCell) for side in (cell.before, cell.after))
        speed = [change for change in cell.changes if change.metric is Metric.THROUGHPUT and not change.conditions]
        if ours and theirs and speed and ours.world_size == theirs.world_size:
            series.setdefault((ours.series, theirs.series), {})[ours.world_size] = speed[0].ratio
    ratios = []
    for by_count in series.values():
        smallest, *larger = sorted(by_count)
        if larger:
            ratios.append(
                (quotient(mean_ratio([by_count[count] for count in larger]), by_count[smallest]), len(larger))
            )
    if not ratios:
        return None
    return EfficiencyScore(mean_ratio([ratio for ratio, _ in ratios]), sum(count for _, count in ratios))
