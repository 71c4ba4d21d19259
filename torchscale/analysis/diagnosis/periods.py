"""What comes back every so many steps: of a rank that the others then wait for, or of all ranks.

Checkpoints, evaluations and garbage collections have rules of their own, and are left out where
they were seen."""

from __future__ import annotations

import numpy as np

from torchscale.analysis.diagnosis.shared import COST_FLOOR
from torchscale.analysis.diagnosis.signals import Matrix, SlowPeriod
from torchscale.analysis.exchanges.steps import JobSteps, WaitsBy
from torchscale.analysis.stats.peers import medians_of_others
from torchscale.analysis.stats.periods import Period, latest_period

_LATE_TIMES = 3
"""Periods at the beginning without it, from which on it has a beginning."""
_MAX_SERIES = 16
"""Ranks that are looked at: those that most is waited for."""


def slow_periods(table: JobSteps, *, host_runs_ahead: bool = False) -> tuple[SlowPeriod, ...]:
    """The period of the rank that costs most by one; where no rank has one, that of all ranks.

    Args:
        table: Single steps, not means of several.
        host_runs_ahead: Whether own times are those of a host whose device lags behind. It is slow
            in single steps that cost nothing, so that ranks alone are judged, by their waits.
    """
    busy = _unnamed(table)
    found = None
    if len(busy) > 1 and table.waits_by is not WaitsBy.NOTHING:
        found = _of_a_rank(table, busy)
    if found is None and not host_runs_ahead:
        found = _of_all(table, busy)
    return () if found is None else (found,)


def _unnamed(table: JobSteps) -> Matrix:
    """What ranks do by themselves, without what has a name: seconds by rank and step."""
    if table.waits_by is WaitsBy.LENGTHS:
        return table.calm
    named = table.saving + table.evaluating + table.collection
    return np.asarray(np.maximum(0.0, table.host_calm - named))


def _of_a_rank(table: JobSteps, busy: Matrix) -> SlowPeriod | None:
    excess, others = busy - medians_of_others(busy), len(busy) - 1
    floor = COST_FLOOR * float(table.wall.mean())
    blame = table.blame.mean(axis=1) / others
    best: SlowPeriod | None = None
    for row in np.argsort(-blame)[:_MAX_SERIES].tolist():
        period = latest_period(excess[row]) if blame[row] >= floor else None
        if period is None:
            continue
        waited = float(np.where(period.high, table.blame[row], 0.0).mean()) / others
        cost = min(period.mean, waited)
        if cost >= floor and (best is None or cost > best.cost):
            best = _placed(row, period, cost, table.first)
    return best


def _of_all(table: JobSteps, busy: Matrix) -> SlowPeriod | None:
    period = latest_period(busy.min(axis=0))
    if period is None or period.mean < COST_FLOOR * float(table.wall.mean()):
        return None
    return _placed(None, period, period.mean, table.first)


def _placed(row: int | None, period: Period, cost: float, first: int) -> SlowPeriod:
    begun = int(np.flatnonzero(period.high)[0])
    return SlowPeriod(
        row=row,
        steps=period.steps,
        excess=period.excess,
        cost=cost,
        times=period.count,
        length=round(int(period.high.sum()) / max(1, period.count)),
        is_exact=period.is_exact,
        first=first + begun if begun >= _LATE_TIMES * period.steps else None,
        slow=np.concatenate([np.zeros(first, np.bool_), period.high]),
    )
