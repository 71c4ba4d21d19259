"""Two result sets against each other: which cells match, what changed, and whether that is beyond
noise.

Pure; definitions in ``docs/method.md``. The unit is the launch: steps of one launch are not
independent, and pooled they call most equal pairs different.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from torchscale.analysis.stats.ratios import LogRatio, log_ratio, ratio_to_median
from torchscale.analysis.stats.sessions import session_noise, with_session_noise
from torchscale.analysis.summary.conditions import session_numbers
from torchscale.config.choices import MatchKey, Metric
from torchscale.features.compare.analysis.bounds import Bounds, RatioOf, Values, possible_bounds
from torchscale.features.compare.analysis.calibrated import judged_by_calibration
from torchscale.features.compare.analysis.change import ChangeVerdict, MetricChange
from torchscale.features.compare.analysis.disturbances import (
    disturbances,
    disturbed_launches,
    is_same_machine,
    unequal_conditions,
)
from torchscale.features.compare.analysis.judge import (
    LEVEL,
    changes_by_metric,
    judge_metric,
    nearest_p,
)
from torchscale.features.compare.analysis.matching import match_cells
from torchscale.features.compare.analysis.pair import CellComparison, CellOutcome, Pair
from torchscale.features.compare.analysis.scores import efficiency_score, speed_score
from torchscale.schema.cells.kinds import as_kind
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.run.metric_key import MetricKey
from torchscale.schema.run.result_set import ResultCell, ResultSet
from torchscale.schema.state import State

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
    threshold: float | None = None,
    prices: tuple[float | None, float | None] = (None, None),
    ignore_precision: bool = False,
    match: Sequence[MatchKey] = (),
    accept_flags: bool = False,
    median: bool = False,
) -> Pair:
    """``other`` against ``reference``.

    Args:
        reference, other: The sides.
        threshold: A change up to this share is none; ``None`` for the calibrated thresholds of
            ``reference`` where it has them, else ``THRESHOLD``.
        prices: Prices of a device and hour on each side; without both there is no cost.
        ignore_precision: Match cells that differ in precision alone.
        match: Match training and memory cells by these alone, whatever else differs.
        accept_flags: Judge the ratios as measured, although launches were contended or throttled.
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
    share = THRESHOLD if threshold is None else threshold
    judged = {
        metric: judge_metric(metric, changes, share)
        for metric, changes in changes_by_metric(cells).items()
    }
    verdicts = {id(change): new for changes, _ in judged.values() for change, new in changes}
    cells = [
        replace(cell, changes=tuple(verdicts[id(change)] for change in cell.changes))
        for cell in cells
    ]
    overall = tuple(of_metric for _, of_metric in judged.values())
    score, efficiency = speed_score(cells, overall), efficiency_score(cells)
    pair = Pair(reference, other, tuple(cells), overall, score, notes, share, efficiency)
    if pair.is_same_run:
        return _equal(pair)
    if threshold is not None or reference.calibration is None:
        return pair
    return judged_by_calibration(pair, reference.calibration)


def _equal(pair: Pair) -> Pair:
    """The pair of a run with itself, whose changes are none whatever their intervals."""
    same = ChangeVerdict.SAME
    cells = tuple(
        replace(cell, changes=tuple(replace(change, verdict=same) for change in cell.changes))
        for cell in pair.cells
    )
    overall = tuple(replace(one, verdict=same, reason=None) for one in pair.overall)
    return replace(pair, cells=cells, overall=overall)


def _outcome(before: ResultCell | None, after: ResultCell | None) -> CellOutcome:
    if before is None or after is None:
        return CellOutcome.UNMATCHED
    if before.state.has_failed and after.state is State.OK:
        return CellOutcome.GAINED
    if not _has_figures(before):
        return CellOutcome.UNMEASURED
    if after.state.has_failed and not before.state.has_failed:
        return CellOutcome.LOST
    if not _has_figures(after):
        return CellOutcome.UNMEASURED
    return CellOutcome.COMPARED


def _has_figures(cell: ResultCell) -> bool:
    """Whether it was measured. Of a watched job that failed, what it did until then counts."""
    training = as_kind(cell.cell, TrainingCell)
    is_watched = training is not None and training.is_watched
    return bool(cell.launches) and (cell.state.has_figures or is_watched)


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
    showing = [one for one in possible if nearest_p(one.low, one.high) < LEVEL]
    return next(iter([*showing, *possible]), None)


def _level(values: Sequence[float]) -> float:
    return log_ratio(values, [1.0]).value
