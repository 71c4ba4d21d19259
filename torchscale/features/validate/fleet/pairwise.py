"""Which node or which link is slow, from the times of all pairs of nodes. Pure.

The model of a pair's time is log t_ij = μ + node_i + node_j + link_ij + noise. As it stands it has
more unknowns than pairs, so it is fitted as most nodes and links are: nodes of one kind differ by a
small spread (a prior row 0 = node_i for each node), and links do not differ. A bad link is then an
outlier among the rows of pairs, a bad node one among the rows of nodes: the same test finds both
and weighs them against each other. Rows are deleted one by one, the largest studentized deletion
residual first, and are taken back where the others explain them (Hadi and Simonoff 1993 for
outliers that mask each other; Henderson's mixed-model equations for the prior rows). Only slowness
is looked for.

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
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from torchscale.analysis.stats.series import student_t_quantile
from torchscale.schema.node.fleet import PairwiseStatus

SLOW_SHARE = 0.10
"""A node or link is bad from this much more time on. Nodes and cables of one kind differ by a few
percent from place to place; a lane, a rail or a port that has failed costs at least a tenth."""
FAMILY_ERROR = 0.01
"""Probability that a fleet without any bad node or link is blamed: Bonferroni's correction over all
nodes and links."""
NODE_SPREAD = 0.02
"""Spread between sound nodes (standard deviation of the logarithm), the least that is assumed; from
eight nodes on the fleet may show more."""
LINK_SPREAD = 0.01
"""Spread between sound links, the least that is assumed beside the noise of the repeats: some links
have one more switch."""
MIN_REPEATS = 3
"""The fewest of which the median disregards one that was disturbed."""
_MEDIAN_VARIANCE = math.pi / 2
"""Variance of the median of normal values against their mean's, for many values; a little less for
few. The times of a collective have a heavy tail, which the mean follows and the median does not."""
SUSPECT_ERROR = 0.05
"""The same for nodes and links that are measured again: it costs a few seconds, and accuses
nobody."""
_CONFIDENCE = 0.95
_FEW_NODES = 5
"""Up to here the link between two bad nodes, which is not judged, is a third unknown: more than
such a fleet identifies. A pair that is far too fast then tells that most of the fleet is slow."""
_NODES_FOR_SPREAD = 8
"""A median deviation of fewer nodes says little, and one bad node may be an eighth of them."""
_MAD_TO_SIGMA = 1.4826
_MAD_EFFICIENCY = 0.37
"""Efficiency of the median deviation of normal values against their standard deviation (Huber
1981)."""
_ROUNDS_OF_FIT = 3
"""Selection and spread in turn; the spread does not move after the second."""

_Floats = npt.NDArray[np.float64]
Pair = tuple[int, int]
"""Two nodes, the lower one first."""


@dataclass(frozen=True)
class Effect:
    """How much more time a node or link costs than the fleet's, as a share (0.3: 30 % more).

    Attributes:
        nodes: One for a node, two for a link.
        share: Estimated without this node's prior, or without this pair.
        low, high: 95 % interval for this node or link by itself.
        is_bad: Slower than :data:`SLOW_SHARE`, and with certainty after correction for all nodes
            and links.
        is_suspect: Slower than that, and less certain (:data:`SUSPECT_ERROR`): measure it again.
    """

    nodes: tuple[int, ...]
    share: float
    low: float
    high: float
    is_bad: bool = False
    is_suspect: bool = False


@dataclass(frozen=True)
class Judgement:
    """What the times of all pairs say.

    Attributes:
        status: The verdict.
        nodes, links: The slowest first; all but the links between two bad nodes.
        noise: Standard deviation of a pair's median, as a share.
        detectable_node, detectable_link: Smallest slowness that would have been found.
        ask_again: Pairs whose repetition can decide, or is needed before a node or link is blamed.
        reason: Why nothing can be told; empty where something can.
    """

    status: PairwiseStatus
    nodes: tuple[Effect, ...] = ()
    links: tuple[Effect, ...] = ()
    noise: float | None = None
    detectable_node: float | None = None
    detectable_link: float | None = None
    ask_again: tuple[Pair, ...] = ()
    reason: str = ""

    @property
    def bad_nodes(self) -> tuple[int, ...]:
        """Sorted."""
        return tuple(sorted(effect.nodes[0] for effect in self.nodes if effect.is_bad))

    @property
    def bad_links(self) -> tuple[Pair, ...]:
        """Sorted."""
        return tuple(
            sorted((effect.nodes[0], effect.nodes[1]) for effect in self.links if effect.is_bad)
        )


def rounds(nodes: int) -> tuple[tuple[Pair, ...], ...]:
    """All pairs of ``nodes`` in the fewest rounds in which no node has two partners (the circle
    method of tournaments): n − 1 rounds for an even number, n with one idle node each for an odd
    one."""
    if nodes < 2:
        return ()
    size = nodes + nodes % 2
    circle = list(range(size))
    schedule = []
    for _ in range(size - 1):
        pairs = ((circle[k], circle[size - 1 - k]) for k in range(size // 2))
        schedule.append(tuple((min(pair), max(pair)) for pair in pairs if max(pair) < nodes))
        circle.insert(1, circle.pop())
    return tuple(schedule)


def disjoint_rounds(pairs: Collection[Pair]) -> tuple[tuple[Pair, ...], ...]:
    """``pairs`` in rounds in which no node has two partners, each pair in the first round with room
    for it."""
    schedule: list[list[Pair]] = []
    for pair in sorted(pairs):
        for made in schedule:
            if not any(set(pair) & set(other) for other in made):
                made.append(pair)
                break
        else:
            schedule.append([pair])
    return tuple(tuple(made) for made in schedule)


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
    fit = _select(_Rows(nodes, pairs, logs, fleets))
    once = frozenset[Pair]()
    if repeated is not None:
        once = frozenset(pairs).difference(repeated)
    if nodes == 3:
        return _three_nodes(fit, once)
    return _judge(fit, once)


class _Rows:
    """The rows of the regression: a pair each, then a prior of each node; the unknowns are μ and
    the nodes."""

    def __init__(
        self, nodes: int, pairs: list[Pair], logs: Sequence[_Floats], fleets: int = 1
    ) -> None:
        self.nodes, self.pairs, self.fleets = nodes, pairs, fleets
        counts = np.array([len(log) for log in logs])
        degrees = int((counts - 1).sum())
        variance = sum(float(((log - log.mean()) ** 2).sum()) for log in logs) / degrees
        self.repeat_variances = _MEDIAN_VARIANCE * variance / counts
        self.degrees = float(degrees)
        self.node_spread, self.link_spread = NODE_SPREAD, LINK_SPREAD
        count = len(pairs)
        self.design = np.zeros((count + nodes, 1 + nodes))
        first, second = (np.array([pair[side] for pair in pairs]) for side in (0, 1))
        self.design[:count, 0] = 1
        self.design[np.arange(count), 1 + first] = 1
        self.design[np.arange(count), 1 + second] = 1
        self.design[count + np.arange(nodes), 1 + np.arange(nodes)] = 1
        self.values = np.concatenate([[np.median(log) for log in logs], np.zeros(nodes)])

    @property
    def sigmas(self) -> _Floats:
        """Standard deviation of each row."""
        of_pairs = np.sqrt(self.repeat_variances + self.link_spread**2)
        return np.concatenate([of_pairs, np.full(self.nodes, self.node_spread)])

    def critical(self, error: float = FAMILY_ERROR) -> float:
        """What a studentized residual must exceed."""
        return student_t_quantile(1 - error / (len(self.values) * self.fleets), self.degrees)

    def not_judged(self, deleted: frozenset[int]) -> list[int]:
        """Pairs of two bad nodes."""
        count = len(self.pairs)
        bad = {row - count for row in deleted if row >= count}
        if len(bad) < 2:
            return []
        return [row for row, pair in enumerate(self.pairs) if bad.issuperset(pair)]


@dataclass(frozen=True)
class _Fit:
    """Rows, which of them are deleted, the unknowns, and of each row its residual once it is
    deleted and that one's standard error."""

    rows: _Rows
    deleted: frozenset[int]
    solution: _Floats
    residuals: _Floats
    errors: _Floats
    is_cut_off: bool = False


