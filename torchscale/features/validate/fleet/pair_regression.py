"""The regression over the times of all pairs: its rows, and which of them are bad.

The model of a pair's time is log t_ij = μ + node_i + node_j + link_ij + noise. As it stands it has
more unknowns than pairs, so it is fitted as most nodes and links are: nodes of one kind differ by a
small spread (a prior row 0 = node_i for each node), and links do not differ. A bad link is then an
outlier among the rows of pairs, a bad node one among the rows of nodes: the same test finds both
and weighs them against each other. Rows are deleted one by one, the largest studentized deletion
residual first, and are taken back where the others explain them (Hadi and Simonoff 1993 for
outliers that mask each other; Henderson's mixed-model equations for the prior rows). Only slowness
is looked for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from torchscale.analysis.stats.levels import scatter
from torchscale.analysis.stats.series import student_t_quantile

FAMILY_ERROR = 0.01
"""Probability that a fleet without any bad node or link is blamed: Bonferroni's correction over all
nodes and links."""
NODE_SPREAD = 0.02
"""Spread between sound nodes (standard deviation of the logarithm), the least that is assumed; from
eight nodes on the fleet may show more."""
LINK_SPREAD = 0.01
"""Spread between sound links, the least that is assumed beside the noise of the repeats: some links
have one more switch."""
_MEDIAN_VARIANCE = math.pi / 2
"""Variance of the median of normal values against their mean's, for many values; a little less for
few. The times of a collective have a heavy tail, which the mean follows and the median does not."""
_NODES_FOR_SPREAD = 8
"""A median deviation of fewer nodes says little, and one bad node may be an eighth of them."""
_MAD_EFFICIENCY = 0.37
"""Efficiency of the median deviation of normal values against their standard deviation (Huber
1981)."""
_ROUNDS_OF_FIT = 3
"""Selection and spread in turn; the spread does not move after the second."""
_Floats = npt.NDArray[np.float64]
Pair = tuple[int, int]
"""Two nodes, the lower one first."""


class PairRows:
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
class PairFit:
    """Rows, which of them are deleted, the unknowns, and of each row its residual once it is
    deleted and that one's standard error."""

    rows: PairRows
    deleted: frozenset[int]
    solution: _Floats
    residuals: _Floats
    errors: _Floats
    is_cut_off: bool = False


def _fit(rows: PairRows, deleted: frozenset[int]) -> PairFit:
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
    return PairFit(rows, deleted, solution, _slowness(rows, residuals), errors)


def _slowness(rows: PairRows, residuals: _Floats) -> _Floats:
    """Positive where slower: a prior row reads 0 − node_i."""
    count = len(rows.pairs)
    return np.concatenate([residuals[:count], -residuals[count:]])


def fit_pairs(rows: PairRows) -> PairFit:
    """Find the bad rows, and the spread of the sound ones, in turn."""
    fit = _delete_rows(rows)
    for _ in range(_ROUNDS_OF_FIT - 1):
        if not _widen(rows, fit):
            break
        fit = _delete_rows(rows)
    return fit


def _delete_rows(rows: PairRows) -> PairFit:
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
            return PairFit(rows, deleted, fit.solution, fit.residuals, fit.errors, is_cut_off=True)


def _take_back(fit: PairFit, critical: float) -> PairFit:
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


def _widen(rows: PairRows, fit: PairFit) -> bool:
    """Raise the spreads to what the rows that are left show. Returns whether that changed
    anything."""
    if rows.nodes < _NODES_FOR_SPREAD:
        return False
    count = len(rows.pairs)
    plain = rows.values - rows.design @ fit.solution
    left_out = fit.deleted.union(rows.not_judged(fit.deleted))
    sound = [row for row in range(count) if row not in left_out]
    seen = float(scatter(plain[sound]))
    repeat = float(np.median(rows.repeat_variances))
    link_spread = max(LINK_SPREAD, math.sqrt(max(0.0, seen**2 - repeat)))
    nodes = np.array(
        [fit.solution[1 + i] for i in range(rows.nodes) if count + i not in fit.deleted]
    )
    node_spread = max(NODE_SPREAD, float(scatter(nodes - np.median(nodes))))
    changed = link_spread > rows.link_spread * 1.01 or node_spread > rows.node_spread * 1.01
    if link_spread > LINK_SPREAD:
        rows.degrees = max(1.0, _MAD_EFFICIENCY * (len(sound) - rows.nodes))
    rows.link_spread, rows.node_spread = link_spread, node_spread
    return changed
