"""What ranks wait for each other in the exchanges of each step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from torchscale.analysis.diagnosis.signals import Matrix
from torchscale.schema.launch.steps import StepSample
from torchscale.util.optional import complete


@dataclass(frozen=True)
class PairedWaits:
    """What ranks waited for within the phases of a step, by the moments at which each of them
    called each collective; seconds, a row a rank and a column a step.

    Attributes:
        wait: For ranks that called it later.
        transfer: Blocked once all had.
        blame: The others' waiting for this rank.
        complete: Whether all collectives of a step are known, by step.
        includes_sync: Whether the exchanges of gradients and buffers are among them.
    """

    wait: Matrix
    transfer: Matrix
    blame: Matrix
    complete: NDArray[np.bool_]
    includes_sync: bool = False


def exchange_waits(
    ranks: Sequence[Sequence[StepSample]], paired: PairedWaits | None
) -> PairedWaits:
    """Of a user's script, where arrivals at collectives were seen, or of the exchanges of a
    launch."""
    return _own_waits(ranks) or _by_exchange(ranks, paired)


def of_steps(
    ranks: Sequence[Sequence[StepSample]], read: Callable[[StepSample], float | None]
) -> Matrix:
    """A figure of each rank and step; 0 where it is missing."""
    return np.array([[read(step) or 0.0 for step in steps] for steps in ranks])


def _own_waits(ranks: Sequence[Sequence[StepSample]]) -> PairedWaits | None:
    """Of a user's script, where arrivals at collectives were seen; ``None`` for other launches."""
    own = complete(step.own for steps in ranks for step in steps)
    if own is None:
        return None
    wait, transfer, blame = (
        np.array([getattr(step, name) or 0.0 for step in own]).reshape(len(ranks), -1)
        for name in ("wait", "transfer", "blame")
    )
    return PairedWaits(wait, transfer, blame, np.ones(wait.shape[1], np.bool_))


def _by_exchange(ranks: Sequence[Sequence[StepSample]], paired: PairedWaits | None) -> PairedWaits:
    exchanges = {
        name: of_steps(ranks, attrgetter(name))
        for name in ("exposed_sync", "buffer_sync", "blocked")
    }
    if paired is not None and paired.includes_sync:
        exchanges = {"blocked": np.sum(list(exchanges.values()), axis=0)}
    every = [
        _where_paired(_by_least(seconds), paired)
        if name == "blocked" and paired is not None
        else _by_least(seconds)
        for name, seconds in exchanges.items()
    ]
    wait, transfer, blame = (
        np.sum([getattr(parts, name) for parts in every], axis=0)
        for name in ("wait", "transfer", "blame")
    )
    return PairedWaits(wait, transfer, blame, every[0].complete)


def _by_least(synchronization: Matrix) -> PairedWaits:
    """One exchange in each step, by rank and step: who waited least came last."""
    least = synchronization.min(axis=0)
    waited = synchronization - least
    blame = np.zeros_like(waited)
    blame[synchronization.argmin(axis=0), np.arange(len(least))] = waited.sum(axis=0)
    known = np.ones(len(least), dtype=np.bool_)
    return PairedWaits(waited, np.broadcast_to(least, waited.shape), blame, known)


def _where_paired(totals: PairedWaits, paired: PairedWaits) -> PairedWaits:
    """The pairs in the steps for which all are known, which may be the first ones alone."""
    count = len(totals.complete)
    known = np.zeros(count, dtype=np.bool_)
    known[: len(paired.complete)] = paired.complete[:count]

    def chosen(name: str) -> Matrix:
        values = np.array(getattr(totals, name))
        values[:, known] = getattr(paired, name)[:, paired.complete]
        return values

    return PairedWaits(chosen("wait"), chosen("transfer"), chosen("blame"), known)
