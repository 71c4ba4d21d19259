"""The steps of a job whose collectives are kernels of a device: who waited, by their lengths."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from torchscale.analysis.exchanges.events import Calls, RankEvents, Times
from torchscale.analysis.exchanges.steps import Matrix, StepTimes, Waited, WaitsBy, host_steps
from torchscale.features.watch.analysis.lengths import LengthWaits

_NS = 1e-9
_PASSED_ON = 2
"""Times that lateness goes from one process group to another within a step: groups of tensors,
shards and replicas are three."""


def device_step_times(
    ranks: Sequence[RankEvents],
    found: Sequence[LengthWaits],
    edges: Sequence[Times],
    first: int,
) -> tuple[StepTimes, tuple[Waited, ...]]:
    """The steps between ``edges``, and all that ranks waited for. A collective belongs to the step
    in which its rank called it.

    Args:
        ranks, edges, first: Arguments as for :func:`~torchscale.analysis.exchanges.steps.step_times`.
        found: What each rank waited in its calls, by their lengths.
    """
    nobody = [_not_blocked()] * len(ranks)
    table = host_steps(ranks, nobody, edges)
    _add_lengths(table, [rank.calls for rank in ranks], found, edges)
    waited = []
    for rank, mine in zip(ranks, found, strict=True):
        known = mine.last >= 0
        start = rank.calls.time[known]
        until = start + mine.wait[known]
        end = until + mine.length[known]
        what = rank.calls.what[known]
        waited.append(Waited(start, end, until, mine.last[known], what))
    steps = StepTimes(first=first, end_ns=edges[0][1:], waits_by=WaitsBy.LENGTHS, **table)
    return steps, tuple(waited)


def _add_lengths(
    table: dict[str, Matrix],
    calls: Sequence[Calls],
    found: Sequence[LengthWaits],
    edges: Sequence[Times],
) -> None:
    """Add what ranks waited in each step, and for whom. Waits for one rank in several process groups
    count once, by the group in which they are longest: their kernels may run at once."""
    count = table["wait"].shape[1]
    keys, seconds, seen = [], [], []
    for row, (called, mine, edge) in enumerate(zip(calls, found, edges, strict=True)):
        step = np.searchsorted(edge, called.time, side="right") - 1
        known = (mine.last >= 0) & (step >= 0) & (step < count)
        step = step[known]
        np.add.at(table["transfer"][row], step, mine.length[known] * _NS)
        same = np.full(len(step), row)
        keys.append(np.stack([step, same, mine.last[known], called.group[known]]))
        seconds.append(mine.wait[known] * _NS)
        seen.append(mine.seen[known] * _NS)
    waits, place = np.unique(np.concatenate(keys, axis=1), axis=1, return_inverse=True)
    place = np.ravel(place)
    in_group, of_it_seen = (
        np.bincount(place, weights=np.concatenate(values), minlength=waits.shape[1])
        for values in (seconds, seen)
    )
    longest_first = np.lexsort([-in_group, waits[2], waits[1], waits[0]])
    _, chosen = np.unique(waits[:3, longest_first], axis=1, return_index=True)
    chosen = longest_first[chosen]
    chosen = chosen[waits[1, chosen] != waits[2, chosen]]
    waits, longest = waits[:, chosen], in_group[chosen]
    np.add.at(table["wait"], (waits[1], waits[0]), longest)
    np.add.at(table["estimated"], (waits[1], waits[0]), longest - of_it_seen[chosen])
    _add_device_blame(table["blame"], waits, longest)


def _add_device_blame(
    blame: Matrix, waits: NDArray[np.int64], seconds: NDArray[np.float64]
) -> None:
    """Add each wait to the blame of the rank that it was for. What that rank itself waited in
    another process group of the step made it late, and is passed on to the rank that it waited for
    most: where parameters are sharded in some groups and replicated in others, the ranks of one
    shard make those of all others late.

    Args:
        blame: By rank and step.
        waits: Of each wait: its step, the rank that waited, the one that was last, the group.
        seconds: How long.
    """
    step, waiting, last, group = waits
    by_length = np.lexsort([-seconds, waiting, step])
    _, first = np.unique(waits[:2, by_length], axis=1, return_index=True)
    longest = np.full((blame.shape[0], blame.shape[1]), -1)
    longest[waiting[by_length[first]], step[by_length[first]]] = by_length[first]
    left, late, within = seconds, last, group
    for _ in range(_PASSED_ON):
        place = longest[late, step]
        is_other = (place >= 0) & (group[place] != within) & (last[place] != waiting)
        passed = np.where(is_other, np.minimum(left, seconds[place]), 0.0)
        np.add.at(blame, (late, step), left - passed)
        left, late, within = passed, last[place], group[place]
    np.add.at(blame, (late, step), left)


def _not_blocked() -> Waited:
    nothing = np.zeros(0, np.int64)
    return Waited(nothing, nothing, nothing, nothing, nothing)
