"""Which node or which link is slow, from the times of all pairs of nodes. Pure. The model of a
pair's time is that of :mod:`~torchscale.features.validate.fleet.pair_regression`.

The link between two bad nodes is not judged: whether their slowness adds up or the slower one
bounds the pair depends on what is wrong with them.

n nodes identify a limited number of faults. Two sets of faults give the same times if their
difference adds the same constant c to every pair, x_i + x_j + l_ij = c. From four nodes on the
fewest terms that do so are n: every node (x = c/2), or a node against all of its n - 1 links; for
three nodes they are two: a node against the link it has no part in. Sets of k faults are therefore
distinct where 2k < n (:func:`most_faults`); beyond that it cannot be told.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from torchscale.analysis.stats.series import student_t_quantile
from torchscale.features.validate.fleet.pair_judgement import (
    SLOW_SHARE,
    SUSPECT_ERROR,
    Effect,
    Judgement,
)
from torchscale.features.validate.fleet.pair_regression import (
    FAMILY_ERROR,
    Pair,
    PairFit,
    PairRows,
    fit_pairs,
)
from torchscale.schema.node.fleet import PairwiseStatus

MIN_REPEATS = 3
"""The fewest of which the median disregards one that was disturbed."""
_CONFIDENCE = 0.95
_FEW_NODES = 5
"""Up to here the link between two bad nodes, which is not judged, is a third unknown: more than
such a fleet identifies. A pair that is far too fast then tells that most of the fleet is slow."""


def most_faults(nodes: int) -> int:
    """How many bad nodes and links the times of all pairs of ``nodes`` identify, wherever they
    are."""
    if nodes <= 3:
        return 0
    return (nodes - 1) // 2


def judge_pairs(
    nodes: int,
    seconds: Mapping[Pair, Sequence[float]],
    repeated: Collection[Pair] | None = None,
    fleets: int = 1,
) -> Judgement:
    """Judge a fleet.

    Args:
        nodes: How many.
        seconds: Times of every pair, at least :data:`MIN_REPEATS` each, in seconds.
        repeated: Pairs that were measured at more than one moment; ``None``: all. What disturbs a
            host for a second slows all repeats of one moment alike, and is taken for the link:
            nothing is blamed for one moment alone.
        fleets: How many such fleets are judged, which share :data:`FAMILY_ERROR`: one for each
            rail.

    Raises:
        ValueError: a pair is missing, has too few times, or one that is not positive and finite.
    """
    pairs = [(i, j) for i in range(nodes) for j in range(i + 1, nodes)]
    if set(seconds) != set(pairs):
        wrong = min(set(seconds) ^ set(pairs))
        raise ValueError(
            f"pair {wrong}: expected times of each of the {len(pairs)} pairs, and of no other"
        )
    for pair, times in seconds.items():
        if len(times) < MIN_REPEATS or not all(0 < time < math.inf for time in times):
            raise ValueError(
                f"pair {pair}: {list(times)}; expected at least {MIN_REPEATS} positive times"
            )
    if nodes < 2:
        return Judgement(PairwiseStatus.CANNOT_TELL, reason="a single node has no link")
    if nodes == 2:
        return Judgement(
            PairwiseStatus.CANNOT_TELL, reason="two nodes have one link: nothing to compare it with"
        )
    logs = [np.log(np.asarray(seconds[pair], dtype=np.float64)) for pair in pairs]
    fit = fit_pairs(PairRows(nodes, pairs, logs, fleets))
    once = frozenset[Pair]()
    if repeated is not None:
        once = frozenset(pairs).difference(repeated)
    if nodes == 3:
        return _three_nodes(fit, once)
    return _judge(fit, once)


def _effects(fit: PairFit) -> tuple[tuple[Effect, ...], tuple[Effect, ...]]:
    rows = fit.rows
    suspicious, not_judged = rows.critical(SUSPECT_ERROR), set(rows.not_judged(fit.deleted))
    single = student_t_quantile(0.5 + _CONFIDENCE / 2, rows.degrees)
    threshold = math.log1p(SLOW_SHARE)
    effects, count = [], len(rows.pairs)
    for row, (slowness, error) in enumerate(zip(fit.residuals, fit.errors, strict=True)):
        if row in not_judged:
            continue
        which: tuple[int, ...] = (row - count,)
        if row < count:
            which = rows.pairs[row]
        large = slowness >= threshold
        is_bad = bool(large and row in fit.deleted)
        effects.append(
            Effect(
                which,
                math.expm1(slowness),
                math.expm1(slowness - single * error),
                math.expm1(min(slowness + single * error, 700.0)),  # below the largest float
                is_bad,
                bool(large and not is_bad and slowness > suspicious * error),
            )
        )
    ranked = sorted(effects, key=lambda effect: -effect.share)
    return (
        tuple(effect for effect in ranked if len(effect.nodes) == 1),
        tuple(effect for effect in ranked if len(effect.nodes) == 2),
    )


def _judge(fit: PairFit, once: frozenset[Pair]) -> Judgement:
    """``once``: pairs that were measured at one moment alone."""
    nodes, links = _effects(fit)
    bad = {effect.nodes for effect in (*nodes, *links) if effect.is_bad}
    suspects = [effect for effect in (*nodes, *links) if effect.is_suspect]
    contradictions = _too_fast(fit, bad)
    blamed = {pair for which in bad for pair in _pairs_of(fit, which)}
    suspected = {pair for effect in suspects for pair in _pairs_of(fit, effect.nodes)}
    ask_again = sorted(suspected | (blamed & once) | set(contradictions))
    limit = most_faults(fit.rows.nodes)
    # with few nodes several faults are identified only if no node is among them
    if fit.rows.nodes <= _FEW_NODES and any(len(which) == 1 for which in bad):
        limit = 1
    reason = ""
    if fit.is_cut_off:
        reason = "too many nodes and links differ to say which ones are as they should be"
    elif len(bad) > limit:
        reason = (
            f"{len(bad)} nodes or links seem slow, and {fit.rows.nodes} nodes identify {limit} at "
            "most"
        )
    elif contradictions:
        reason = (
            "some pairs are far faster than the rest of the fleet explains: most of it may be slow"
        )
    if reason:
        status = PairwiseStatus.CANNOT_TELL
        nodes, links = _as_suspects(nodes), _as_suspects(links)
    elif bad:
        status = PairwiseStatus.BAD
    elif suspects:
        status = PairwiseStatus.UNCLEAR
    else:
        status = PairwiseStatus.NONE
    return _judgement(fit, status, nodes, links, ask_again=tuple(ask_again), reason=reason)


def _three_nodes(fit: PairFit, once: frozenset[Pair]) -> Judgement:
    """Three pairs carry three unknowns: that something is slow can be told, and not what."""
    nodes, links = _effects(fit)
    effects = (*nodes, *links)
    status, reason = PairwiseStatus.NONE, ""
    ask_again: tuple[Pair, ...] = ()
    if any(effect.is_bad for effect in effects):
        status = PairwiseStatus.CANNOT_TELL
        reason = (
            "one node or link is slow, but three nodes do not tell a slow node from slow links: add "
            "a fourth"
        )
        ask_again = tuple(sorted(once))
    elif any(effect.is_suspect for effect in effects):
        status = PairwiseStatus.UNCLEAR
        ask_again = tuple(fit.rows.pairs)
    return _judgement(
        fit, status, _as_suspects(nodes), _as_suspects(links), ask_again=ask_again, reason=reason
    )


def _judgement(
    fit: PairFit,
    status: PairwiseStatus,
    nodes: tuple[Effect, ...],
    links: tuple[Effect, ...],
    *,
    ask_again: tuple[Pair, ...],
    reason: str,
) -> Judgement:
    rows = fit.rows
    count, critical, least = len(rows.pairs), rows.critical(), math.log1p(SLOW_SHARE)
    noise = math.sqrt(float(np.median(rows.repeat_variances)))
    of_links, of_nodes = (
        float(np.median(errors)) for errors in (fit.errors[:count], fit.errors[count:])
    )
    return Judgement(
        status,
        nodes,
        links,
        noise=math.expm1(noise),
        detectable_node=math.expm1(max(least, critical * of_nodes)),
        detectable_link=math.expm1(max(least, critical * of_links)),
        ask_again=ask_again,
        reason=reason,
    )


def _as_suspects(effects: Sequence[Effect]) -> tuple[Effect, ...]:
    return tuple(
        Effect(
            effect.nodes,
            effect.share,
            effect.low,
            effect.high,
            False,
            effect.is_bad or effect.is_suspect,
        )
        for effect in effects
    )


def _pairs_of(fit: PairFit, nodes: tuple[int, ...]) -> list[Pair]:
    """Pairs that hold these nodes: of a link its pair, of a node all of its pairs."""
    return [pair for pair in fit.rows.pairs if set(nodes) <= set(pair)]


def _too_fast(fit: PairFit, bad: set[tuple[int, ...]]) -> list[Pair]:
    """Pairs whose speed contradicts the explanation: those of a bad node that are far faster than
    it allows, as no link makes up for its node; with few nodes, any pair or node far faster than
    the rest, which may be the slow part."""
    is_few = fit.rows.nodes <= _FEW_NODES
    critical = fit.rows.critical(FAMILY_ERROR)
    if is_few:
        critical = fit.rows.critical(SUSPECT_ERROR)
    least, count = math.log1p(SLOW_SHARE), len(fit.rows.pairs)
    found: set[Pair] = set()
    for row, (residual, error) in enumerate(zip(fit.residuals, fit.errors, strict=True)):
        if residual >= -max(least, critical * error):
            continue
        if row >= count and is_few:
            found.update(_pairs_of(fit, (row - count,)))
        elif row < count and (is_few or sum((node,) in bad for node in fit.rows.pairs[row]) == 1):
            found.add(fit.rows.pairs[row])
    return sorted(found)
