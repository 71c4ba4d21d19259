"""What launches say of the answers of a bisection, at any moment, with an error that holds however
often one looks. Pure.

A launch's logarithm of seconds is level + cost of what its environment has, by the answer + drift +
noise. Noise is normal of an unknown size with a drift that is a random walk over the launches, or
has heavy tails: which of both the launches say. Each answer's likelihood is averaged over costs,
kinds and sizes of noise, and sizes of drift. An answer whose likelihood is less than alpha times
the average over all answers is excluded: where the model holds, and on average over these sizes,
the true one is ever excluded with a probability of alpha at most (Ville's inequality; Robbins 1970,
Wald 1947), whatever was launched in which order and whenever it ends. The same bounds the costs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from torchscale.analysis.stats.estimate import Estimate
from torchscale.features.bisect.cost_interval import Array, cost_points, interval_above
from torchscale.features.bisect.hypotheses import Hypothesis, share_of_slow

_POINTS = 641
"""Costs that likelihoods are averaged over, either side of none; some 0.1 % apart near none."""
_PAIR_POINTS = 241
"""For each of two costs that add up, a plane of them; some 0.3 % apart near none."""
_NOISE_SCALE = 0.02
"""Noise of a launch that is expected beforehand; it counts as much as one launch."""
_NOISE_LAUNCHES = 1.0
_LEAST_NOISE = 0.005
"""Noise of a launch at least: a program that prints the same number each time is not taken as exact,
and costs are told apart no finer than those that likelihoods are averaged over."""
_DRIFTS = (0.0, 0.01, 0.1, 0.5)
"""Variance that the level gains from one launch to the next, per variance of a launch."""
_DRIFT_WEIGHTS = (0.2, 0.1, 0.1, 0.1)
"""Half of what is expected beforehand is normal noise, half noise with heavy tails."""
_TAIL_WEIGHT = 0.5
_TAIL_DEGREES = 3.0
"""Of Student's t: launches that something else disturbs are late by several times the noise of the
others."""
_TAIL_ROUNDS = 10


@dataclass(frozen=True)
class Launched:
    """A launch that counts: which environment, and the logarithm of its seconds."""

    environment: int
    log: float


class BisectionEvidence:
    """All launches so far against all answers.

    Attributes:
        hypotheses: The answers.
        alpha: Probability that the true one is ever excluded, at most.
        least_cost: The smallest cost of each of two that add up, as a logarithm: an answer with one
            cost is otherwise an answer with two, of which one is next to none.
    """

    def __init__(
        self,
        hypotheses: Sequence[Hypothesis],
        launches: Sequence[Launched],
        alpha: float,
        least_cost: float,
    ) -> None:
        self.hypotheses, self.alpha, self.least_cost = tuple(hypotheses), alpha, least_cost
        self._launches = tuple(launches)

    @cached_property
    def shares(self) -> tuple[float, ...]:
        """The probability of each answer, by its weight and its likelihood."""
        logs = np.array([math.log(one.weight) for one in self.hypotheses]) + self._likelihoods
        shares = np.exp(logs - logs.max())
        return tuple(float(share) for share in shares / shares.sum())

    @cached_property
    def left(self) -> tuple[Hypothesis, ...]:
        """The answers that are not excluded."""
        logs = self._likelihoods
        bound = self._average + math.log(self.alpha)
        return tuple(one for one, log in zip(self.hypotheses, logs, strict=True) if log > bound)

    def is_slow(self, environment: int) -> float:
        """The probability that an environment is slower than the first."""
        return share_of_slow(self.hypotheses, self.shares, environment)

    def cost(self, hypothesis: Hypothesis, effect: int = 0) -> Estimate:
        """One of the costs of an answer, if it is the true one: the ratio minus 1."""
        logs = self._surfaces[self.hypotheses.index(hypothesis)]
        costs, prior = self._costs(logs.ndim)
        if logs.ndim == 2:
            # The other cost averaged out.
            weighted = logs + (np.log(prior)[None, :] if effect == 0 else np.log(prior)[:, None])
            logs = np.logaddexp.reduce(weighted, axis=1 - effect)
        bound = self._average + math.log(self.alpha)
        return interval_above(costs, logs, bound, len(self._launches))

    @cached_property
    def noise(self) -> float | None:
        """Standard deviation of a launch's logarithm from its environment's mean; ``None`` where
        no environment has two."""
        groups: dict[int, list[float]] = {}
        for launch in self._launches:
            groups.setdefault(launch.environment, []).append(launch.log)
        squares = sum(float(np.var(logs)) * len(logs) for logs in groups.values())
        degrees = sum(len(logs) - 1 for logs in groups.values())
        return math.sqrt(squares / degrees) if degrees else None

    @cached_property
    def _average(self) -> float:
        """Logarithm of the likelihood, averaged over the answers."""
        weights = np.log([one.weight for one in self.hypotheses])
        return float(np.logaddexp.reduce(weights + self._likelihoods))

    @cached_property
    def _likelihoods(self) -> Array:
        """Logarithm of the likelihood of each answer."""
        averaged = []
        for surface in self._surfaces:
            prior = np.log(self._costs(surface.ndim)[1])
            weighted = surface + prior
            if surface.ndim == 2:
                weighted = surface + prior[:, None] + prior[None, :]
            averaged.append(float(np.logaddexp.reduce(weighted, axis=None)))
        return np.array(averaged)

    @cached_property
    def _surfaces(self) -> list[Array]:
        """For each answer, the logarithm of the likelihood of every cost."""
        known: dict[tuple[tuple[bool, ...], ...], Array] = {}
        found = []
        for one in self.hypotheses:
            rows = tuple(
                tuple(effect[launch.environment] for launch in self._launches)
                for effect in one.effects
            )
            if rows not in known:
                known[rows] = self._surface(np.array(rows, dtype=float))
            found.append(known[rows])
        return found

    def _costs(self, dimensions: int) -> tuple[Array, Array]:
        if dimensions == 1:
            return cost_points(_POINTS, 0.0)
        return cost_points(_PAIR_POINTS, self.least_cost)

    def _surface(self, effects: Array) -> Array:
        """``effects``: a row for each cost, a column for each launch."""
        count = len(self._launches)
        logs = np.array([launch.log for launch in self._launches])
        costs, _ = self._costs(len(effects))
        if count < 2:
            return np.zeros((len(costs),) * len(effects))
        layers = []
        for drift, weight in zip(_DRIFTS, _DRIFT_WEIGHTS, strict=True):
            inverse, constant = _without_level(count, drift)
            squares = _squares(logs, effects, inverse, costs)
            layers.append(
                math.log(weight) + constant - _power(count) * np.log(squares + _expected(count))
            )
        layers.append(math.log(_TAIL_WEIGHT) + _with_heavy_tails(logs, effects, costs))
        return np.asarray(np.logaddexp.reduce(layers, axis=0), dtype=np.float64)


def _with_heavy_tails(logs: Array, effects: Array, costs: Array) -> Array:
    """The same for noise by Student's t, without drift. A launch far from what an answer says
    counts less: the density of t is that of normal noise with the variance of each launch at its
    likeliest, times a factor for it (Lange, Little and Taylor 1989). These variances are found by
    weighted least squares for the likeliest costs and taken for all."""
    count = len(logs)
    weights = _weights(logs, effects)
    total = float(weights.sum())
    inverse = np.diag(weights) - np.outer(weights, weights) / total
    degrees = _TAIL_DEGREES
    each = (
        math.lgamma((degrees + 1) / 2)
        - math.lgamma(degrees / 2)
        - 0.5 * math.log(degrees / 2)
        - (degrees + 1) / 2 * (math.log((degrees + 1) / degrees) - 1)
    )
    factors = each + degrees / 2 * (np.log(weights) - weights)
    constant = 0.5 * float(np.log(weights).sum()) - 0.5 * math.log(total) + float(factors.sum())
    squares = _squares(logs, effects, inverse, costs)
    least = squares.min()
    # Variances that were known would say that much more of costs than t's noise does (ratio of
    # Fisher's information): around the likeliest costs the likelihood is as much flatter.
    squares = least + (degrees + 1) / (degrees + 3) * (squares - least)
    return np.asarray(constant - _power(count) * np.log(squares + _expected(count)))


def _weights(logs: Array, effects: Array) -> Array:
    """How much each launch counts beside t's noise, at the likeliest level and costs."""
    count, degrees = len(logs), _TAIL_DEGREES
    design = np.vstack([np.ones(count), effects])
    patterns = [tuple(column) for column in effects.T]
    medians = {
        pattern: float(np.median(logs[[one == pattern for one in patterns]]))
        for pattern in set(patterns)
    }
    deviations = logs - np.array([medians[pattern] for pattern in patterns])
    weights = np.ones(count)
    for _ in range(_TAIL_ROUNDS):
        variance = (float(weights @ deviations**2) + _expected(count)) / (count + _NOISE_LAUNCHES)
        weights = (degrees + 1) / (degrees + deviations**2 / variance)
        scaled = design * weights
        fitted = np.linalg.pinv(scaled @ design.T) @ (scaled @ logs)
        deviations = logs - fitted @ design
    return weights


