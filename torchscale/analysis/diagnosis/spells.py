"""The slow spells of a rank: found in windows of steps, against what the others compute there."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from torchscale.analysis.diagnosis.shared import EXPLAINED_SHARE
from torchscale.analysis.diagnosis.signals import Matrix, SignalSeries, Windows
from torchscale.analysis.stats.levels import two_levels
from torchscale.analysis.stats.peers import medians_of_others

SPELL_EXCESS = 0.10
"""How much slower than the others' median a rank is in its slow spells. Chosen: a device that
throttles lowers its clocks by tens of per cent, and windows of a few steps scatter by some."""

MIN_SPELLS = 2
"""One slow stretch may be anything that passed; what comes back is a pattern."""
CERTAIN_SPELLS = 5
"""Of two ranks, chance puts five disturbances on the same one in 1 of 16 runs, of more ranks less
often."""
SEPARATION = 4.0
"""Distance of the two levels ÷ scatter within a level. A single normal distribution cut at its best
place reaches 2.7."""
RUNS_LIMIT = -2.5
"""Standard deviations by which slow and fast windows change places less often than in random order
(Wald and Wolfowitz's test of runs): 0.6 % of random orders reach it."""
MIN_WINDOWS = 12
"""Below it the test of runs cannot tell two spells from chance."""
FAST_SHARE = 0.5
"""Between its slow spells the rank is at most this share of the excess slower than the others; else
it is slow always."""
SOLE_SHARE = 0.75
"""Share of the time that all ranks lose in slow windows which is one rank's. Below it ranks are
slow in turn: what disturbs them is not one device."""
FEW_SOLE_SHARE = 0.9
"""The same for fewer than :data:`CERTAIN_SPELLS`: where a host disturbs its ranks at random, two or
three disturbances often fall on one rank, but the others are rarely spared."""
HEIGHT_SPREAD = 0.35
"""Share of the rise by which the middle of a spell may lie away from the slow level: a device that
throttles falls to about the same clocks each time, and disturbances have any size."""
FEW_HEIGHT_SPREAD = 0.15
"""The same for two spells, which are alike by chance more often. In simulated runs of two ranks
with random bursts on both (15 to 30 % of the time) a rank is named in 1 of 5, in runs with spells
on one rank that rank in 178 of 180."""
_SCALES = (1, 2, 4, 8)
"""Windows of a moving mean: a small difference is seen in long means only, a short spell in short
ones."""


@dataclass(frozen=True)
class Spells:
    """The slow spells of a rank.

    Attributes:
        row: Row of the rank.
        count: Number of spells.
        share: Share of the time in which it is slow.
        seconds: A spell lasts on average.
        excess: Seconds a step that it is slower in its spells than the others.
        typical: Compute of the others.
        cost: Seconds per step over the whole measurement.
        scale: Windows of the moving mean that shows them.
        quiet_rise: By how much its spells are slower than what is between them, of what no
            communication disturbs, as a share of what a rank that slows down as a whole would show
            there; ``None`` where that is not known.
    """

    row: int
    count: int
    share: float
    seconds: float
    excess: float
    typical: float
    cost: float
    scale: int
    quiet_rise: float | None


def slow_spells(windows: Windows, rows: Sequence[int]) -> Spells | str | None:
    """The slow spells of the rank among ``rows`` that loses most in them; the reason why no rank is
    named where several have some; ``None`` where none has."""
    group = windows.of(rows)
    if len(group) < MIN_WINDOWS:
        return None
    others = medians_of_others(group.compute)
    # A slow level lies below the slowest window: of a thousand ranks nearly none is left here.
    slow = (group.compute - others).max(axis=1) >= SPELL_EXCESS * np.median(others, axis=1)
    candidates = np.flatnonzero(slow).tolist()
    may_have = [
        _may_have_spells(group.of(candidates), others[candidates], scale) for scale in _SCALES
    ]
    by_row: list[Spells] = []
    for place in np.flatnonzero(np.any(may_have, axis=0)).tolist():
        row = candidates[place]
        scales = [scale for scale, may in zip(_SCALES, may_have, strict=True) if may[place]]
        found = (_spells_at(group, others[row], row, scale) for scale in scales)
        by_row += itertools.islice(
            (item for item in found if item is not None), 1
        )  # the shortest mean that shows them
    if not by_row:
        return None
    worst = max(by_row, key=lambda item: item.cost)
    lost = [_lost(group, others[row], row, worst) for row in range(len(rows))]
    if lost[worst.row] < (FEW_SOLE_SHARE if worst.count < CERTAIN_SPELLS else SOLE_SHARE) * sum(
        lost
    ):
        return "several ranks are slow for a while in turn: no single device is slow"
    return replace(worst, row=rows[worst.row])


def _lost(windows: Windows, others: SignalSeries, row: int, worst: Spells) -> float:
    """Seconds a step that a rank is slower where it is so by half of the worst rank's spells, mean
    over the run."""
    excess = _moving_mean(windows.compute[row] - others, windows.steps, worst.scale)
    slow = excess >= worst.excess / 2
    return float(np.average(np.where(slow, excess, 0.0), weights=windows.steps))


def _may_have_spells(windows: Windows, others: Matrix, scale: int) -> NDArray[np.bool_]:
    """Which rows have two levels of compute as slow spells make them: the first conditions of
    :func:`_spells_at`, for all rows at once."""
    excess = _moving_mean(windows.compute - others, windows.steps, scale)
    levels = two_levels(excess)
    fast, slow = levels.low, levels.high
    is_slow = slow >= SPELL_EXCESS * np.median(others, axis=1)
    is_apart = slow - fast >= SEPARATION * levels.scatter
    return np.asarray(is_slow & (fast <= FAST_SHARE * slow) & is_apart)


def _spells_at(windows: Windows, others: SignalSeries, row: int, scale: int) -> Spells | None:
    raw, typical = windows.compute[row] - others, float(np.median(others))
    excess = _moving_mean(raw, windows.steps, scale)
    levels = two_levels(excess[np.newaxis])
    fast, slow = float(levels.low[0]), float(levels.high[0])
    rise = slow - fast
    state = _slow_windows(excess, fast, slow)
    spells = np.flatnonzero(
        np.diff(np.concatenate([[False], state, [False]]).astype(np.int8))
    ).reshape(-1, 2)
    if state.all() or not state.any():
        return None
    if (
        _runs_score(raw > (fast + slow) / 2) > RUNS_LIMIT
    ):  # of windows as they are: a moving mean makes runs
        return None
    heights = [float(np.median(excess[begin:end])) for begin, end in spells]
    if np.quantile(np.abs(np.array(heights) - slow), 0.75) > _height_spread(len(spells)) * rise:
        return None
    if _rise(windows.compute[row], state) < EXPLAINED_SHARE * rise:
        return None  # the others became faster
    seconds = windows.steps * windows.wall
    share_of_steps = float(windows.steps[state].sum() / windows.steps.sum())
    quiet_rise = None
    if windows.quiet is not None:
        quiet = medians_of_others(windows.quiet)[row]
        quiet_rise = _rise(windows.quiet[row] - quiet, state) / (
            rise * float(np.median(quiet)) / typical
        )
    return Spells(
        row=row,
        count=len(spells),
        share=float(seconds[state].sum() / seconds.sum()),
        seconds=float(seconds[state].sum()) / len(spells),
        excess=slow,
        typical=typical,
        cost=share_of_steps * rise,
        scale=scale,
        quiet_rise=quiet_rise,
    )


def _moving_mean(values: Matrix, weights: SignalSeries, count: int) -> Matrix:
    """Mean over ``count`` windows around each (fewer at the ends), weighted by their steps.
    ``values``: windows last."""
    return np.asarray(_moving_sum(values * weights, count) / _moving_sum(weights, count))


def _moving_sum(values: Matrix, count: int) -> Matrix:
    length = values.shape[-1]
    count = min(count, length)
    ahead = (count - 1) // 2
    beside = [(0, 0)] * (values.ndim - 1)
    padded = np.pad(values, [*beside, (count - 1 - ahead, ahead)])
    return np.asarray(sum(padded[..., shift : shift + length] for shift in range(count)))


def _height_spread(spells: int) -> float:
    return HEIGHT_SPREAD if spells > MIN_SPELLS else FEW_HEIGHT_SPREAD


def _slow_windows(excess: SignalSeries, fast: float, slow: float) -> NDArray[np.bool_]:
    """Which windows are slow. One between the levels is as the one before it, so that scatter
    changes no state."""
    enter, leave = fast + 0.6 * (slow - fast), fast + 0.4 * (slow - fast)
    states = []
    state = bool(excess[0] > (fast + slow) / 2)
    for value in excess:
        state = bool(value > (leave if state else enter))
        states.append(state)
    return np.array(states)


def _runs_score(state: NDArray[np.bool_]) -> float:
    """Standard deviations by which there are more runs of equal values than in random order."""
    ones = int(state.sum())
    zeros, count = len(state) - ones, len(state)
    runs = 1 + int((state[1:] != state[:-1]).sum())
    mean = 1 + 2 * ones * zeros / count
    variance = (mean - 1) * (mean - 2) / (count - 1)
    return (runs - mean) / variance**0.5 if variance > 0 else 0.0


def _rise(values: SignalSeries, state: NDArray[np.bool_]) -> float:
    return float(np.median(values[state]) - np.median(values[~state]))
