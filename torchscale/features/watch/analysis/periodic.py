"""What comes back every so many steps: of a rank that the others then wait for, or of all ranks.

Checkpoints, evaluations and garbage collections have rules of their own, and are left out here."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from torchscale.analysis.diagnosis.shared import COST_FLOOR, high_if, medians_of_others
from torchscale.analysis.exchanges.steps import JobSteps, Matrix, WaitsBy
from torchscale.analysis.stats.periods import Period, find_period
from torchscale.schema.profiles.finding import Confidence, Finding, FindingKind
from torchscale.util.units import format_percent, format_seconds

CERTAIN_TIMES = 5
"""From which on a period is certain: of four times, three distances are equal by chance in some of a
thousand jobs."""
_LATE_TIMES = 3
"""Periods at the beginning without it, from which on it has a beginning."""
_MAX_SERIES = 16
"""Ranks that are looked at: those that most is waited for."""


@dataclass(frozen=True)
class PeriodicFinding:
    """A finding, and the steps that it is about.

    Attributes:
        finding: What comes back, and what it costs.
        slow: Which steps are slow: by step, from step 0 on.
        first: Step since which it comes; ``None`` from the first step on.
    """

    finding: Finding
    slow: NDArray[np.bool_]
    first: int | None = None


def periodic_findings(
    table: JobSteps, ranks: tuple[int, ...], *, on_device: bool
) -> list[PeriodicFinding]:
    """The rank that costs most by a period, and the period of all ranks.

    Args:
        table: Single steps, not means of several.
        ranks: Global rank of each row.
        on_device: Whether the work runs on a device beside the host. A host that runs ahead of it is
            slow in single steps that cost nothing, so that only ranks are judged, by their waits.
    """
    busy = _unnamed(table)
    found = []
    if len(ranks) > 1 and table.waits_by is not WaitsBy.NOTHING:
        found += _of_a_rank(table, busy, ranks)
    if not on_device and not found:
        found += _of_all(table, busy)
    return found


def _unnamed(table: JobSteps) -> Matrix:
    """What ranks do by themselves, without what has a name: seconds by rank and step."""
    if table.waits_by is WaitsBy.LENGTHS:
        return table.calm
    named = table.saving + table.evaluating + table.collection
    return np.asarray(np.maximum(0.0, table.host_calm - named))


def _of_a_rank(table: JobSteps, busy: Matrix, ranks: tuple[int, ...]) -> list[PeriodicFinding]:
    excess = busy - medians_of_others(busy)
    step_seconds = float(table.wall.mean())
    blame = table.blame.mean(axis=1) / (len(ranks) - 1)
    best: tuple[float, int, Period] | None = None
    for row in np.argsort(-blame)[:_MAX_SERIES].tolist():
        if blame[row] < COST_FLOOR * step_seconds:
            continue
        period = latest_period(excess[row])
        if period is None:
            continue
        waited = np.where(period.high, table.blame[row], 0.0) / (len(ranks) - 1)
        cost = min(period.mean, float(waited.mean()))
        if cost >= COST_FLOOR * step_seconds and (best is None or cost > best[0]):
            best = cost, row, period
    if best is None:
        return []
    cost, row, period = best
    rank, share = ranks[row], table.blame[row].sum() / max(float(table.blame.sum()), 1e-12)
    every, longer = _every(period), format_seconds(period.excess)
    finding = Finding(
        kind=FindingKind.STRAGGLER,
        rank=rank,
        cost_percent=cost / step_seconds * 100,
        cost_seconds=cost,
        period_steps=period.steps,
        confidence=high_if(period.count >= CERTAIN_TIMES, Confidence.MEDIUM),
        summary=f"{every} rank {rank} takes {longer} longer by itself than the others, which wait "
        f"for it: {format_seconds(cost)} a step on average",
        evidence=(
            _times(period, len(table)),
            f"rank {rank} has {format_percent(float(share), 0)} of all waits",
        ),
        advice=f"look at what rank {rank} alone does {every}: logging, a further loss or optimizer, "
        "a check; have all ranks do it, do it less often, or in another thread",
    )
    return [_placed(finding, period, table)]


def _of_all(table: JobSteps, busy: Matrix) -> list[PeriodicFinding]:
    period = latest_period(busy.min(axis=0))
    step_seconds = float(table.wall.mean())
    if period is None or period.mean < COST_FLOOR * step_seconds:
        return []
    who = "every rank" if len(busy) > 1 else "the program"
    every = _every(period)
    finding = Finding(
        kind=FindingKind.PERIODIC_WORK,
        cost_percent=period.mean / step_seconds * 100,
        cost_seconds=period.mean,
        period_steps=period.steps,
        confidence=high_if(period.count >= CERTAIN_TIMES, Confidence.MEDIUM),
        summary=f"{every} {who} takes {format_seconds(period.excess)} longer: "
        f"{format_seconds(period.mean)} a step on average",
        evidence=(_times(period, len(table)),),
        advice=f"look at what the program does {every}: logging, metrics, a further loss or "
        "optimizer; do it less often, or in another thread",
    )
    return [_placed(finding, period, table)]


def _every(period: Period) -> str:
    """``every 5 steps``, ``in 2 of every 10 steps``."""
    length = int(period.high.sum()) / max(1, period.count)
    if round(length) > 1 and period.is_exact:
        return f"in {round(length)} of every {period.steps} steps"
    about = "" if period.is_exact else "about "
    return f"every {about}{period.steps} steps"


def _times(period: Period, steps: int) -> str:
    return f"{period.count} times in {steps:,} steps, {format_seconds(period.excess)} each"


def latest_period(values: NDArray[np.float64]) -> Period | None:
    """The period of a series, or of its later part where it began within the series."""
    for begin in (0, len(values) // 2, len(values) * 3 // 4):
        period = find_period(values[begin:])
        if period is not None and period.is_exact:
            return _from_its_first_time(values, period, begin)
        if period is not None and not begin:
            return period
    return None


def _from_its_first_time(values: NDArray[np.float64], period: Period, begin: int) -> Period:
    """The times of an exact period, found from ``begin`` on, over the whole series: back to where
    two in a row are missing."""
    low = float(np.median(values[begin:][~period.high]))
    is_place = np.resize(np.roll(period.high[: period.steps], begin % period.steps), len(values))
    places = np.flatnonzero(is_place)
    hit = values[places] > low + period.excess / 2
    missing = ~hit & ~np.append(hit[1:], True)
    first = int(np.flatnonzero(missing)[-1]) + 2 if missing.any() else int(hit.argmax())
    high = np.zeros(len(values), np.bool_)
    high[places[first:]] = True
    return replace(period, high=high)


def _placed(finding: Finding, period: Period, table: JobSteps) -> PeriodicFinding:
    begun = int(np.flatnonzero(period.high)[0])
    first = begun + table.first if begun >= _LATE_TIMES * period.steps else None
    slow = np.concatenate([np.zeros(table.first, np.bool_), period.high])
    return PeriodicFinding(finding, slow, first)
