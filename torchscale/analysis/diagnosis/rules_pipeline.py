"""Rules about pipelines: ranks of a stage hold equal work and are compared with each other, stages
with one another.

They go by the time that each rank computes by itself; waits say little here, since every stage
waits for the others by design.
"""

from __future__ import annotations

import numpy as np

from torchscale.analysis.diagnosis.rule import (
    COMPUTE,
    EARLIER,
    MICRO_BATCHES,
    WINDOWS,
    Earlier,
    Judgement,
    rule,
    several_ranks,
    staged,
)
from torchscale.analysis.diagnosis.rules_spells import judge_spells
from torchscale.analysis.diagnosis.shared import (
    COST_FLOOR,
    high_if,
    percent,
)
from torchscale.analysis.diagnosis.signals import (
    MIN_COMPARED,
    Matrix,
    MicroBatchLengths,
    Signals,
    Windows,
)
from torchscale.analysis.diagnosis.slow_rank import SlowRank
from torchscale.analysis.diagnosis.spells import Spells, slow_spells
from torchscale.analysis.diagnosis.stages import compared_stages, is_forward_only, own_work
from torchscale.analysis.stats.estimate import Estimate
from torchscale.analysis.stats.peers import outliers_among_peers
from torchscale.analysis.stats.series import is_steady
from torchscale.schema.profiles.finding import Confidence, Finding, FindingKind
from torchscale.util.units import format_percent, format_seconds

PEER_EXCESS = 0.10
"""How much longer than its peers' median a rank of a stage computes to be named. Chosen above the 3
% of ranks without stages: there is no measurement without communication that could confirm it."""
STAGE_EXCESS = 0.10
"""How much more than the mean of all stages the slowest computes. Chosen: the embedding on the
first stage and the head on the last make some difference in every pipeline."""
STAGE_FLOOR = 0.05
"""Share of the step that an even split would gain at most; as for exposed communication, some is
left in every run."""
MICRO_BATCH_SPREAD = 0.10
"""Standard deviation of the lengths of a step's micro-batches, as a share of their mean, from which
on they are uneven. Chosen as for ranks and stages."""


@rule(FindingKind.STRAGGLER, COMPUTE, EARLIER, where=(several_ranks, staged))
def slow_peer(signals: Signals, compute: Matrix, earlier: Earlier) -> Judgement:
    """A rank that computes longer than those that hold the same stage."""
    compared = compared_stages(signals, compute)
    if isinstance(compared, str):
        return compared
    stages = [stage for stage in compared.stages if len(stage) > 1]
    tests = sum(map(len, stages))
    slowest = [
        (peers[0], stage)
        for stage in stages
        if (peers := outliers_among_peers(compared.samples[list(stage)], PEER_EXCESS, tests))
    ]
    named = {item.rank for item in earlier if item.kind is FindingKind.INTERMITTENT_STRAGGLER}
    candidates = [
        (peer, stage)
        for peer, stage in slowest
        if signals.ranks[stage[peer.row]] not in named
        and peer.excess.value >= COST_FLOOR * signals.step_seconds
    ]
    if not candidates:
        return None
    peer, stage = max(candidates, key=lambda item: item[0].excess.value)
    row, cost = stage[peer.row], peer.excess.value
    rank, others = signals.ranks[row], tuple(other for other in stage if other != row)
    if not peer.is_steady:
        return f"rank {rank} computes longer than the other ranks of its stage, but not steadily"
    what = "forward pass takes" if is_forward_only(signals) else "own compute takes"
    equal = ", ".join(str(signals.ranks[other]) for other in others)
    return Finding(
        kind=FindingKind.STRAGGLER,
        rank=rank,
        cost_percent=percent(cost, signals),
        cost_seconds=cost,
        confidence=high_if(_enough(signals), Confidence.MEDIUM),
        summary=f"rank {rank}'s {what} {format_seconds(peer.mine)} a step, "
        f"{peer.mine / peer.others:.1f} times that of the ranks with equal work "
        f"(rank{'s' * (len(others) > 1)} {equal}: {format_seconds(peer.others)}); its pipeline "
        "waits for it in every micro-batch",
        evidence=(
            f"{peer.excess.text(format_seconds)} more than the median of its stage, "
            f"over {_extent(signals)}",
            f"{len(compared.stages)} stages of {len(stage)} ranks each hold equal work",
        ),
        advice=SlowRank(row, others, cost).advice(signals, "those of the same stage"),
    )


@rule(FindingKind.INTERMITTENT_STRAGGLER, WINDOWS, where=(several_ranks, staged))
def intermittent_peer(signals: Signals, windows: Windows) -> Judgement:
    """A rank that is slower than those that hold the same stage for a while, again and
    again."""
    compared = compared_stages(signals, windows.compute)
    if isinstance(compared, str):
        return compared
    work = own_work(signals, windows)
    reasons: list[str] = []
    found: list[Spells] = []
    for stage in compared.stages:
        spells = None if len(stage) < 2 else slow_spells(work, stage)
        if isinstance(spells, str):
            reasons.append(spells)
        elif spells is not None:
            found.append(spells)
    if not found:
        return reasons[0] if reasons else None
    worst = max(found, key=lambda item: item.cost)
    return judge_spells(signals, worst, worst.cost, "the ranks of its stage")


