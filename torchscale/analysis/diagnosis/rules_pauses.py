"""Rare long steps: garbage collections and what else interrupts a rank."""

from __future__ import annotations

import math

import numpy as np

from torchscale.analysis.diagnosis.rule import EARLIER, PAUSES, Earlier, Judgement, rule
from torchscale.analysis.diagnosis.shared import (
    EXPLAINED_SHARE,
    comes_back,
    explained_by_processes,
    high_if,
    percent,
)
from torchscale.analysis.diagnosis.signals import Pauses, SignalOrigin, Signals
from torchscale.schema.profiles.finding import Confidence, Finding, FindingKind
from torchscale.util.units import format_seconds

PAUSE_FLOOR = 0.03
"""Share of the step that rare long steps cost. Chosen above :data:`COST_FLOOR`: their number is
small and their sum scatters."""
MIN_PAUSES = 3
"""Chosen: fewer long steps are accidents (a checkpoint, a job that started) and no pattern."""
CERTAIN_PAUSES = 5
"""Chosen: from here on they are a pattern whatever their cause, and the confidence is high."""
SAME_RANK_SHARE = 0.9
"""Share of what all ranks' long steps cost that falls on one rank, for that rank to be named: what
the host does beside training adds a long step here and there on any rank."""
SAME_RANK_CHANCE = 0.1
"""Most probable that chance puts as many pauses on one rank. Of two ranks, five of five fall on the
same one in 6 % of cases, of three ranks four of four in 4 %."""
CERTAIN_CHANCE = 0.01
"""Below this chance the rank is certain."""


@rule(FindingKind.PAUSES, PAUSES, EARLIER)
def pauses(signals: Signals, pauses: Pauses, earlier: Earlier) -> Judgement:
    """Rare long steps, and whether they are garbage collections."""
    cost, most = pauses.seconds_per_step, max(pauses.count)
    collection = pauses.collection_seconds_per_step
    if most < MIN_PAUSES or cost < PAUSE_FLOOR * signals.step_seconds:
        return None
    row, chance = _rank_with_all(pauses)
    ranks = (None, *signals.ranks) if row is None else (None, signals.ranks[row])
    if any(comes_back(earlier, rank, cost) for rank in ranks):
        return None
    if row is not None and explained_by_processes(signals, row, cost) is not None:
        row = None
    by_collection = collection is not None and collection > EXPLAINED_SHARE * cost
    evidence = [_long_steps_by_rank(signals, pauses)]
    if collection is not None:
        evidence.append(f"garbage collection: {format_seconds(collection)} a step")
    rank, certain = None, True
    where, here = f"on the rank with most) cost {format_seconds(cost)} a step on average", ""
    if row is not None:
        rank, certain = signals.ranks[row], chance <= CERTAIN_CHANCE
        most = pauses.count[row]
        here = f" on rank {rank} or its host only"
        where = (
            f"on rank {rank}, slight ones or none on the others) cost {format_seconds(cost)} a "
            "step on average, and all wait"
        )
    cause = "something other than garbage collection"
    advice = (
        f"look for what runs now and then{here}: checkpoints, logging, evaluation, other "
        "processes, periodic jobs"
    )
    if collection is None:
        cause = "a cause that was not recorded"
    elif by_collection:
        cause = "Python's garbage collection"
        advice = (
            "call gc.freeze() after set-up and collect at a fixed interval on all ranks together"
        )
    confidence = high_if(certain and (by_collection or most >= CERTAIN_PAUSES), Confidence.MEDIUM)
    if (
        signals.on_device
        and signals.origin in (SignalOrigin.JOB, SignalOrigin.LENGTHS)
        and not by_collection
    ):
        confidence = Confidence.LOW
        evidence.append("by the host's steps: its wait for a device that is far behind looks alike")
    return Finding(
        kind=FindingKind.PAUSES,
        rank=rank,
        cost_percent=percent(cost, signals),
        cost_seconds=cost,
        confidence=confidence,
        summary=f"rare long steps ({most} of {signals.steps} {where}, from {cause}",
        evidence=tuple(evidence),
        advice=advice,
    )


def _long_steps_by_rank(signals: Signals, pauses: Pauses) -> str:
    counts = [f"{rank}: {count}" for rank, count in zip(signals.ranks, pauses.count, strict=True)]
    if pauses.by_rank is not None:
        costs = (format_seconds(cost) for cost in pauses.by_rank)
        counts = [f"{text} ({cost} a step)" for text, cost in zip(counts, costs, strict=True)]
    return f"long steps by rank: {', '.join(counts)}"


def _rank_with_all(pauses: Pauses) -> tuple[int | None, float]:
    """The row of the rank on which nearly all pauses fall, where chance rarely does that; and
    this chance."""
    ranks = len(pauses.count)
    if pauses.by_rank is None or not sum(pauses.by_rank):
        return None, 1.0
    row = int(np.argmax(pauses.by_rank))
    share = pauses.by_rank[row] / sum(pauses.by_rank)
    here = pauses.count[row]
    total = round(here / share)  # slight ones of other ranks count for what they cost
    # Of `total` pauses that fall on ranks at random, `here` or more on any one of them.
    chance = ranks * sum(
        math.comb(total, count) * (ranks - 1) ** (total - count) / ranks**total
        for count in range(here, total + 1)
    )
    if share < SAME_RANK_SHARE or chance > SAME_RANK_CHANCE:
        return None, chance
    return row, chance