def _fit(rows: _Rows, deleted: frozenset[int]) -> _Fit:
    sigmas = rows.sigmas
    kept = np.ones(len(sigmas), dtype=bool)
    kept[[*deleted, *rows.not_judged(deleted)]] = False
    design, values = rows.design[kept] / sigmas[kept, None], rows.values[kept] / sigmas[kept]
    inverse = np.linalg.pinv(design.T @ design, hermitian=True)
    solution = inverse @ (design.T @ values)
    plain = rows.values - rows.design @ solution
    variances = np.einsum("ri,ij,rj->r", rows.design, inverse, rows.design, optimize=True)
    # of a row that took part: what it would be without it (Sherman and Morrison)
    left = np.maximum(1 - variances / sigmas**2, 1e-9)
    residuals = np.where(kept, plain / left, plain)
    errors = np.sqrt(np.where(kept, sigmas**2 / left, sigmas**2 + variances))
    return _Fit(rows, deleted, solution, _slowness(rows, residuals), errors)


def _slowness(rows: _Rows, residuals: _Floats) -> _Floats:
    """Positive where slower: a prior row reads 0 − node_i."""
    count = len(rows.pairs)
    return np.concatenate([residuals[:count], -residuals[count:]])


def _select(rows: _Rows) -> _Fit:
    """Find the bad rows, and the spread of the sound ones, in turn."""
    fit = _delete_rows(rows)
    for _ in range(_ROUNDS_OF_FIT - 1):
        if not _widen(rows, fit):
            break
        fit = _delete_rows(rows)
    return fit


