"""What the experts on each rank compute, and a rank's compute without their difference."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from torchscale.analysis.diagnosis.signals import ExpertLoad, Matrix
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.exports.experts import HotExpert
from torchscale.schema.launch.experts import ExpertUse
from torchscale.schema.launch.signals import SignalDigest
from torchscale.schema.launch.steps import StepSample
from torchscale.schema.launch.training import TrainingResult
from torchscale.util.optional import complete

_NAMED = 3
"""Experts of a rank that are kept: what a finding names."""


def beyond_the_mean(seconds: Matrix) -> Matrix:
    """What the experts of each rank take beyond the mean of all ranks, whatever their tokens. Rows
    are ranks. Not by tokens: experts also take time that does not depend on them, and a rank with
    few tokens would then look slow."""
    return np.asarray(seconds - seconds.mean(axis=0))


def steps_beyond_the_mean(
    ranks: Sequence[Sequence[StepSample]], *, forward_only: bool = False
) -> Matrix | None:
    """:func:`beyond_the_mean` of every step; ``None`` for a model without experts."""
    experts = complete(step.experts for steps in ranks for step in steps)
    if experts is None:
        return None
    name = "forward_seconds" if forward_only else "seconds"
    seconds = np.array([getattr(step, name) for step in experts]).reshape(len(ranks), -1)
    return beyond_the_mean(seconds)


def expert_load(
    result: TrainingResult, cell: TrainingCell | None, digest: SignalDigest
) -> ExpertLoad | None:
    """The load of each rank; ``None`` where experts are not spread over ranks."""
    use = next((rank.experts for rank in result.ranks if rank.experts is not None), None)
    tokens, seconds = digest.expert_tokens_per_rank, digest.expert_seconds
    if cell is None or use is None or use.degree == 1 or tokens is None or seconds is None:
        return None
    if use.degree != cell.degrees.expert:
        raise ValueError(
            f"experts over {use.degree} ranks, where the cell asks for {cell.degrees.expert}"
        )
    places = np.array([cell.degrees.coordinate(rank.rank).expert for rank in result.ranks])
    by_layer = np.array(use.tokens_per_expert, dtype=np.float64)
    loads = by_layer.reshape(len(by_layer), use.degree, -1).sum(axis=2)
    groups = len(places) // use.degree
    return ExpertLoad(
        tokens=np.array(tokens),
        seconds=np.array(seconds),
        uneven_tokens=_uneven(loads)[places] / (use.steps * groups),
        hottest=tuple(_hottest(use, by_layer, int(place)) for place in places),
    )


def _uneven(loads: NDArray[np.float64]) -> NDArray[np.float64]:
    """Per place, the tokens that it has beyond the mean in the layers in which it has most.
    ``loads``: by layer and place."""
    uneven = np.zeros(loads.shape[1])
    np.add.at(uneven, loads.argmax(axis=1), loads.max(axis=1) - loads.mean(axis=1))
    return uneven


def _hottest(use: ExpertUse, by_layer: NDArray[np.float64], place: int) -> tuple[HotExpert, ...]:
    each = use.experts // use.degree
    first = place * each
    even = np.maximum(by_layer.mean(axis=1, keepdims=True), 1e-12)
    shares = (by_layer / even)[:, first : first + each]
    order = np.argsort(-shares, axis=None, kind="stable")[:_NAMED]
    return tuple(
        HotExpert(use.layers[row], first + column, float(shares[row, column]))
        for row, column in (divmod(int(flat), each) for flat in order)
    )