@rule(FindingKind.UNEVEN_STAGES, COMPUTE, where=(several_ranks, staged))
def uneven_stages(signals: Signals, compute: Matrix) -> Judgement:
    """A stage that computes longer than an even split of the work would have it."""
    compared = compared_stages(signals, compute)
    if isinstance(compared, str):
        return compared
    stages, values = compared.stages, compared.samples
    # The lower median of its ranks: one rank of a stage that is slow makes no stage uneven.
    by_stage = np.array(
        [np.sort(values[list(stage)], axis=0)[(len(stage) - 1) // 2] for stage in stages]
    )
    means = by_stage.mean(axis=1)
    slowest, even = int(means.argmax()), float(means.mean())
    samples = by_stage[slowest] - by_stage.mean(axis=0)
    excess, batches = Estimate.of_mean(samples.tolist()), signals.micro_batches
    gain = excess.value if batches is None else excess.value * (1 - 1 / batches)
    if (
        excess.bounds[0] <= 0
        or excess.value < STAGE_EXCESS * even
        or gain < STAGE_FLOOR * signals.step_seconds
    ):
        return None
    if not is_steady(samples):
        return f"stage {slowest + 1} computes longer than the others, but not steadily"
    stage = stages[slowest]
    where = _ranks_text(signals, stage)
    share = float(means[slowest] / means.sum())
    alone = len(stage) == 1
    return Finding(
        kind=FindingKind.UNEVEN_STAGES,
        rank=signals.ranks[stage[0]] if alone else None,
        cost_percent=percent(gain, signals),
        cost_seconds=gain,
        confidence=high_if(_enough(signals) and not alone, Confidence.MEDIUM),
        summary=f"stage {slowest + 1} of {len(means)} ({where}) does {format_percent(share, 0)} "
        f"of the work; an even split would give it {format_percent(1 / len(means), 0)}. All stages "
        "wait for it",
        evidence=(
            f"compute of a step by stage{' (forward pass)' if is_forward_only(signals) else ''}: "
            + ", ".join(
                f"{number} ({_ranks_text(signals, ranks)}): {format_seconds(float(value))}"
                for number, (ranks, value) in enumerate(zip(stages, means, strict=True), start=1)
            ),
            f"{excess.text(format_seconds)} more than the mean stage, over {_extent(signals)}",
        ),
        advice=f"move layers from stage {slowest + 1} to stage {int(means.argmin()) + 1}, which "
        "has least; count the embedding and the head as layers"
        + (
            f". It is one rank, and a slow device looks the same: compare {where}'s clocks with "
            "others'" * alone
        ),
    )


@rule(FindingKind.UNEVEN_MICRO_BATCHES, MICRO_BATCHES, where=(several_ranks, staged))
def uneven_micro_batches(signals: Signals, lengths: MicroBatchLengths) -> Judgement:
    """Micro-batches of a step that compute longer than others on all stages, as long sequences
    do."""
    compared = compared_stages(signals, signals.compute)
    if isinstance(compared, str):
        return compared
    stages = len(compared.stages)
    variance = Estimate.of_mean(lengths.shared_variance.tolist())
    # A pipeline of S equal stages takes the sum of the micro-batches and S - 1 times the longest.
    gain = (stages - 1) * (lengths.longest - 1) * lengths.seconds
    if (
        variance.bounds[0] <= 0
        or variance.value < MICRO_BATCH_SPREAD**2
        or gain < STAGE_FLOOR * signals.step_seconds
    ):
        return None
    places = ", ".join(
        f"{number}: {value:.2f}" for number, value in enumerate(lengths.relative.tolist(), start=1)
    )
    return Finding(
        kind=FindingKind.UNEVEN_MICRO_BATCHES,
        cost_percent=percent(gain, signals),
        cost_seconds=gain,
        confidence=high_if(_enough(signals), Confidence.MEDIUM),
        summary=f"micro-batches of a step differ: the longest computes {lengths.longest:.1f} "
        "times the mean of its "
        "step, on every stage, and the stages wait for it one after the other",
        evidence=(
            f"lengths vary by {format_percent(float(np.sqrt(variance.value)), 0)} (standard "
            f"deviation within a step) on which the {stages} stages agree, over {_extent(signals)}",
            f"compute of each micro-batch over their mean, by place in the step: {places}",
        ),
        advice="give every micro-batch equally many tokens: pack sequences, or spread long ones "
        "over the micro-batches before the batch is cut",
    )


def _enough(signals: Signals) -> bool:
    return signals.steps >= MIN_COMPARED


def _extent(signals: Signals) -> str:
    return f"{signals.steps} steps" if signals.steps else "the whole recording"


def _ranks_text(signals: Signals, stage: tuple[int, ...]) -> str:
    ranks = [signals.ranks[row] for row in stage]
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"
