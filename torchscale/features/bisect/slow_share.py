"""What launches say where the bad end itself has two states: not how long a launch takes, but
whether it is a slow one. Pure.

By each answer, launches of good environments are slow with one probability, which is small, and
those of slow environments with another. Both are averaged over (beta-binomial), and an answer is
excluded as in :mod:`torchscale.features.bisect.evidence`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from torchscale.features.bisect.hypotheses import Hypothesis, share_of_slow

_RARELY = (1.0, 19.0)
"""Of a good environment: a launch in twenty is expected to be slow for another reason."""
_ANYTHING = (1.0, 1.0)


@dataclass(frozen=True)
class Judged:
    """A launch: which environment, and whether it was a slow one."""

    environment: int
    is_slow: bool


class SlowShares:
    """All launches so far against all answers of one cost.

    Attributes:
        hypotheses: The answers.
        alpha: Probability that the true one is ever excluded, at most.
    """

    def __init__(
        self, hypotheses: Sequence[Hypothesis], launches: Sequence[Judged], alpha: float
    ) -> None:
        self.hypotheses, self.alpha = tuple(hypotheses), alpha
        self._launches = tuple(launches)

    @cached_property
    def shares(self) -> tuple[float, ...]:
        """The probability of each answer, by its weight and its likelihood."""
        logs = np.array(self._weighted)
        shares = np.exp(logs - logs.max())
        return tuple(float(share) for share in shares / shares.sum())

    @cached_property
    def left(self) -> tuple[Hypothesis, ...]:
        """The answers that are not excluded."""
        bound = float(np.logaddexp.reduce(self._weighted)) + math.log(self.alpha)
        return tuple(one for one in self.hypotheses if self._likelihood(one) > bound)

    def is_slow(self, environment: int) -> float:
        """The probability that an environment has slow launches as the bad end has."""
        return share_of_slow(self.hypotheses, self.shares, environment)

    def differ(self) -> bool:
        """Whether slow launches are more frequent at the bad end, by launches of both ends: the
        likelihood of two probabilities is 1/alpha times what one probability can reach."""
        slow = sum(launch.is_slow for launch in self._launches)
        count = len(self._launches)
        together = sum(
            number * math.log(number / count) for number in (slow, count - slow) if number
        )
        return self._likelihood(self.hypotheses[0]) - together >= -math.log(self.alpha)

    @cached_property
    def _weighted(self) -> list[float]:
        return [math.log(one.weight) + self._likelihood(one) for one in self.hypotheses]

    def _likelihood(self, one: Hypothesis) -> float:
        counts = {False: [0, 0], True: [0, 0]}
        for launch in self._launches:
            counts[one.is_slow(launch.environment)][launch.is_slow] += 1
        return _averaged(counts[False], _RARELY) + _averaged(counts[True], _ANYTHING)


def _averaged(counts: Sequence[int], prior: tuple[float, float]) -> float:
    """Logarithm of the likelihood of so many other and slow launches."""
    other, slow = counts
    return _log_beta(slow + prior[0], other + prior[1]) - _log_beta(*prior)


def _log_beta(first: float, second: float) -> float:
    return math.lgamma(first) + math.lgamma(second) - math.lgamma(first + second)
