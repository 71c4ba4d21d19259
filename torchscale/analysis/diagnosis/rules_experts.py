"""Experts that get more tokens than others: work that the router gives a rank, and no slowness of
its device."""

from __future__ import annotations

import numpy as np

from torchscale.analysis.diagnosis.rule import (
    EARLIER,
    EXPERTS,
    Earlier,
    Judgement,
    has_spread_experts,
    rule,
    several_ranks,
)
from torchscale.analysis.diagnosis.shared import (
    COST_FLOOR,
    EXPLAINED_SHARE,
    MIN_SAMPLES,
    cannot_name,
    explained_by_processes,
    per_step,
    percent,
    seconds_per_token,
)
from torchscale.analysis.diagnosis.signals import ExpertLoad, Signals, SignalSeries
from torchscale.analysis.stats.peers import outliers_among_peers
from torchscale.analysis.stats.series import is_steady, quarter_means
from torchscale.schema.exports.experts import HotExpert
from torchscale.schema.profiles.finding import Confidence, Finding, FindingKind
from torchscale.util.units import format_percent, format_seconds

UNEVEN_SHARE = 0.10
"""How many more tokens than an even share a rank's experts get to be called uneven. Chosen: what less
would gain is within the interval of most runs. Routers that start from random weights are often
beyond it, and cost as much as trained ones: of 20 seeds of ``tiny-moe`` the busiest of two ranks has
0.2 to 13.5 % more, that of four 4 to 27 %."""
SLOW_SHARE = 0.10
"""How much longer a token takes at the experts of a slow rank: as for other phases of a step that
contain no communication (:data:`~torchscale.analysis.diagnosis.undisturbed.QUIET_EXCESS`)."""
FEW_TOKENS = 0.9
"""Tokens of a rank, over the others' median, below which it is not called slow by what each
takes."""
HOT_SHARE = 1.5
"""Share of an expert, over an even one, from which it is named."""


@rule(FindingKind.UNEVEN_EXPERTS, EXPERTS, where=(several_ranks, has_spread_experts))
def uneven_experts(signals: Signals, experts: ExpertLoad) -> Judgement:
    """The rank whose experts get ≥ 10 % more tokens than an even share, in every quarter of the
    run by half as much at least, where an even split would gain ≥ 2 % of the step: tokens beyond an
    even share × what a token takes, layer by layer, and no more than the others wait for it."""
    if (refusal := cannot_name(signals)) is not None:
        return refusal
    means = signals.mean(experts.tokens)
    row, even = int(means.argmax()), float(means.mean())
    if even <= 0 or means[row] < (1 + UNEVEN_SHARE) * even:
        return None
    rank, more = signals.ranks[row], float(means[row]) / even - 1
    excess = experts.tokens[row] / experts.tokens.mean(axis=0) - 1
    if not is_steady(excess):
        parts = ", ".join(format_percent(quarter, 0) for quarter in quarter_means(excess))
        return (
            f"rank {rank}'s experts get more tokens than the others', but not steadily: {parts} "
            "more from quarter to quarter"
        )
    each = seconds_per_token(experts.tokens, experts.seconds)
    gain = each * float(experts.uneven_tokens[row])
    waited = _waited_for(signals, row)
    if waited is not None and waited < EXPLAINED_SHARE * gain:
        return (
            f"rank {rank}'s experts get {format_percent(more, 0)} more tokens than an even share, "
            f"but the others wait only {per_step(waited, signals)} for it"
        )
    cost = gain if waited is None else min(gain, waited)
    if cost < COST_FLOOR * signals.step_seconds:
        return None
    hot = [one for one in experts.hottest[row] if one.share >= HOT_SHARE]
    return Finding(
        kind=FindingKind.UNEVEN_EXPERTS,
        rank=rank,
        cost_percent=percent(cost, signals),
        cost_seconds=cost,
        confidence=Confidence.MEDIUM if waited is None else Confidence.HIGH,
        summary=f"the experts on rank {rank} get {format_percent(more, 0)} more tokens than an "
        f"even share{_named(hot)}; with an even split the step would be up to "
        f"{format_seconds(cost)} shorter",
        evidence=(
            f"tokens at experts per step: {means[row]:,.0f} on rank {rank}, {even:,.0f} on average",
            _speed(signals, experts, row),
        ),
        advice=_advice(rank, hot),
    )


