"""Rare long steps that lie in one function of the program: pauses, or with a period what a rank, or
all, do every so many steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from torchscale.analysis.diagnosis.rules_pauses import CERTAIN_PAUSES, MIN_PAUSES, PAUSE_FLOOR
from torchscale.analysis.diagnosis.shared import EXPLAINED_SHARE
from torchscale.analysis.stats.periods import event_period
from torchscale.features.watch.analysis.everyday.cause import EverydayCause, LineSeconds, finding_of
from torchscale.features.watch.analysis.everyday.interruptions import begins
from torchscale.features.watch.analysis.everyday.lines import SlowWork, slow_lines
from torchscale.features.watch.analysis.everyday.watched import Series, WatchedSteps
from torchscale.features.watch.analysis.step_log import LongStep
from torchscale.schema.profiles.finding import Confidence, FindingKind
from torchscale.util.text import ranks_label
from torchscale.util.units import format_seconds
from torchscale.util.words import plural

_LARGE = 0.5
"""Share of the longest pause from which on one counts: what a host does beside it is shorter."""


@dataclass(frozen=True)
class _Pauses:
    """Of one rank, in one function."""

    row: int
    steps: tuple[int, ...]
    excess: Series
    lines: LineSeconds
    work: SlowWork

    @property
    def each(self) -> float:
        return float(np.median(self.excess))

    @property
    def function(self) -> tuple[str, str]:
        return self.work.line.file, self.work.line.function


def find_pauses(watched: WatchedSteps, known: Series) -> list[EverydayCause]:
    """Long steps that a function of the program explains, by function.

    Args:
        watched: The job.
        known: Seconds by column that other causes explain.
    """
    by_function: dict[tuple[str, str], list[_Pauses]] = {}
    for row in range(len(watched.ranks)):
        pauses = _pauses(watched, row, known)
        if pauses is not None:
            by_function.setdefault(pauses.function, []).append(pauses)
    found = [_cause(watched, group) for group in by_function.values()]
    return [cause for cause in found if cause is not None]


def _pauses(watched: WatchedSteps, row: int, known: Series) -> _Pauses | None:
    pauses = _unexplained(watched, row, known)
    if len(pauses) < MIN_PAUSES:
        return None
    steps = tuple(item.step for item in pauses)
    excess = np.array([item.excess for item in pauses])
    lines, work = slow_lines(watched, row, steps, float(excess.mean()))
    if work is None or (work.is_wait and len(watched.ranks) > 1):
        return None
    return _Pauses(row, steps, excess, lines, work)


def _unexplained(watched: WatchedSteps, row: int, known: Series) -> list[LongStep]:
    """The rank's large pauses whose step neither another cause explains nor what any rank is known
    to do there."""
    table, per_column = watched.table, watched.log.per_column
    data = table.data - np.median(table.data, axis=1, keepdims=True)
    timed = data + table.collection + table.saving + table.evaluating
    explained = np.maximum(known, timed.max(axis=0)) * per_column
    mine = [item for item in watched.log.long_steps if item.row == row]
    column = watched.columns(np.array([item.step for item in mine], np.int64))
    left = [
        item
        for item, place in zip(mine, column.tolist(), strict=True)
        if place >= 0 and explained[place] < EXPLAINED_SHARE * item.excess
    ]
    longest = max((item.excess for item in left), default=0.0)
    return [item for item in left if item.excess >= _LARGE * longest]


def _cause(watched: WatchedSteps, group: Sequence[_Pauses]) -> EverydayCause | None:
    """Pauses of one or several ranks in the same function."""
    by_column = np.max(
        [watched.spread(np.array(one.steps, np.int64), one.excess) for one in group], axis=0
    )
    cost, is_certain = watched.lost(by_column)
    if cost < PAUSE_FLOOR * watched.step_seconds:
        return None
    most = max(group, key=lambda one: float(one.excess.sum()))
    rows = [one.row for one in group]
    period = event_period(begins(most.steps))
    count = len(most.steps)
    is_certain &= count >= CERTAIN_PAUSES
    finding = finding_of(
        _kind(watched, rows, period),
        watched,
        cost,
        rank=watched.rank_of(rows),
        period=period,
        confidence=Confidence.HIGH if is_certain else Confidence.MEDIUM,
        summary=_summary(watched, rows, most, period),
        evidence=[
            f"{plural(count, 'time')}, {format_seconds(cost)} of each step on average",
            f"{format_seconds(most.work.seconds)} of {format_seconds(float(most.excess.mean()))} "
            f"are in {most.work.line.function}, by samples of the program",
        ],
        advice=f"look at {most.work.place}: do it less often, or in the background",
    )
    return EverydayCause(finding, np.asarray(by_column), most.lines)


def _kind(watched: WatchedSteps, rows: Sequence[int], period: int | None) -> FindingKind:
    """As the rules call what comes back every so many steps."""
    if period is None:
        return FindingKind.PAUSES
    if watched.rank_of(rows) is not None:
        return FindingKind.STRAGGLER
    return FindingKind.PERIODIC_WORK


def _summary(watched: WatchedSteps, rows: Sequence[int], most: _Pauses, period: int | None) -> str:
    when = f"in {plural(len(most.steps), 'step')}" if period is None else f"every {period} steps"
    who, waits = ranks_label([watched.ranks[row] for row in rows]), ", and the others wait"
    if len(rows) == len(watched.ranks):
        who, waits = ("every rank" if len(rows) > 1 else who), ""
    take = "takes" if len(rows) == 1 or who == "every rank" else "take"
    does = f", which {most.work.does}" if most.work.does else ""
    return (
        f"{who} {take} {format_seconds(most.each)} longer {when}, at {most.work.place}{does}{waits}"
    )
