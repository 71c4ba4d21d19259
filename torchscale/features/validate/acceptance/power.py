"""What an acceptance can tell in its time: the smallest slowdown that is found with 90 % probability
at the false alarms in use. A prediction from the noise of rounds, which no measurement confirms."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from torchscale.analysis.stats.peers import reach
from torchscale.analysis.stats.series import student_t_quantile
from torchscale.features.validate.acceptance.peers import (
    FAMILY_ERROR,
    FEW_NODES,
    LEAST_SPREAD,
    MIN_DEFICIT,
    MIN_NODES,
    MIN_PEERS,
    NODE_SPREAD,
    few_reach,
)
from torchscale.schema.node.acceptance import AcceptanceRun, LimitKind, Power
from torchscale.schema.node.policy import MIN_ROUNDS, Policy

PROBABILITY = 0.9
NORMAL_90 = 1.2816
"""Quantile of the normal distribution at :data:`PROBABILITY`."""
DEFAULT_NOISE = (0.01, 0.0365)
"""Standard deviation from round to round of the steadiest and of the noisiest figure, before the
machine at hand has been measured: from launch to launch on quiet machines, and on two cores of a
shared one (docs/tested-on.md)."""


def round_noise(run: AcceptanceRun, rounds: Sequence[int]) -> dict[str, float]:
    """Standard deviation of the logarithm from round to round, pooled over the parts of each figure;
    of figures with two rounds or more."""
    squares: dict[str, list[float]] = {}
    for series in run.series:
        logs = [math.log(value) for it in rounds if (value := series.values[it]) is not None]
        if len(logs) > 1:
            squares.setdefault(series.figure, []).append(statistics.variance(logs))
    return {name: math.sqrt(statistics.fmean(found)) for name, found in squares.items()}


def predict_power(
    budget_seconds: float,
    round_seconds: float,
    noise: Mapping[str, float],
    *,
    figures: int,
    peers: int,
    nodes: int = 1,
    baseline_rounds: int | None,
    measured: int = 0,
    loss: float = Policy().baseline_loss_percent / 100,
) -> Power:
    """What a budget can tell.

    Args:
        budget_seconds: Time for rounds.
        round_seconds: What one takes.
        noise: By figure; empty where nothing was measured yet.
        figures: How many figures of parts are judged together.
        peers: Parts of one kind on the node.
        nodes: Nodes that are accepted together.
        measured: Rounds that the noise is from.
        baseline_rounds: Of the baseline; ``None`` without one: one of as many rounds is assumed.
        loss: Loss against a baseline that is accepted.
    """
    rounds = int(budget_seconds / round_seconds)
    steadiest, noisiest = DEFAULT_NOISE
    names = ("", "")
    if noise:
        names = (min(noise, key=lambda it: noise[it]), max(noise, key=lambda it: noise[it]))
        steadiest, noisiest = (noise[name] for name in names)
    found: list[dict[LimitKind, float]] = []
    for spread in (noisiest, steadiest):
        kinds: dict[LimitKind, float] = {}
        if rounds >= MIN_ROUNDS:
            kinds[LimitKind.BASELINE] = _against_baseline(
                spread, rounds, baseline_rounds or rounds, figures, loss
            )
            most = max(peers, nodes)
            if peers >= MIN_PEERS or nodes >= FEW_NODES:
                kinds[LimitKind.PEERS] = _against_peers(spread, rounds, most, figures)
            elif nodes >= MIN_NODES:
                kinds[LimitKind.PEERS] = _against_few(spread, rounds, nodes, figures)
        found.append(kinds)
    return Power(
        rounds=rounds,
        round_seconds=round_seconds,
        noise=noisiest,
        noisiest=names[1],
        steadiest=names[0],
        measured=measured,
        probability=PROBABILITY,
        by_limit=found[0],
        best=found[1],
    )


def _against_baseline(
    spread: float, rounds: int, earlier: int, figures: int, accepted: float
) -> float:
    """The loss that is accepted, and what both intervals need beyond it."""
    degrees = rounds + earlier - 2
    error = spread * math.sqrt(1 / rounds + 1 / earlier)
    quantiles = student_t_quantile(1 - FAMILY_ERROR / figures, degrees)
    quantiles += student_t_quantile(PROBABILITY, degrees)
    return -math.expm1(math.log1p(-accepted) - quantiles * error)


def _against_peers(spread: float, rounds: int, peers: int, figures: int) -> float:
    """The limit of equal peers whose levels differ by the noise of their rounds alone, and what the
    interval of the slow one needs beyond it."""
    level = max(LEAST_SPREAD, spread / math.sqrt(rounds))
    limit = max(-math.log1p(-MIN_DEFICIT), reach(peers - 1, FAMILY_ERROR / figures) * level)
    return _beyond(limit, spread, rounds)


def _against_few(spread: float, rounds: int, nodes: int, figures: int) -> float:
    """The same of a few nodes, whose spread is assumed."""
    level = max(NODE_SPREAD, spread / math.sqrt(rounds))
    return _beyond(few_reach(nodes - 1, figures, level), spread, rounds)


def _beyond(limit: float, spread: float, rounds: int) -> float:
    """What a slow part loses whose interval lies below the limit with 90 % probability."""
    own = student_t_quantile(0.975, rounds - 1) * spread / math.sqrt(rounds)
    return -math.expm1(-(limit + own + NORMAL_90 * spread / math.sqrt(rounds)))