@rule(FindingKind.STRAGGLER, EXPERTS, EARLIER, where=(several_ranks, has_spread_experts))
def slow_experts(signals: Signals, experts: ExpertLoad, earlier: Earlier) -> Judgement:
    """A rank whose experts take ≥ 10 % longer for a token than the median of the others, with an
    interval that excludes 0 and in every quarter of the run by half as much at least, and that has
    no fewer tokens: each expert also takes time that does not depend on them. The other compute of
    the rank is compared by the rule before."""
    if any(item.kind is FindingKind.STRAGGLER for item in earlier):
        return None
    if (refusal := cannot_name(signals)) is not None:
        return refusal
    each = experts.seconds / np.maximum(experts.tokens, 1.0)
    if each.shape[1] < MIN_SAMPLES:
        return "too few samples of what each rank's experts take for a token"
    outliers = outliers_among_peers(each, SLOW_SHARE)
    if not outliers or not outliers[0].is_steady:
        return None
    slowest = outliers[0]
    row, mean, tokens = slowest.row, slowest.excess.value, signals.mean(experts.tokens)
    cost, waited = mean * float(tokens.mean()), _waited_for(signals, row)
    is_waited_for = waited is None or waited >= EXPLAINED_SHARE * cost
    if cost < COST_FLOOR * signals.step_seconds or not is_waited_for:
        return None
    rank, typical_tokens = signals.ranks[row], float(np.median(np.delete(tokens, row)))
    doubt = explained_by_processes(signals, row, cost)
    if tokens[row] < FEW_TOKENS * typical_tokens:
        doubt = (
            f"a token takes {format_percent(mean / slowest.others, 0)} longer at rank {rank}'s "
            "experts, which get fewer tokens than the others': that alone can be why"
        )
    if doubt is not None:
        return doubt
    return Finding(
        kind=FindingKind.STRAGGLER,
        rank=rank,
        cost_percent=percent(cost, signals),
        cost_seconds=cost,
        confidence=Confidence.MEDIUM,
        summary=f"rank {rank}'s experts take {format_percent(mean / slowest.others, 0)} longer for "
        "a token than the others', whatever their load",
        evidence=(_speed(signals, experts, row),),
        advice=f"compare rank {rank}'s device with the others' (clocks, temperature, ECC, other "
        "processes); a recording shows whether all of its kernels are slow",
    )


def _waited_for(signals: Signals, row: int) -> float | None:
    """Seconds a step that the others wait for a rank, on average; ``None`` where it was not
    measured."""
    blame, wait = signals.blame, signals.wait
    if blame is None or wait is None:
        return None
    return float(blame[row] * signals.mean(wait).sum() / (len(blame) - 1))


def _speed(signals: Signals, experts: ExpertLoad, row: int) -> str:
    """Whether the device is slow, beside its load."""
    tokens, seconds = signals.mean(experts.tokens), signals.mean(experts.seconds)
    each: SignalSeries = seconds / np.maximum(tokens, 1.0)
    others = float(np.median(np.delete(each, row)))
    return (
        f"a token takes {format_seconds(float(each[row]))} at its experts, "
        f"{format_seconds(others)} at the others'"
    )


def _named(hot: list[HotExpert]) -> str:
    if not hot:
        return ""
    first = hot[0]
    return f" (expert {first.expert} of expert layer {first.layer} {first.share:.1f} × its share)"


def _advice(rank: int, hot: list[HotExpert]) -> str:
    what = "balance the router (a larger weight of the loss for load balancing, or a bias)"
    if not hot:
        return f"{what}, or spread the busy experts of rank {rank} over other ranks"
    names = ", ".join(f"{one.expert} of layer {one.layer} ({one.share:.1f} ×)" for one in hot)
    return f"{what}; hot experts: {names}: move them to different ranks, or hold copies of them"
