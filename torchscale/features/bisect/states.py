"""Has an environment two states, or one with the noise of the others? By likelihood. Pure.

Two states: a mixture of two normal distributions, each with the noise that launches of other
environments have; a few launches may be disturbed besides. One state: the same with one level; a
normal distribution with more noise; noise with heavy tails (Student's t with three degrees of
freedom); or skewed noise (exponential), as of launches that wait for something. All of these are
fitted, and the best of one state is what two are held against: an environment that is merely noisier
than the others has one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from torchscale.analysis.stats.levels import between_parts, scatter

Array = NDArray[np.float64]

CLEAR = 4.0
"""Logarithm of the ratio of likelihoods from which on two states are taken for known. Of 300
environments with 24 launches each and one state, none reached it with normal or exponential noise of
the others' size, four with heavy tails; one to three with twice the noise."""
UNSTEADY = 6.0
"""The same, against one state with the others' noise, from which on that is out. With that noise it
is reached by about one environment in two hundred; of exponential noise by one in twenty."""
_POSSIBLE = 1.0
"""The same, from which on more launches are asked for."""
_FEWEST_DISTANCES = 6
"""Launches that say something of the others' noise, before it is the measure of anything."""
_FARTHEST = 3.0
"""Standard deviations from the median, up to which a distance counts."""
_LEAST_NOISE = 0.005
"""As in :mod:`torchscale.features.bisect.evidence`."""
_TAIL_DEGREES = 3.0
_ROUNDS = 25
_DISTURBED_SHARE, _DISTURBED_NOISE = 0.05, 4.0
"""Of launches that something disturbs, and their noise over that of the others."""
_CONSTANT = -0.5 * math.log(2 * math.pi)


@dataclass(frozen=True)
class Weighed:
    """Two states against one.

    Attributes:
        low, high: The levels of two states, logarithms of seconds.
        over_one: Logarithm of the ratio of likelihoods, against the best of one state.
        over_same: Against one state with the others' noise.
        misfit: What that loses besides where its level is that of others.
    """

    low: float
    high: float
    over_one: float
    over_same: float
    misfit: float = 0.0

    @property
    def is_clear(self) -> bool:
        """Whether there are two states."""
        return self.over_one >= CLEAR

    @property
    def is_open(self) -> bool:
        """Whether more launches may show that it has not one state with the others' noise."""
        return self.over_same > _POSSIBLE

    @property
    def is_unsteady(self) -> bool:
        """Whether it has not one state with the others' noise: two, or more noise. A mean between
        the levels of others says so too, but not alone: that is a step of its own."""
        return self.is_open and self.over_same + self.misfit >= UNSTEADY


def weigh(
    logs: Sequence[float], others: Sequence[Sequence[float]], same_level: Sequence[float] = ()
) -> Weighed | None:
    """Two states against one; ``None`` where too few launches of others tell their noise.

    Args:
        logs: Logarithms of seconds of an environment's launches, at least two.
        others: Those of environments with one state.
        same_level: Launches of those that are as fast, if it has one state.
    """
    noise = _pooled_noise(others)
    if noise is None or len(logs) < 2:
        return None
    ascending = np.sort(np.array(logs))
    low, high, two = _two_states(ascending, noise)
    same = _one_state(ascending, noise)
    one = max(
        same,
        float(_normal(ascending, ascending.mean(), max(ascending.std(), noise)).sum()),
        _heavy_tails(ascending, noise),
        _skewed(ascending, noise),
    )
    misfit = _misfit(ascending, np.array(same_level), noise)
    return Weighed(low, high, two - one, two - same, misfit)


def _misfit(values: Array, same_level: Array, noise: float) -> float:
    """What the likelihood of one state loses where its level is that of others."""
    if not len(same_level):
        return 0.0
    error = noise * math.sqrt(1 / len(values) + 1 / len(same_level))
    return 0.5 * (float(np.median(values) - np.median(same_level)) / error) ** 2


def _pooled_noise(others: Sequence[Sequence[float]]) -> float | None:
    """By the distances of launches from the median of their environment, those of disturbed ones
    bounded: a single one by ten times the noise would make it several times as large."""
    distances = np.concatenate([np.zeros(0), *map(_from_median, others)])
    if len(distances) < _FEWEST_DISTANCES:
        return None
    most = _FARTHEST * float(scatter(distances))
    return max(float(np.sqrt(np.mean(np.minimum(distances, most) ** 2))), _LEAST_NOISE)


