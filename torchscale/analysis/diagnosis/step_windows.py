"""Splits the steps of each rank into rare long ones (pauses) and windows of the others."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from torchscale.analysis.diagnosis.signals import (
    MIN_COMPARED,
    Matrix,
    Pauses,
    SignalSeries,
    Windows,
)
from torchscale.analysis.stats.levels import scatter
from torchscale.util.optional import optional

LONG_STEP_FACTOR = 1.5
"""A step this many times as long as its rank's median is a pause. Chosen: beyond the scatter of
ordinary steps, and low enough to see an interruption of half a step. Injected pauses of 200 ms
every 15 steps are found in 3 of 3 runs (docs/tested-on.md)."""
RARE_SHARE = 0.10
"""At most this share of steps are pauses; where more are long, long steps are how the rank works,
not interruptions."""
_PAUSE_DEVIATIONS = 6.0
"""Beyond which no noise of that width reaches a step."""
PAUSE_STEPS = 3
"""A pause ends within so many steps: what interrupts a rank (a collection, a checkpoint) falls into
one step or, where it runs beside training, a few. More long steps in a row are a rank that has
become slow."""


def long_floor(seconds: Matrix) -> Matrix:
    """From which on a step of each rank (rows) is long: 1.5 times its median, and beyond what a
    busy host makes its steps scatter."""
    typical = np.median(seconds, axis=1, keepdims=True)
    noise = scatter(seconds - typical, axis=1, keepdims=True)
    return np.asarray(np.maximum(LONG_STEP_FACTOR * typical, typical + _PAUSE_DEVIATIONS * noise))


def rare_long_steps(
    seconds: Matrix,
    collection_seconds: float | None = None,
    *,
    left_out: NDArray[np.bool_] | None = None,
) -> Pauses | None:
    """Pauses from the steps of each rank (rows); ``None`` for fewer than 20 steps, where nothing is
    rare.

    Args:
        seconds: Of each rank and step.
        collection_seconds: Python's garbage collection, per step, of the rank with most.
        left_out: Long steps that are no pauses.
    """
    if seconds.shape[1] < MIN_COMPARED:
        return None
    long = seconds > long_floor(seconds)
    if left_out is not None:
        long &= ~left_out
    paused = _short_and_rare(long)
    medians = np.median(seconds, axis=1, keepdims=True)
    excess = np.where(paused, seconds - medians, 0.0).mean(axis=1)
    return Pauses(
        tuple(int(count) for count in paused.sum(axis=1)),
        float(excess.max()),
        collection_seconds,
        tuple(float(value) for value in excess),
    )


MAX_WINDOWS = 200
"""Windows that are kept of a launch: an adaptive measurement of up to 400 steps has one for each
three steps, and one of two minutes a window for each 0.6 s, below the seconds for which a device
throttles; 1 KB of JSON a rank and series."""
WINDOW_STEPS = 3
"""The least steps of a window: a mean of three scatters by little more than half as much as a
step."""


def step_windows(
    compute: Matrix, wall: SignalSeries, quiet: Matrix | None = None
) -> Windows | None:
    """Windows of the steps of each rank (rows); ``None`` for fewer than 20 steps.

    Args:
        compute: Seconds of each rank and step.
        wall: Seconds of each step, all phases.
        quiet: What of ``compute`` no communication disturbs.
    """
    steps = compute.shape[1]
    if steps < MIN_COMPARED:
        return None
    edges = _window_edges(steps)
    kept = ~_short_and_rare(compute > LONG_STEP_FACTOR * np.median(compute, axis=1, keepdims=True))
    left = np.add.reduceat(kept, edges[:-1], axis=1, dtype=np.float64)
    sizes = np.diff(edges).astype(np.float64)

    def mean(values: Matrix) -> Matrix:
        sums = np.add.reduceat(np.where(kept, values, 0.0), edges[:-1], axis=1)
        # A window of pauses alone says nothing of the steps between them.
        return np.asarray(
            np.where(left > 0, sums / np.maximum(left, 1), np.median(values, axis=1, keepdims=True))
        )

    return Windows(
        sizes,
        np.asarray(np.add.reduceat(wall, edges[:-1]) / sizes),
        mean(compute),
        optional(mean, quiet),
    )


def median_windows(compute: Matrix, wall: SignalSeries, quiet: Matrix) -> Windows | None:
    """The same by medians."""
    steps = compute.shape[1]
    if steps < MIN_COMPARED:
        return None
    edges = _window_edges(steps)
    return Windows(
        np.diff(edges).astype(np.float64),
        block_medians(wall[None], edges)[0],
        block_medians(compute, edges),
        block_medians(quiet, edges),
    )


def block_medians(values: Matrix, edges: NDArray[np.int64]) -> Matrix:
    """Of each row between edges: what single long steps do not move."""
    parts = [np.median(values[:, begin:end], axis=1) for begin, end in pairwise(edges)]
    return np.stack(parts, axis=1)


def _window_edges(steps: int) -> NDArray[np.int64]:
    count = min(MAX_WINDOWS, steps // WINDOW_STEPS)
    return np.asarray(np.linspace(0, steps, count + 1).round().astype(np.int64))


def _short_and_rare(long: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which long steps of each rank are pauses: at most three in a row, and rare."""
    short_runs = np.zeros_like(long)
    for row, marks in enumerate(long):
        changes = np.flatnonzero(np.diff(np.concatenate([[False], marks, [False]]).astype(np.int8)))
        for begin, end in changes.reshape(-1, 2):
            short_runs[row, begin:end] = end - begin <= PAUSE_STEPS
    return np.asarray(short_runs & (short_runs.mean(axis=1, keepdims=True) <= RARE_SHARE))
