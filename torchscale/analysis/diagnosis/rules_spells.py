"""A rank that is slow for a while, again and again: what a device that throttles looks like."""

from __future__ import annotations

from torchscale.analysis.diagnosis.rule import (
    BLAME,
    EARLIER,
    WAIT,
    WINDOWS,
    Earlier,
    Judgement,
    not_staged,
    rule,
    several_ranks,
)
from torchscale.analysis.diagnosis.shared import (
    COST_FLOOR,
    EXPLAINED_SHARE,
    cannot_name,
    comes_back,
    explained_by_processes,
    high_if,
    percent,
)
from torchscale.analysis.diagnosis.signals import (
    Matrix,
    SignalOrigin,
    Signals,
    SignalSeries,
    Windows,
)
from torchscale.analysis.diagnosis.spells import CERTAIN_SPELLS, MIN_SPELLS, Spells, slow_spells
from torchscale.schema.profiles.finding import Confidence, Finding, FindingKind
from torchscale.util.units import format_percent, format_seconds

FEW_SPELLS_EXCESS = 0.30
"""How much slower it has to be in two spells only: a core of a shared host was seen to run 30 %
slower for seconds (docs/tested-on.md)."""


@rule(
    FindingKind.INTERMITTENT_STRAGGLER,
    WINDOWS,
    WAIT,
    BLAME,
    EARLIER,
    where=(several_ranks, not_staged),
)
def intermittent_straggler(
    signals: Signals, windows: Windows, wait: Matrix, blame: SignalSeries, earlier: Earlier
) -> Judgement:
    """Slow spells of one rank that come back, and that nothing else explains."""
    if (refusal := cannot_name(signals)) is not None:
        return refusal
    spells = slow_spells(windows, range(len(signals.ranks)))
    if spells is None or isinstance(spells, str):
        return spells
    if comes_back(earlier, signals.ranks[spells.row], spells.cost):
        return None
    caused = float(blame[spells.row] * signals.mean(wait).sum() / (len(signals.ranks) - 1))
    return judge_spells(signals, spells, min(spells.cost, caused), "the others")


def judge_spells(signals: Signals, spells: Spells, cost: float, others: str) -> Judgement:
    """The finding, or why these spells are not called one; ``others`` says with whom the rank is
    compared."""
    rank = signals.ranks[spells.row]
    if cost < COST_FLOOR * signals.step_seconds:
        return None
    if spells.count < MIN_SPELLS:
        return (
            f"rank {rank} was {format_seconds(spells.excess)} a step slower than {others} for "
            f"{format_seconds(spells.seconds)}, once; measure longer to see whether it comes back"
        )
    if spells.excess < FEW_SPELLS_EXCESS * spells.typical and spells.count == MIN_SPELLS:
        return (
            f"rank {rank} was slower than {others} for a while, {MIN_SPELLS} times; measure longer"
        )
    if spells.quiet_rise is not None and spells.quiet_rise < EXPLAINED_SHARE:
        return (
            f"rank {rank} is slower at times, but only while gradients are in transfer, which can "
            "slow its compute"
        )
    if (reason := explained_by_processes(signals, spells.row, spells.cost)) is not None:
        return reason
    share = format_percent(spells.share, 0)
    return Finding(
        kind=FindingKind.INTERMITTENT_STRAGGLER,
        rank=rank,
        cost_percent=percent(cost, signals),
        cost_seconds=cost,
        confidence=_confidence(spells),
        summary=f"rank {rank} is slow {share} of the time, for {format_seconds(spells.seconds)} "
        f"at a time: its compute then takes {format_seconds(spells.excess)} a step "
        f"({format_percent(spells.excess / spells.typical, 0)}) longer than that of {others}",
        evidence=(
            f"{spells.count} slow spells in "
            f"{format_seconds(signals.steps * signals.step_seconds)}, as fast as {others} between "
            "them",
            f"compute of {others}: {format_seconds(spells.typical)} a step",
        ),
        advice=_advice(rank, on_device=signals.on_device) + _measure_longer(signals, spells),
    )


def _advice(rank: int, *, on_device: bool) -> str:
    if not on_device:
        return (
            f"look for what takes rank {rank}'s cores for seconds at a time: jobs and other guests "
            "of its host, lowered frequency, and Python code that this rank runs now and then"
        )
    return (
        f"looks like a device that throttles: read rank {rank}'s clocks, temperature, power limit "
        "and reasons for lowered clocks while it trains (nvidia-smi -q -d "
        "CLOCK,PERFORMANCE,TEMPERATURE -l 1), look at its cooling and for jobs that run on its "
        "host now and then"
    )


def _confidence(spells: Spells) -> Confidence:
    if spells.count == MIN_SPELLS:
        return Confidence.LOW
    return high_if(spells.count >= CERTAIN_SPELLS, Confidence.MEDIUM)


def _measure_longer(signals: Signals, spells: Spells) -> str:
    if spells.count >= CERTAIN_SPELLS:
        return ""
    again = "record" if signals.origin is SignalOrigin.TRACE else "measure"
    return f"; {again} longer first: {spells.count} spells can be disturbances that passed"