def _from_median(logs: Sequence[float]) -> Array:
    """How far launches lie from the median of their environment. Of an odd number one is the median
    itself, of an even number two lie equally far: one of these says nothing, and is left out. What a
    median of few launches takes of the spread is given back."""
    if len(logs) < 2:
        return np.zeros(0)
    distances = np.sort(np.abs(np.array(logs) - np.median(logs)))[1:]
    return np.asarray(distances * math.sqrt(len(logs) / (len(logs) - 1)), dtype=np.float64)


def _mean(values: Array, weights: Array) -> Array:
    """With each row of weights: (rows, 1), or (1,). ``np.average`` takes three times as long for a
    few values."""
    total = (values * weights).sum(axis=-1, keepdims=True)
    return np.asarray(total / weights.sum(axis=-1, keepdims=True), dtype=np.float64)


def _normal(values: Array, level: float | Array, noise: float) -> Array:
    """Logarithm of each value's density; of several levels (levels, 1), a row for each."""
    return np.asarray(_CONSTANT - math.log(noise) - 0.5 * ((values - level) / noise) ** 2)


def _disturbed(values: Array, level: float | Array, noise: float) -> tuple[Array, Array]:
    """The same where a few launches have several times the noise; and how much each value says of
    the level."""
    usual = _normal(values, level, noise) + math.log(1 - _DISTURBED_SHARE)
    wide = _normal(values, level, _DISTURBED_NOISE * noise) + math.log(_DISTURBED_SHARE)
    both = np.logaddexp(usual, wide)
    return both, np.exp(usual - both) + np.exp(wide - both) / _DISTURBED_NOISE**2


def _one_state(ascending: Array, noise: float) -> float:
    """Logarithm of the likelihood with the others' noise."""
    level = np.median(ascending, keepdims=True)
    total = -math.inf
    for _ in range(_ROUNDS):
        each, of_level = _disturbed(ascending, level, noise)
        total = float(each.sum())
        level = _mean(ascending, of_level)
    return total


def _two_states(ascending: Array, noise: float) -> tuple[float, float, float]:
    """Both levels and the logarithm of the likelihood, by expectation maximization from the split
    that leaves most between both parts, and from that at the widest gap."""
    begins = {int(each.argmax()) + 1 for each in (between_parts(ascending), np.diff(ascending))}
    return max(
        (_fitted(ascending, noise, begin) for begin in sorted(begins)), key=lambda one: one[2]
    )


def _fitted(ascending: Array, noise: float, begin: int) -> tuple[float, float, float]:
    """From a split at ``begin``."""
    share = 1 - begin / len(ascending)
    levels = np.array([[ascending[:begin].mean()], [ascending[begin:].mean()]])
    total = -math.inf
    for _ in range(_ROUNDS):
        (low, high), of_levels = _disturbed(ascending, levels, noise)
        low, high = low + math.log(1 - share), high + math.log(share)
        both = np.logaddexp(low, high)
        total = float(both.sum())
        slow = np.exp(high - both)
        share = min(max(float(slow.mean()), 1e-9), 1 - 1e-9)
        levels = _mean(ascending, np.stack([1 - slow, slow]) * of_levels + 1e-12)
    return float(levels[0, 0]), float(levels[1, 0]), total


def _heavy_tails(values: Array, noise: float) -> float:
    """Logarithm of the likelihood of Student's t, its scale at least half of the others' noise."""
    degrees = _TAIL_DEGREES
    level = np.median(values, keepdims=True)
    square = max(float(values.var()) / degrees, (noise / 2) ** 2)
    for _ in range(_ROUNDS):
        weights = (degrees + 1) / (degrees + (values - level) ** 2 / square)
        level = _mean(values, weights)
        square = max(float((weights * (values - level) ** 2).mean()), (noise / 2) ** 2)
    constant = (
        math.lgamma((degrees + 1) / 2)
        - math.lgamma(degrees / 2)
        - 0.5 * math.log(degrees * math.pi * square)
    )
    each = constant - (degrees + 1) / 2 * np.log1p((values - level) ** 2 / (degrees * square))
    return float(each.sum())


def _skewed(ascending: Array, noise: float) -> float:
    """Logarithm of the likelihood of an exponential distribution above the first value, its mean at
    least the others' noise."""
    above = ascending - ascending[0]
    scale = max(float(above.mean()), noise)
    return float((-math.log(scale) - above / scale).sum())
