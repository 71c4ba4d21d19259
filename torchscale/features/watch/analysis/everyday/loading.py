"""Waits for data that come now and then: with the period of the loader's workers, of its shards, or
rarely."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from torchscale.analysis.diagnosis.rules_pauses import MIN_PAUSES, PAUSE_FLOOR
from torchscale.analysis.diagnosis.shared import COST_FLOOR, EXPLAINED_SHARE
from torchscale.analysis.diagnosis.step_windows import RARE_SHARE
from torchscale.analysis.stats.levels import scatter
from torchscale.analysis.stats.periods import find_period
from torchscale.features.watch.analysis.everyday.cause import EverydayCause, finding_of
from torchscale.features.watch.analysis.everyday.lines import SlowWork, slow_lines
from torchscale.features.watch.analysis.everyday.watched import Marks, Series, WatchedSteps, large
from torchscale.schema.profiles.finding import Confidence, Finding, FindingKind
from torchscale.util.text import ranks_label
from torchscale.util.units import format_seconds
from torchscale.util.words import plural

_DEVIATIONS = 6.0
"""Beyond which no noise of that width reaches a wait."""
_NEW_ITERATOR = "__iter__"
"""What a loop calls of a loader before its first batch: its workers are started there."""


@dataclass(frozen=True)
class _Stalls:
    """Long waits for data of one rank.

    Attributes:
        row: Of the rank.
        high: Columns in which they are.
        excess: Seconds that one is longer than the rank's typical wait.
        usual: The typical wait.
        period: In steps; ``None`` where they are rare.
    """

    row: int
    high: Marks
    excess: float
    usual: float
    period: int | None


def find_stalls(watched: WatchedSteps) -> list[EverydayCause]:
    """Stalls of the loader on the ranks that lose most by them. A wait for data is one, however
    rare: the time lies in no other column."""
    stalls = [
        found
        for row in range(len(watched.ranks))
        if (found := _periodic(watched, row) or _rare(watched, row)) is not None
    ]
    if not stalls:
        return []
    waits = np.stack([_waited(watched, one) for one in stalls])
    means = waits.mean(axis=1)
    most = int(means.argmax())
    alike = [
        place
        for place, one in enumerate(stalls)
        if one.period == stalls[most].period and means[place] >= EXPLAINED_SHARE * means[most]
    ]
    by_column = waits[alike].max(axis=0)
    cost, is_certain = watched.lost(by_column)
    floor = PAUSE_FLOOR if stalls[most].period is None else COST_FLOOR
    if cost < floor * watched.step_seconds:
        return []
    steps = watched.exact_steps(stalls[most].row, stalls[most].high)
    lines, work = slow_lines(watched, stalls[most].row, steps, stalls[most].excess)
    rows = [stalls[place].row for place in alike]
    finding = _finding(watched, stalls[most], rows, cost, work)
    if not is_certain:
        finding = finding.model_copy(update={"confidence": Confidence.LOW})
    return [EverydayCause(finding, by_column, lines)]


def _periodic(watched: WatchedSteps, row: int) -> _Stalls | None:
    """Stalls with a period, where columns are single steps."""
    data = watched.table.data[row]
    period = find_period(data) if watched.log.per_column == 1 else None
    if period is None or period.mean < COST_FLOOR * watched.step_seconds:
        return None
    usual = float(np.median(data[~period.high]))
    return _Stalls(row, period.high, period.excess, usual, period.steps)


def _rare(watched: WatchedSteps, row: int) -> _Stalls | None:
    """Long waits in few steps, most of what the rank waits beyond its typical wait."""
    data = watched.table.data[row]
    usual = float(np.median(data))
    beyond = data - usual
    high = (beyond > _DEVIATIONS * scatter(beyond)) & large(np.maximum(beyond, 0.0))
    lost = float(beyond[high].sum()) / len(data)
    is_rare = 0 < high.mean() <= RARE_SHARE
    if not is_rare or lost < PAUSE_FLOOR * watched.step_seconds:
        return None
    return _Stalls(row, high, float(beyond[high].mean()) * watched.log.per_column, usual, None)


def _waited(watched: WatchedSteps, stalls: _Stalls) -> Series:
    """Seconds by column that the rank waits longer than typically."""
    beyond = np.maximum(watched.table.data[stalls.row] - stalls.usual, 0.0)
    return np.asarray(np.where(stalls.high, beyond, 0.0))


def _finding(
    watched: WatchedSteps, stalls: _Stalls, rows: list[int], cost: float, work: SlowWork | None
) -> Finding:
    count = int(stalls.high.sum())
    each = format_seconds(stalls.excess)
    who = (
        "every rank" if len(rows) == len(watched.ranks) > 1 else ranks_label(_ranks(watched, rows))
    )
    waits = "waits" if len(rows) == 1 or who == "every rank" else "wait"
    evidence = []
    if stalls.period is not None:
        summary = f"{who} {waits} {each} longer for data every {stalls.period} steps"
        evidence.append(f"{plural(count, 'time')}; {format_seconds(stalls.usual)} in other steps")
    else:
        steps = watched.exact_steps(stalls.row, stalls.high)
        times = plural(len(steps), "step") if steps else "few steps"
        long = each if len(steps) == 1 else f"{each} each"
        summary = f"{who} {waits} for data in {times} of {watched.steps:,}, {long}"
        shown = ", ".join(f"{step:,}" for step in steps[:5])
        evidence.append(f"in step {shown}{', …' * (len(steps) > 5)}" if steps else "")
        evidence.append(f"{format_seconds(stalls.usual)} in other steps")
    if len(rows) < len(watched.ranks):
        summary += ", and all wait for it" if len(rows) == 1 else ", and all wait for them"
    if work is not None:
        evidence.append(f"at {work.place}")
    is_certain = stalls.period is not None or count >= MIN_PAUSES or len(watched.ranks) > len(rows)
    return finding_of(
        FindingKind.INPUT_PIPELINE,
        watched,
        cost,
        rank=watched.rank_of(rows),
        period=stalls.period,
        confidence=Confidence.HIGH if is_certain else Confidence.MEDIUM,
        summary=summary,
        evidence=[line for line in evidence if line],
        advice=_advice(stalls, work),
    )


def _ranks(watched: WatchedSteps, rows: list[int]) -> list[int]:
    return [watched.ranks[row] for row in rows]


def _advice(stalls: _Stalls, work: SlowWork | None) -> str:
    if work is not None and work.line.called == _NEW_ITERATOR:
        return (
            "the loader starts anew there: keep its workers (persistent_workers=True), and make it "
            "once, outside the loop"
        )
    if stalls.period is not None:
        return (
            "compare the period with num_workers, num_workers × prefetch_factor, and the batches "
            "of a shard or an epoch: more workers, a larger prefetch_factor, shards that are "
            "opened ahead, persistent_workers=True"
        )
    return (
        "look for samples that take long (large files, retries, a slow disk or server): log what "
        "the data set loads there; a larger prefetch_factor hides short ones"
    )
