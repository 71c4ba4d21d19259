"""How much longer each of very many ranks computes in each step than ranks of equal work, for a
picture of ranks by steps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from torchscale.analysis.diagnosis.signals import Matrix, Signals
from torchscale.schema.profiles.analysis import StepExcess

FEW_RANKS = 32
"""So many ranks are shown one by one elsewhere."""
_MOST_RANKS, _MOST_COLUMNS = 64, 100
"""What a page holds, and a file of some hundred kilobytes."""


def step_excess(signals: Signals, numbers: Sequence[int]) -> StepExcess | None:
    """The ranks that differ most, and others evenly over all; of several steps in a column the one
    that differs most. ``None`` for few ranks, or where compute by step is not known.

    Args:
        signals: Of all ranks.
        numbers: The steps' numbers.
    """
    compute = signals.compute
    if compute is None or len(signals.ranks) <= FEW_RANKS or compute.shape[1] != len(numbers):
        return None
    excess = _excess(compute, signals.stages)
    edges = np.unique(np.linspace(0, len(numbers), _MOST_COLUMNS + 1).astype(np.int64))[:-1]
    most = np.maximum.reduceat(excess, edges, axis=1)
    chosen = _drawn(excess, most)
    return StepExcess(
        ranks=tuple(signals.ranks[row] for row in chosen),
        steps=tuple(numbers[edge] for edge in edges),
        percent=tuple(tuple(row) for row in (most[chosen] * 100).round().astype(int).tolist()),
    )


def _excess(compute: Matrix, stages: Sequence[Sequence[int]] | None) -> Matrix:
    """Share by which a rank's step is longer than the median of ranks of equal work."""
    excess = np.zeros_like(compute)
    for rows in stages or (range(len(compute)),):
        mine = compute[list(rows)]
        typical = np.median(mine, axis=0)
        excess[list(rows)] = np.divide(
            mine - typical, typical, out=np.zeros_like(mine), where=typical > 0
        )
    return excess


def _drawn(excess: Matrix, most: Matrix) -> NDArray[np.int64]:
    """Rows: half by their mean, a quarter by their worst step, a quarter evenly."""
    rows = len(excess)
    even = np.linspace(0, rows - 1, _MOST_RANKS // 4).round().astype(np.int64)
    by_mean = np.argsort(-excess.mean(axis=1), kind="stable")[: _MOST_RANKS // 2]
    by_worst = np.argsort(-most.max(axis=1), kind="stable")[: _MOST_RANKS // 4]
    return np.unique(np.concatenate([even, by_mean, by_worst]))
