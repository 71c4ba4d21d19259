"""From the steps of a watched job to the signals that the diagnosis judges."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from torchscale.analysis.diagnosis.shared import EXPLAINED_SHARE
from torchscale.analysis.diagnosis.signals import (
    MIN_COMPARED,
    Matrix,
    Pauses,
    SignalOrigin,
    Signals,
    SignalSeries,
    Windows,
)
from torchscale.analysis.diagnosis.step_windows import (
    LONG_STEP_FACTOR,
    MAX_WINDOWS,
    WINDOW_STEPS,
    rare_long_steps,
)
from torchscale.analysis.exchanges.steps import JobSteps, WaitsBy

_BATCHES = 48
"""Samples of each signal: enough for an interval and for quarters of a run, and each a mean over
many steps."""
_TO_DEVIATION = 1.4826
"""From the median absolute deviation to the standard deviation of normal noise."""
_PAUSE_DEVIATIONS = 6.0
"""Beyond which no noise of that width reaches a step."""
_CATCHES_UP = 16
"""Steps before and after a long one within which a host that runs ahead of its device makes up for
it: the launches that a device's queue takes, about a thousand, are a few steps of most models."""
_COMPARED_WITH = 64
"""Steps before and after a long one whose mean is the pace there."""
_BUBBLE_SHARE = 0.5
"""Of the time that ranks are blocked: beyond it, sends and receives are what they wait for, and
they are stages of a pipeline."""


def job_signals(
    steps: JobSteps,
    ranks: tuple[int, ...],
    *,
    on_device: bool = False,
    hosts: tuple[str, ...] | None = None,
    per_column: int = 1,
    stages: tuple[tuple[int, ...], ...] | None = None,
    sends: bool = False,
) -> Signals:
    """What the rules judge of these steps.

    Args:
        steps: Of a stretch of the job.
        ranks: Global rank of each row.
        on_device: Whether the work runs on a device beside the host.
        hosts: Host of each rank.
        per_column: Steps that each column is the mean of.
        stages: Rows of the ranks of each stage of a pipeline.
        sends: Whether ranks send and receive on their devices, where waits for that are not known.
    """
    edges = np.linspace(0, len(steps), min(_BATCHES, len(steps)) + 1).round().astype(int)
    sizes = np.diff(edges).astype(np.float64)

    def by_batch(values: Matrix) -> Matrix:
        return np.asarray(np.add.reduceat(values, edges[:-1], axis=-1) / sizes)

    waited = steps.wait.sum() + steps.transfer.sum()
    bubble = steps.bubble.sum()
    signals = Signals(
        origin=SignalOrigin.JOB,
        ranks=ranks,
        step_seconds=float(steps.wall.mean()),
        steps=len(steps) * per_column,
        weights=sizes,
        pauses=_pauses(steps, on_device=on_device),
        on_device=on_device,
        staged=sends or bool(bubble > _BUBBLE_SHARE * (bubble + waited)),
        stages=stages,
        micro_batches=max(1, round(float(np.median(steps.passes)))),
        why_no_stages="which ranks share a stage of the pipeline is not recorded",
    )
    if steps.data.any():
        signals = replace(signals, data_wait=by_batch(steps.data))
    if steps.waits_by is WaitsBy.CALLS:
        signals = replace(
            signals, compute=block_medians(steps.calm, edges), windows=_windows(steps)
        )
    elif steps.waits_by is WaitsBy.LENGTHS and waited and not sends:
        signals = replace(
            signals,
            origin=SignalOrigin.LENGTHS,
            hosts=hosts,
            estimated_share=float(steps.estimated.sum() / max(steps.wait.sum(), 1e-12)),
            compute=by_batch(steps.calm),
            windows=_windows(steps),
        )
    if signals.compute is None or len(ranks) < 2 or not waited:
        return signals
    signals = replace(signals, wait=by_batch(steps.wait), blame=_shares(steps.blame.sum(axis=1)))
    if on_device:
        return signals  # how much of the transfers compute hides is not known
    signals = replace(signals, transfer=by_batch(steps.transfer).mean(axis=0))
    if len(steps) >= MIN_COMPARED:
        exposed = steps.transfer.mean(axis=0)
        signals = replace(
            signals,
            exposed_p50=float(np.quantile(exposed, 0.5)),
            exposed_p95=float(np.quantile(exposed, 0.95)),
        )
    return signals