def _power(count: int) -> float:
    """Half the degrees of freedom that are left to the noise."""
    return (count - 1 + _NOISE_LAUNCHES) / 2


def _expected(count: int) -> float:
    """What is added to the sum of squares."""
    return _NOISE_LAUNCHES * _NOISE_SCALE**2 + count * _LEAST_NOISE**2


def _squares(logs: Array, effects: Array, inverse: Array, costs: Array) -> Array:
    """The weighted sum of squares that is left, for every cost (or pair of costs)."""
    base = float(logs @ inverse @ logs)
    first, own = inverse @ effects[0], float(effects[0] @ inverse @ effects[0])
    along = -2 * costs * float(logs @ first) + costs**2 * own
    if len(effects) == 1:
        return np.maximum(base + along, 0.0)
    second = inverse @ effects[1]
    across = -2 * costs * float(logs @ second) + costs**2 * float(effects[1] @ second)
    both = 2 * float(effects[1] @ first) * np.outer(costs, costs)
    return np.maximum(base + along[:, None] + across[None, :] + both, 0.0)


@lru_cache(maxsize=4096)
def _without_level(count: int, drift: float) -> tuple[Array, float]:
    """The inverse covariance of so many launches with any level taken out, and the logarithm of
    what their likelihood is multiplied with."""
    order = np.arange(1, count + 1, dtype=float)
    covariance = np.eye(count) + drift * np.minimum.outer(order, order)
    inverse = np.linalg.inv(covariance)
    ones = inverse.sum(axis=1)
    total = float(ones.sum())
    constant = -0.5 * float(np.linalg.slogdet(covariance)[1]) - 0.5 * math.log(total)
    return inverse - np.outer(ones, ones) / total, constant
