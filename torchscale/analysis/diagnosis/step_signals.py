"""From the steps of all ranks to signals: one way for launches, own scripts, watched jobs and
recordings."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from torchscale.analysis.diagnosis.shared import CATCHES_UP, COMPARED_WITH, EXPLAINED_SHARE
from torchscale.analysis.diagnosis.signals import (
    MIN_COMPARED,
    Matrix,
    SignalOrigin,
    Signals,
    SignalSeries,
)
from torchscale.analysis.diagnosis.step_windows import (
    block_medians,
    long_floor,
    median_windows,
    rare_long_steps,
    step_windows,
)
from torchscale.analysis.exchanges.steps import JobSteps, WaitsBy

Edges = NDArray[np.int64]


def step_signals(
    table: JobSteps,
    ranks: tuple[int, ...],
    origin: SignalOrigin,
    edges: Edges | None = None,
    *,
    robust: bool = False,
    host_runs_ahead: bool = False,
) -> Signals:
    """What the steps tell; callers add what else they know.

    Args:
        table: Steps of all ranks. Where it knows no waits, ``own`` may hold some, and what a rank
            does by itself is not known.
        ranks: Global rank of each row.
        origin: Where the steps are from.
        edges: First step of each sample, and at last the number of steps; without them each step is
            a sample.
        robust: Whether levels are medians: on a node that others use too, a step now and then is
            interrupted, and says nothing of the rank.
        host_runs_ahead: Whether own times are those of a host whose device lags behind.
    """
    signals = Signals(
        origin=origin,
        ranks=ranks,
        step_seconds=float(table.wall.mean()),
        steps=len(table),
        weights=None if edges is None else np.diff(edges).astype(np.float64),
        data_wait=_means(table.data, edges),
        pauses=rare_long_steps(
            table.host_calm + table.data,
            float(table.collection.mean(axis=1).max()),
            left_out=_made_up(table) if host_runs_ahead else None,
        ),
    )
    if table.waits_by is WaitsBy.NOTHING:
        return signals
    wall = table.wall.mean(axis=0)
    if robust and edges is not None:
        compute = block_medians(table.calm, edges)
        windows = median_windows(table.calm, wall, table.quiet)
    else:
        compute = _means(table.calm, edges)
        quiet = table.quiet if table.waits_by is WaitsBy.CALLS else None
        windows = step_windows(table.calm, wall, quiet)
    signals = replace(signals, compute=compute, windows=windows)
    if len(ranks) < 2:
        return signals
    signals = replace(
        signals, wait=_means(table.wait, edges), blame=_shares(table.blame.sum(axis=1))
    )
    if table.waits_by is WaitsBy.LENGTHS or host_runs_ahead:
        return signals  # how much of the transfers compute hides is not known
    return with_transfer(signals, table.transfer.mean(axis=0), edges)


def with_transfer(signals: Signals, transfer: SignalSeries, edges: Edges | None = None) -> Signals:
    """With the exposed transfer of each step, mean over ranks."""
    signals = replace(signals, transfer=_means(transfer, edges))
    if len(transfer) < MIN_COMPARED:
        return signals
    p50, p95 = (float(quantile) for quantile in np.quantile(transfer, (0.5, 0.95)))
    return replace(signals, exposed_p50=p50, exposed_p95=p95)


def _means(values: Matrix, edges: Edges | None) -> Matrix:
    """Mean of each sample."""
    return values if edges is None else batch_means(values, edges)


def batch_means(values: Matrix, edges: Edges) -> Matrix:
    """Means between edges."""
    return np.asarray(np.add.reduceat(values, edges[:-1], axis=-1) / np.diff(edges))


def _shares(seconds: SignalSeries) -> SignalSeries:
    total = float(seconds.sum())
    return np.asarray(seconds / total) if total > 0 else seconds


def _made_up(table: JobSteps) -> NDArray[np.bool_]:
    """Which long steps without a named cause the shorter ones just before and after make up for:
    a host that waited for its device, as where a loss is read, issues other steps at once, so that
    the device lost nothing. Steps are compared with the mean around, at which the device goes on; a
    job may become slower."""
    seconds = table.host_calm + table.data
    floor, typical = long_floor(seconds), np.median(seconds, axis=1, keepdims=True)
    known = table.data + table.collection + table.saving + table.evaluating
    unnamed = (seconds > floor) & (known < EXPLAINED_SHARE * (seconds - typical))
    found = np.zeros_like(unnamed)
    around = np.arange(-COMPARED_WITH, COMPARED_WITH + 1)
    for row, mine in enumerate(unnamed):
        places = np.flatnonzero(mine)
        padded = np.pad(seconds[row], COMPARED_WITH, constant_values=np.nan)
        values = padded[places[:, None] + COMPARED_WITH + around]
        beyond = np.nan_to_num(values - np.nanmean(values, axis=1, keepdims=True))
        before, after = beyond[:, :COMPARED_WITH][:, ::-1], beyond[:, COMPARED_WITH + 1 :]
        lost = beyond[:, COMPARED_WITH]
        for side in (before, after):
            made_up = np.cumsum(side[:, :CATCHES_UP], axis=1).min(axis=1)
            lost += np.minimum(made_up, 0.0)
        found[row, places] = lost <= floor[row] - typical[row]
    return found
