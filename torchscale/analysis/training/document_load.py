"""What the lengths of samples explain of the compute of each rank and step: work that the data gives
it, and no slowness of its device."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from torchscale.analysis.diagnosis.signals import Matrix
from torchscale.schema.launch.steps import StepSample
from torchscale.util.optional import complete

_LEAST_LOADS = 3
"""Different loads that some rank must have had, for a slope that is not one measurement alone."""


class LengthEffect:
    """How compute follows from the tokens that samples are padded to, and from the pairs of tokens
    that attention computes.

    The rates are found from how each rank's own steps differ, so that a slow device cannot pass for
    long samples: it is slow in its short steps too. Steps with one load count by their median, which
    no pause moves.
    """

    def __init__(self, ranks: Sequence[Sequence[StepSample]]) -> None:
        """
        Raises:
            ValueError: a step has no documents.
        """
        documents = complete(step.documents for steps in ranks for step in steps)
        if documents is None:
            raise ValueError("steps without documents")
        shape = (len(ranks), -1)
        self._loads = np.stack(
            [
                np.array([getattr(one, name) for one in documents], dtype=np.float64).reshape(shape)
                for name in ("computed_tokens_per_rank", "computed_pairs_per_rank")
            ],
            axis=-1,
        )

    def explained(self, seconds: Matrix) -> Matrix:
        """What the load of each rank and step takes beyond the mean load; negative for a smaller one.
        Zero where loads do not differ enough to tell. Rows are ranks."""
        inside, times, most = [], [], 0
        for row, loads in zip(seconds, self._loads, strict=True):
            kinds, place = np.unique(loads, axis=0, return_inverse=True)
            place = place.reshape(-1)
            medians = np.array([np.median(row[place == kind]) for kind in range(len(kinds))])
            inside.append(kinds - kinds.mean(axis=0))
            times.append(medians - medians.mean())
            most = max(most, len(kinds))
        rates = np.zeros(2)
        if most >= _LEAST_LOADS:
            rates = _rates(np.concatenate(inside), np.concatenate(times))
        beyond = self._loads - self._loads.mean(axis=(0, 1))
        return np.asarray(beyond @ rates)


def _rates(loads: NDArray[np.float64], seconds: NDArray[np.float64]) -> NDArray[np.float64]:
    """Seconds of a token and of a pair, by least squares; none is below 0."""
    scale = np.maximum(np.abs(loads).max(axis=0), 1e-12)
    for columns in ([0, 1], [0], [1]):
        chosen = loads[:, columns] / scale[columns]
        found = np.linalg.lstsq(chosen, seconds, rcond=1e-6)[0]
        if (found >= 0).all():
            rates = np.zeros(2)
            rates[columns] = found / scale[columns]
            return rates
    return np.zeros(2)


def length_effect(ranks: Sequence[Sequence[StepSample]]) -> LengthEffect | None:
    """``None`` where samples have one length."""
    if any(step.documents is None for steps in ranks for step in steps):
        return None
    return LengthEffect(ranks)


def waiting_for_length(explained: Matrix) -> float:
    """Seconds a step by which the rank with most load exceeds the mean of all: ranks wait for it.
    Rows are ranks."""
    return float((explained.max(axis=0) - explained.mean(axis=0)).mean())
