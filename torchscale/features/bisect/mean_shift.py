"""Means of environments against each other, for numbers that scatter: with the search of
:mod:`torchscale.features.bisect.search`. Pure."""

from __future__ import annotations

import math
import statistics
from dataclasses import replace

from torchscale.analysis.stats.estimate import Estimate
from torchscale.features.bisect.hypotheses import Hypothesis
from torchscale.features.bisect.search import FIRST_ROUNDS, BisectionSearch, Limits

_SCATTER_LOG = 0.05
"""What the scatter of launches becomes for the evidence, which expects that noise beforehand."""
_MOST_LOG = 3.0
"""Numbers farther from the good end's are taken as that far: the largest cost that is weighed."""
_LARGEST = 1e150
"""Squares of larger numbers are infinite: a loss that has diverged so far is as good as that."""
_MOST_SCATTERS = 50.0
"""Between both ends: where they are farther apart, launches count as scattering more than they do."""


def has_mean(number: float) -> bool:
    """Whether it is finite, and its square too."""
    return abs(number) <= _LARGEST  # false of NaN


class MeanShift:
    """Means of environments against each other. The logarithm of seconds, which the evidence is
    about, stands for the number in units of the scatter of launches.

    Attributes:
        search: The bisection of these.
    """

    def __init__(
        self,
        hypotheses: tuple[Hypothesis, ...],
        count: int,
        limits: Limits,
        ends: tuple[list[float], list[float]],
        least: float,
    ) -> None:
        """
        Args:
            hypotheses: The answers.
            count: Number of environments.
            limits: Probability of a wrong answer, and launches.
            ends: Numbers of both ends, which set the unit and count no further: what is weighed
                later is then weighed by a rule that it did not shape.
            least: The smallest change that matters; 0 for the scatter of the good end.
        """
        good, bad = (math.fsum(numbers) / len(numbers) for numbers in ends)
        squares = math.fsum(
            (number - level) ** 2
            for numbers, level in zip(ends, (good, bad), strict=True)
            for number in numbers
        )
        degrees = max(sum(map(len, ends)) - 2, 1)
        scatter = max(math.sqrt(squares / degrees), abs(bad - good) / _MOST_SCATTERS)
        scatter = scatter or math.ulp(max(1.0, abs(good)))
        self._level = good
        self._unit = math.copysign(scatter / _SCATTER_LOG, bad - good)
        self._least = least
        smallest = self._share(least)
        limits = replace(
            limits, either_way=True, at_least=smallest or _SCATTER_LOG, beyond=smallest
        )
        self.search = BisectionSearch(hypotheses, count, limits)

    def _share(self, size: float) -> float:
        """A size of a change as the evidence has it."""
        return math.expm1(min(size / abs(self._unit), _MOST_LOG))

    def add(self, environment: int, number: float) -> None:
        """A launch that counts; the number is finite."""
        log = min(max((number - self._level) / self._unit, -_MOST_LOG), _MOST_LOG)
        good = self.search.logs(0)
        scatter = statistics.stdev(good) if len(good) >= FIRST_ROUNDS else 0.0
        if not self._least and scatter:
            # The smallest change that matters is the scatter of the good end as it is known by now:
            # that of the bad one may be the change.
            limits = replace(self.search.limits, at_least=math.expm1(scatter))
            self.search.limits = limits
        self.search.add(environment, math.exp(log))

    @property
    def scatter(self) -> float | None:
        """Standard deviation of a launch from the mean of its environment."""
        noise = self.search.noise if self.search.launches else None
        return None if noise is None else noise * abs(self._unit)

    @property
    def least(self) -> float:
        """The smallest change that matters."""
        return self._least or math.log1p(self.search.limits.at_least) * abs(self._unit)

    def is_above(self, number: float, threshold: float) -> bool:
        """Whether a number lies beyond a threshold of the evidence."""
        return (number - self._level) / self._unit > threshold

    def size(self, cost: Estimate) -> Estimate:
        """A change in units of the number."""
        low, high = sorted(self._unit * math.log1p(bound) for bound in cost.bounds)
        return Estimate(self._unit * math.log1p(cost.value), low, high, cost.count)
