"""One cause, one finding: what another finding explains becomes a line of its evidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from torchscale.analysis.diagnosis.shared import COST_FLOOR, EXPLAINED_SHARE
from torchscale.features.watch.analysis.everyday.cause import EverydayCause
from torchscale.features.watch.analysis.everyday.turns import are_late_in_turn
from torchscale.features.watch.analysis.everyday.watched import Series, WatchedSteps
from torchscale.schema.profiles.finding import Finding, FindingKind
from torchscale.util.units import format_percent, format_seconds

K = FindingKind
_OF_ALL = (
    K.PAUSES,
    K.PERIODIC_WORK,
    K.LOAD_IMBALANCE,
    K.SYNC_VARIANCE,
    K.EXPOSED_COMMUNICATION,
    K.STRAGGLER,
    K.INTERMITTENT_STRAGGLER,
)
"""What any interruption of a rank looks like: slow steps, waits of the others, and transfers that
other ranks are late for."""
_EXPLAINS: dict[FindingKind, tuple[FindingKind, ...]] = {
    K.RECOMPILATION: _OF_ALL,
    K.CHECKPOINTS: (*_OF_ALL, K.GARBAGE_COLLECTION),
    K.EVALUATIONS: (*_OF_ALL, K.CHECKPOINTS, K.GARBAGE_COLLECTION, K.INPUT_PIPELINE),
    K.GARBAGE_COLLECTION: _OF_ALL,
    K.INPUT_PIPELINE: (*_OF_ALL, K.INPUT_PIPELINE),
    K.PAUSES: _OF_ALL,
    K.PERIODIC_WORK: _OF_ALL,
    K.STRAGGLER: _OF_ALL,
}
"""Kind → kinds that it explains where it lies in the same steps. An evaluation loads data, may save
the best model, and makes garbage."""
_NAMED_BY_RULES = (K.STRAGGLER, K.PERIODIC_WORK)
"""What the rules find that says why something else is."""
_LEFT = 2 * COST_FLOOR
"""Share of the step above which what is left of a finding is one by itself: half of it or less,
twice over what is called a bottleneck at all."""


@dataclass(frozen=True)
class _Told:
    """A finding and where it lies.

    Attributes:
        finding: What was found.
        by_column: Seconds a step, by column.
        is_named: Whether its cause is known, and not only its looks.
    """

    finding: Finding
    by_column: Series
    is_named: bool


def fold(
    causes: Sequence[EverydayCause], findings: Sequence[Finding], watched: WatchedSteps
) -> tuple[list[EverydayCause], list[Finding]]:
    """The causes and findings that no other one explains; what was explained is a line of evidence
    of its cause. Ranks that take no turns by their own time are not told to.

    Args:
        causes: Everyday causes.
        findings: Of the rules, on the whole job.
        watched: The job.
    """
    explained = np.zeros(len(watched.table))
    for cause in causes:
        explained = np.maximum(explained, cause.by_column)
    kept = [one for one in findings if _holds(one, watched, explained)]
    told = [_Told(one.finding, one.by_column, True) for one in causes]
    told += [_Told(one, _profile(one, watched), False) for one in kept]
    lines: dict[int, list[str]] = {}
    gone: set[int] = set()
    for place, one in enumerate(told):
        other = _explaining(place, told, watched, gone)
        if other is not None:
            gone.add(place)
            if one.finding.kind is not told[other].finding.kind:
                lines.setdefault(other, []).append(_line(one, told[other]))
    left_causes = [
        replace(cause, finding=_with(cause.finding, lines.get(place, [])))
        for place, cause in enumerate(causes)
        if place not in gone
    ]
    left = [
        _with(finding, lines.get(place, []))
        for place, finding in enumerate(kept, len(causes))
        if place not in gone
    ]
    return left_causes, left


def _profile(finding: Finding, watched: WatchedSteps) -> Series:
    """Seconds a step by column in which a finding of the rules lies."""
    table = watched.table
    row = None if finding.rank is None else watched.ranks.index(finding.rank)
    if finding.kind is K.INPUT_PIPELINE:
        data = table.data if row is None else table.data[row : row + 1]
        return np.asarray(data.max(axis=0))
    if finding.kind is K.PAUSES:
        return _long_steps(watched, row)
    if finding.kind is K.EXPOSED_COMMUNICATION:
        return np.asarray(table.transfer.mean(axis=0))
    if finding.kind is K.SYNC_VARIANCE:
        exposed = (table.wait + table.transfer).mean(axis=0)
        return _above(exposed, float(np.median(exposed)))
    if finding.kind is K.PERIODIC_WORK:
        return _above(watched.wall, float(np.median(watched.wall)))
    if row is not None and len(watched.ranks) > 1:
        waits = np.asarray(table.blame[row] / (len(watched.ranks) - 1))
        return waits if finding.period_steps is None else _above(waits, float(np.median(waits)))
    return np.asarray(table.wait.mean(axis=0))


def _above(values: Series, level: float) -> Series:
    return np.asarray(np.maximum(values - level, 0.0))


def _long_steps(watched: WatchedSteps, row: int | None) -> Series:
    """Of a rank, or of the one with most in each column."""
    rows = range(len(watched.ranks)) if row is None else [row]
    return np.asarray(np.max([_long_steps_of(watched, one) for one in rows], axis=0))


def _long_steps_of(watched: WatchedSteps, row: int) -> Series:
    mine = [item for item in watched.log.long_steps if item.row == row]
    steps = np.array([item.step for item in mine], np.int64)
    return watched.spread(steps, np.array([item.excess for item in mine]))


def _holds(finding: Finding, watched: WatchedSteps, explained: Series) -> bool:
    """Whether ranks that are said to take turns do; where their own time is not known, they may."""
    if finding.kind is not K.LOAD_IMBALANCE:
        return True
    return are_late_in_turn(watched, explained)


def _explaining(
    place: int, told: Sequence[_Told], watched: WatchedSteps, gone: set[int]
) -> int | None:
    """Place of the finding that explains one; the costliest."""
    one = told[place]
    candidates = [
        index
        for index, other in enumerate(told)
        if index != place and index not in gone and _explains(other, one, watched)
    ]
    return max(candidates, key=lambda index: _overlap(told[index], one), default=None)


def _explains(cause: _Told, one: _Told, watched: WatchedSteps) -> bool:
    if one.finding.kind not in _EXPLAINS.get(cause.finding.kind, ()):
        return False
    is_same_kind = cause.finding.kind is one.finding.kind
    if one.is_named and (not cause.is_named or is_same_kind):
        return False
    if not cause.is_named and (is_same_kind or cause.finding.kind not in _NAMED_BY_RULES):
        return False
    ranks = {cause.finding.rank, one.finding.rank} - {None}
    if len(ranks) > 1:
        return False
    if _same_period(cause.finding, one.finding):
        return True
    whole = float(one.by_column.mean())
    inside = _overlap(cause, one)
    if is_same_kind and cause.finding.rank == one.finding.rank:
        return inside > EXPLAINED_SHARE * whole > 0
    left = (1 - inside / whole) * one.finding.cost_seconds if whole > 0 else 0.0
    return inside > EXPLAINED_SHARE * whole > 0 and left < _LEFT * watched.step_seconds


def _same_period(cause: Finding, one: Finding) -> bool:
    """Whether both come back in as many steps, at the same rank."""
    if cause.period_steps is None or one.period_steps is None or cause.rank != one.rank:
        return False
    return abs(cause.period_steps - one.period_steps) <= 1


def _overlap(cause: _Told, one: _Told) -> float:
    """Seconds a step of the one that lie in steps of the cause, as far as that costs them."""
    return float(np.minimum(cause.by_column, one.by_column).mean())


def _line(one: _Told, cause: _Told) -> str:
    """``explains pauses of 3.20 ms a step (92 % of it)``."""
    what = f"{one.finding.kind.label.lower()} of {format_seconds(one.finding.cost_seconds)} a step"
    if _same_period(cause.finding, one.finding):
        verb = "comes with" if one.is_named else "explains"
        return f"{verb} {what}, every {one.finding.period_steps} steps as well"
    share = _overlap(cause, one) / float(one.by_column.mean())
    return f"explains {what} ({format_percent(share, 0)} of it)"


def _with(finding: Finding, lines: Sequence[str]) -> Finding:
    if not lines:
        return finding
    return finding.model_copy(update={"evidence": (*finding.evidence, *lines)})