def _windows(steps: JobSteps) -> Windows | None:
    """Windows of the steps by medians: on a node that others use too, a step now and then is
    interrupted, and says nothing of the rank. By lengths the means: a host that runs ahead of its
    device issues many steps at once, and one that reads a loss now and then is late at those steps
    only."""
    if len(steps) < MIN_COMPARED:
        return None
    count = min(MAX_WINDOWS, len(steps) // WINDOW_STEPS)
    edges = np.linspace(0, len(steps), count + 1).round().astype(int)
    sizes = np.diff(edges).astype(np.float64)
    wall = steps.wall.mean(axis=0)
    if steps.waits_by is WaitsBy.LENGTHS:
        means = (np.add.reduceat(values, edges[:-1], axis=-1) for values in (wall, steps.calm))
        return Windows(sizes, *(np.asarray(values / sizes) for values in means))
    return Windows(
        sizes,
        block_medians(wall[None], edges)[0],
        block_medians(steps.calm, edges),
        block_medians(steps.quiet, edges),
    )


def block_medians(values: Matrix, edges: NDArray[np.int64]) -> Matrix:
    """Of each row between edges: what single long steps do not move."""
    parts = [np.median(values[:, begin:end], axis=1) for begin, end in pairwise(edges)]
    return np.stack(parts, axis=1)


def _pauses(steps: JobSteps, *, on_device: bool) -> Pauses | None:
    """Rare long steps, where they are longer than the scatter of a busy host makes them."""
    if len(steps) < MIN_COMPARED:
        return None
    seconds = steps.host_calm + steps.data
    typical = np.median(seconds, axis=1, keepdims=True)
    scatter = _TO_DEVIATION * np.median(np.abs(seconds - typical), axis=1, keepdims=True)
    floor = np.maximum(LONG_STEP_FACTOR * typical, typical + _PAUSE_DEVIATIONS * scatter)
    long = seconds > floor
    if on_device:
        known = steps.data + steps.collection + steps.saving + steps.evaluating
        is_known = known >= EXPLAINED_SHARE * (seconds - typical)
        long &= is_known | ~_made_up(seconds, long, floor - typical)
    return rare_long_steps(np.where(long, seconds, typical), _collections(steps))


def _made_up(seconds: Matrix, long: NDArray[np.bool_], least: Matrix) -> NDArray[np.bool_]:
    """Which ``long`` steps the shorter ones just before and after make up for, to less than
    ``least`` seconds: a host that waited for its device, as where a loss is read, issues other
    steps at once, so that the device lost nothing. Steps are compared with the mean around, at which
    the device goes on; a job may become slower."""
    found = np.zeros_like(long)
    around = np.arange(-_COMPARED_WITH, _COMPARED_WITH + 1)
    for row, mine in enumerate(long):
        places = np.flatnonzero(mine)
        padded = np.pad(seconds[row], _COMPARED_WITH, constant_values=np.nan)
        values = padded[places[:, None] + _COMPARED_WITH + around]
        beyond = np.nan_to_num(values - np.nanmean(values, axis=1, keepdims=True))
        before, after = beyond[:, :_COMPARED_WITH][:, ::-1], beyond[:, _COMPARED_WITH + 1 :]
        lost = beyond[:, _COMPARED_WITH]
        for side in (before, after):
            made_up = np.cumsum(side[:, :_CATCHES_UP], axis=1).min(axis=1)
            lost += np.minimum(made_up, 0.0)
        found[row, places] = lost <= least[row]
    return found


def _collections(steps: JobSteps) -> float:
    """Garbage collection of the rank with most; seconds a step."""
    return float(steps.collection.mean(axis=1).max())


def _shares(seconds: SignalSeries) -> SignalSeries:
    total = float(seconds.sum())
    if total <= 0:
        return seconds
    return np.asarray(seconds / total)
