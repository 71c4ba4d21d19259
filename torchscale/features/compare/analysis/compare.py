"""Two result sets against each other: which cells match, what changed, and whether that is beyond
noise.

Pure; definitions in ``docs/method.md``. The unit is the launch: steps of one launch are not
independent, and pooled they call most equal pairs different.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from torchscale.analysis.stats.ratios import (
    LogRatio,
    holm,
    log_ratio,
    mean_ratio,
    quotient,
    ratio_to_median,
)
from torchscale.analysis.stats.sessions import session_noise, with_session_noise
from torchscale.analysis.summary.conditions import session_numbers
from torchscale.config.choices import MatchKey, Metric
from torchscale.features.compare.analysis.bounds import Bounds, RatioOf, Values, possible_bounds
from torchscale.features.compare.analysis.disturbances import (
    disturbances,
    disturbed_launches,
    is_same_machine,
    unequal_conditions,
)
from torchscale.features.compare.analysis.matching import match_cells
from torchscale.features.compare.analysis.pair import (
    HEADLINES,
    CellComparison,
    CellOutcome,
    ChangeVerdict,
    EfficiencyScore,
    MetricChange,
    Overall,
    Pair,
    Score,
    interval_end,
)
from torchscale.schema.cells.kinds import as_kind
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.run.metric_key import MetricKey
from torchscale.schema.run.result_set import ResultCell, ResultSet
from torchscale.schema.state import State
from torchscale.util.optional import complete, optional

LEVEL = 0.05
"""Level of significance, after Holm's correction (docs/method.md). Measured false alarms:
docs/tested-on.md."""
THRESHOLD = 0.02
"""A change up to this share counts as none: launches of one configuration differ by 2 to 3 % on a
shared machine, and smaller changes rarely matter (docs/method.md; ``--threshold`` sets it)."""
_UNAFFECTED = (Metric.MEMORY,)
"""Other processes and low clocks change times, not the bytes that a cell needs."""


@dataclass(frozen=True)
class _Side:
    """A cell's launches: each metric's values, the number of the session of each launch."""

    cell: ResultCell
    values: dict[MetricKey, list[float]]
    sessions: list[int]

    def groups(self, values: Sequence[float]) -> list[list[float]]:
        """Values of launches by session."""
        by_session: dict[int, list[float]] = {}
        for session, value in zip(self.sessions, values, strict=True):
            by_session.setdefault(session, []).append(value)
        return list(by_session.values())

    def of(self, key: MetricKey) -> Values:
        """A metric's values, with what is known of their launches."""
        return Values(self.values[key], self.cell.launches, disturbed_launches(self.cell))


