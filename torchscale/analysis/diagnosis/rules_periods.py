"""Rules about what comes back every so many steps."""

from __future__ import annotations

from torchscale.analysis.diagnosis.rule import PERIODS, Judgement, rule, several_ranks
from torchscale.analysis.diagnosis.shared import (
    COST_FLOOR,
    explained_by_processes,
    high_if,
    percent,
)
from torchscale.analysis.diagnosis.signals import Signals, SlowPeriod
from torchscale.schema.profiles.finding import Confidence, Finding, FindingKind
from torchscale.util.units import format_percent, format_seconds

CERTAIN_TIMES = 5
"""From which on a period is certain: of four times, three distances are equal by chance in some of
a thousand jobs."""


@rule(FindingKind.STRAGGLER, PERIODS, where=(several_ranks,))
def periodic_straggler(signals: Signals, periods: tuple[SlowPeriod, ...]) -> Judgement:
    """A rank that the others wait for in every so manieth step."""
    period = next((item for item in periods if item.row is not None), None)
    if period is None or period.row is None or _is_small(period, signals):
        return None
    if not signals.trusted:
        return None
    if (reason := explained_by_processes(signals, period.row, period.cost)) is not None:
        return reason
    rank, every = signals.ranks[period.row], every_steps(period)
    evidence = [_times(period, signals)]
    if signals.blame is not None:
        share = format_percent(float(signals.blame[period.row]), 0)
        evidence.append(f"rank {rank} has {share} of all waits")
    return Finding(
        kind=FindingKind.STRAGGLER,
        rank=rank,
        cost_percent=percent(period.cost, signals),
        cost_seconds=period.cost,
        period_steps=period.steps,
        confidence=high_if(period.times >= CERTAIN_TIMES, Confidence.MEDIUM),
        summary=f"{every} rank {rank} takes {format_seconds(period.excess)} longer by itself than "
        f"the others, which wait for it: {format_seconds(period.cost)} a step on average",
        evidence=tuple(evidence),
        advice=f"look at what rank {rank} alone does {every}: logging, a further loss or "
        "optimizer, a check; have all ranks do it, do it less often, or in another thread",
    )


@rule(FindingKind.PERIODIC_WORK, PERIODS)
def periodic_work(signals: Signals, periods: tuple[SlowPeriod, ...]) -> Judgement:
    """What all ranks do in every so manieth step."""
    period = next((item for item in periods if item.row is None), None)
    if period is None or _is_small(period, signals):
        return None
    who = "every rank" if len(signals.ranks) > 1 else "the program"
    every = every_steps(period)
    return Finding(
        kind=FindingKind.PERIODIC_WORK,
        cost_percent=percent(period.cost, signals),
        cost_seconds=period.cost,
        period_steps=period.steps,
        confidence=high_if(period.times >= CERTAIN_TIMES, Confidence.MEDIUM),
        summary=f"{every} {who} takes {format_seconds(period.excess)} longer: "
        f"{format_seconds(period.cost)} a step on average",
        evidence=(_times(period, signals),),
        advice=f"look at what the program does {every}: logging, metrics, a further loss or "
        "optimizer; do it less often, or in another thread",
    )


def _is_small(period: SlowPeriod, signals: Signals) -> bool:
    return period.cost < COST_FLOOR * signals.step_seconds


def every_steps(period: SlowPeriod) -> str:
    """``every 5 steps``, ``in 2 of every 10 steps``, ``every about 62 steps``."""
    if period.length > 1 and period.is_exact:
        return f"in {period.length} of every {period.steps} steps"
    about = "" if period.is_exact else "about "
    return f"every {about}{period.steps} steps"


def _times(period: SlowPeriod, signals: Signals) -> str:
    excess = format_seconds(period.excess)
    return f"{period.times} times in {signals.steps:,} steps, {excess} each"