def _delete_rows(rows: _Rows) -> _Fit:
    count = len(rows.pairs)
    most_links, most_nodes = max(1, count // 3), max(1, rows.nodes // 2)
    critical, deleted = rows.critical(), frozenset[int]()
    fit = _fit(rows, deleted)
    while True:
        ratios = fit.residuals / fit.errors
        ratios[[*deleted, *rows.not_judged(deleted)]] = -math.inf
        worst = int(np.argmax(ratios))
        if ratios[worst] <= critical:
            return fit
        deleted |= {worst}
        fit = _take_back(_fit(rows, deleted), critical)
        if worst not in fit.deleted:
            return fit
        deleted = fit.deleted
        links = sum(row < count for row in deleted)
        if links > most_links or len(deleted) - links > most_nodes:
            return _Fit(rows, deleted, fit.solution, fit.residuals, fit.errors, is_cut_off=True)


def _take_back(fit: _Fit, critical: float) -> _Fit:
    """Put deleted rows back that those deleted after them explain."""
    while True:
        not_judged = fit.deleted.intersection(fit.rows.not_judged(fit.deleted))
        if not_judged:
            fit = _fit(fit.rows, fit.deleted - not_judged)
        if not fit.deleted:
            return fit
        least = min(fit.deleted, key=lambda row: float(fit.residuals[row] / fit.errors[row]))
        if fit.residuals[least] / fit.errors[least] > critical:
            return fit
        fit = _fit(fit.rows, fit.deleted - {least})


def _widen(rows: _Rows, fit: _Fit) -> bool:
    """Raise the spreads to what the rows that are left show. Returns whether that changed
    anything."""
    if rows.nodes < _NODES_FOR_SPREAD:
        return False
    count = len(rows.pairs)
    plain = rows.values - rows.design @ fit.solution
    left_out = fit.deleted.union(rows.not_judged(fit.deleted))
    sound = [row for row in range(count) if row not in left_out]
    seen = _MAD_TO_SIGMA * float(np.median(np.abs(plain[sound])))
    repeat = float(np.median(rows.repeat_variances))
    link_spread = max(LINK_SPREAD, math.sqrt(max(0.0, seen**2 - repeat)))
    nodes = np.array(
        [fit.solution[1 + i] for i in range(rows.nodes) if count + i not in fit.deleted]
    )
    node_spread = max(
        NODE_SPREAD, _MAD_TO_SIGMA * float(np.median(np.abs(nodes - np.median(nodes))))
    )
    changed = link_spread > rows.link_spread * 1.01 or node_spread > rows.node_spread * 1.01
    if link_spread > LINK_SPREAD:
        rows.degrees = max(1.0, _MAD_EFFICIENCY * (len(sound) - rows.nodes))
    rows.link_spread, rows.node_spread = link_spread, node_spread
    return changed


def _effects(fit: _Fit) -> tuple[tuple[Effect, ...], tuple[Effect, ...]]:
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


def _judge(fit: _Fit, once: frozenset[Pair]) -> Judgement:
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


def _three_nodes(fit: _Fit, once: frozenset[Pair]) -> Judgement:
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
    fit: _Fit,
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


def _pairs_of(fit: _Fit, nodes: tuple[int, ...]) -> list[Pair]:
    """Pairs that hold these nodes: of a link its pair, of a node all of its pairs."""
    return [pair for pair in fit.rows.pairs if set(nodes) <= set(pair)]


def _too_fast(fit: _Fit, bad: set[tuple[int, ...]]) -> list[Pair]:
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