@dataclass(frozen=True)
class _Sides:
    """Both sides of a cell, and whether one machine measured them."""

    before: _Side
    after: _Side
    same_machine: bool


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
        prices: Prices of a device and hour on each side; without both there is no cost.
        ignore_precision: Match cells that differ in precision alone.
        match: Match training and memory cells by these alone, whatever else differs.
        accept_flags: Give a verdict also where the sides were measured under unequal conditions.
        median: Take the median over the reference's sessions instead of the mean over its launches.

    Raises:
        UsageError: ``match`` does not tell cells of a side apart.
    """
    same_machine = is_same_machine(reference, other)
    matches, notes = match_cells(reference, other, ignore_precision=ignore_precision, keys=match)
    cells = []
    for before, after in matches:
        outcome = _outcome(before, after)
        if before is None or after is None or outcome is not CellOutcome.COMPARED:
            cells.append(CellComparison(before, after, outcome))
            continue
        sides = _Sides(
            _side(before, reference, prices[0]), _side(after, other, prices[1]), same_machine
        )
        cells.append(_compare_cells(sides, accept_flags=accept_flags, median=median))
    judged = {
        metric: _judged(metric, changes, threshold) for metric, changes in _by_metric(cells).items()
    }
    verdicts = {id(change): new for changes, _ in judged.values() for change, new in changes}
    cells = [
        replace(cell, changes=tuple(verdicts[id(change)] for change in cell.changes))
        for cell in cells
    ]
    overall = tuple(of_metric for _, of_metric in judged.values())
    score, efficiency = _score(cells, overall), _efficiency(cells)
    return Pair(reference, other, tuple(cells), overall, score, notes, threshold, efficiency)


def _outcome(before: ResultCell | None, after: ResultCell | None) -> CellOutcome:
    if before is None or after is None:
        return CellOutcome.UNMATCHED
    if before.state.has_failed and after.state is State.OK:
        return CellOutcome.GAINED
    if not before.launches or not before.state.has_figures:
        return CellOutcome.UNMEASURED
    if after.state.has_failed:
        return CellOutcome.LOST
    if not after.launches or not after.state.has_figures:
        return CellOutcome.UNMEASURED
    return CellOutcome.COMPARED


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
        values[MetricKey(metric=Metric.COST)] = [
            rate * 3600 / (price * cell.cell.world_size) for rate in rates
        ]
    return _Side(cell, values, session_numbers(results.sessions, cell.launches))


def _compare_cells(sides: _Sides, *, accept_flags: bool, median: bool) -> CellComparison:
    before, after = sides.before.cell, sides.after.cell
    conditions: tuple[str, ...] = ()
    if not accept_flags:
        conditions = unequal_conditions(before, after, same_machine=sides.same_machine)
    keys = list(sides.before.values)
    changes = [
        _change(key, sides, () if key.metric in _UNAFFECTED else conditions, median=median)
        for key in keys
        if key in sides.after.values
    ]
    absent = tuple(key for key in keys if key not in sides.after.values)
    disturbed = disturbances(before, after, same_machine=sides.same_machine)
    return CellComparison(before, after, CellOutcome.COMPARED, tuple(changes), absent, disturbed)


def _change(
    key: MetricKey, sides: _Sides, conditions: tuple[str, ...], *, median: bool
) -> MetricChange:
    old, new = sides.before.values[key], sides.after.values[key]
    groups = [sides.before.groups(old), sides.after.groups(new)]
    noise = session_noise(groups)

    def ratio_of(after: Sequence[float], before: Sequence[float]) -> LogRatio:
        of_sides = [sides.before.groups(before), sides.after.groups(after)]
        plain = ratio_to_median(after, of_sides[0]) if median else log_ratio(after, before)
        if noise is None:
            return plain
        return with_session_noise(plain, of_sides, noise)

    ratio = ratio_of(new, old)
    return MetricChange(
        key,
        math.exp(math.log(_level(new)) - ratio.log) if median else _level(old),
        _level(new),
        ratio,
        (len(old), len(new)),
        (len(groups[0]), len(groups[1])),
        None if noise is None else noise.spread,
        conditions=conditions,
        bounds=_bounds(key, sides, ratio_of) if conditions else None,
    )


def _bounds(key: MetricKey, sides: _Sides, ratio_of: RatioOf) -> Bounds | None:
    """The first bounds that show a difference; else the surest."""
    possible = possible_bounds(
        key,
        sides.before.of(key),
        sides.after.of(key),
        ratio_of,
        same_processor=sides.before.cell.device == sides.after.cell.device,
        same_machine=sides.same_machine,
    )
    showing = [one for one in possible if _p(one.low, one.high) < LEVEL]
    return next(iter([*showing, *possible]), None)


def _p(low: LogRatio | None, high: LogRatio | None) -> float:
    """p-value of the end that is nearest to no change; 1 where "no change" lies between the ends,
    or nothing bounds it."""
    if high is not None and high.value < 1:
        return 1.0 if high.p is None else high.p
    if low is not None and low.value > 1:
        return 1.0 if low.p is None else low.p
    return 1.0


def _level(values: Sequence[float]) -> float:
    return log_ratio(values, [1.0]).value


_Changes = list[tuple[CellComparison, MetricChange]]


def _by_metric(cells: Sequence[CellComparison]) -> dict[Metric, _Changes]:
    by_metric: dict[Metric, _Changes] = {}
    for cell in cells:
        for change in cell.changes:
            by_metric.setdefault(change.metric, []).append((cell, change))
    return by_metric


def _judged(
    metric: Metric, changes: _Changes, threshold: float
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
        tests[id(mean)] = _p(mean.low, mean.high)
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
    p = _p(change.low, change.high)
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


def _score(cells: Sequence[CellComparison], overall: Sequence[Overall]) -> Score | None:
    speeds = [
        cell
        for cell in cells
        if cell.before and cell.before.launches and cell.cell.cell.kind != "memory"
    ]
    ratios = []
    for cell in speeds:
        changes = [change for change in cell.changes if change.metric in HEADLINES]
        if changes:
            ratios.append(
                (
                    mean_ratio([change.ratio for change in changes]),
                    any(one.conditions for one in changes),
                )
            )
    if not ratios:
        return None
    counted = [ratio for ratio, withheld in ratios if not withheld] or [
        ratio for ratio, _ in ratios
    ]
    measured = sum(cell.after is not None and cell.after.state is State.OK for cell in speeds)
    certain = all(
        one.verdict.decided and not one.conditions for one in overall if one.metric in HEADLINES
    )
    return Score(mean_ratio(counted).value, measured, len(speeds), certain)


def _efficiency(cells: Sequence[CellComparison]) -> EfficiencyScore | None:
    """E(n) = T(n)·n₀ ÷ (T(n₀)·n) on both sides, so that counts cancel: the ratio of throughputs at
    n ÷ that at n₀."""
    series: dict[tuple[str, str], dict[int, LogRatio]] = {}
    for cell in cells:
        ours, theirs = (
            side and as_kind(side.cell, TrainingCell) for side in (cell.before, cell.after)
        )
        speed = [
            change
            for change in cell.changes
            if change.metric is Metric.THROUGHPUT and not change.conditions
        ]
        if ours and theirs and speed and ours.world_size == theirs.world_size:
            series.setdefault((ours.series, theirs.series), {})[ours.world_size] = speed[0].ratio
    ratios = []
    for by_count in series.values():
        smallest, *larger = sorted(by_count)
        if larger:
            ratios.append(
                (
                    quotient(mean_ratio([by_count[count] for count in larger]), by_count[smallest]),
                    len(larger),
                )
            )
    if not ratios:
        return None
    return EfficiencyScore(
        mean_ratio([ratio for ratio, _ in ratios]), sum(count for _, count in ratios)
    )
