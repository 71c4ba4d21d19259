"""Bisections on made-up launches."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from torchscale.features.bisect.hypotheses import Hypothesis
from torchscale.features.bisect.search import BisectionSearch, Limits


def play(
    hypotheses: Sequence[Hypothesis],
    costs: Sequence[float],
    *,
    noise: float,
    seed: int = 0,
    drift: float = 0.0,
    states: Mapping[int, tuple[float, float]] | None = None,
    noises: Mapping[int, float] | None = None,
    limits: Limits | None = None,
) -> BisectionSearch:
    """A search to its end.

    Args:
        hypotheses: Its answers.
        costs: Of each environment, as a share.
        noise: Standard deviation of a launch.
        seed: Of the noise.
        drift: Standard deviation by which the level moves from launch to launch.
        states: Environment → probability of its second state, and what that costs.
        noises: Environment → noise of its launches, if another one.
        limits: What is looked for.
    """
    random = np.random.default_rng(seed)
    search = BisectionSearch(tuple(hypotheses), len(costs), limits or Limits())
    level = 0.0
    while asked := search.next_round():
        for environment in asked:
            if search.ending is not None:
                break
            level += drift * random.standard_normal()
            scatter = (noises or {}).get(environment, noise) * random.standard_normal()
            log = math.log1p(costs[environment]) + level + scatter
            probability, cost = (states or {}).get(environment, (0.0, 0.0))
            if random.random() < probability:
                log += math.log1p(cost)
            search.add(environment, math.exp(log))
    return search


def step_costs(environments: int, first_slow: int, cost: float) -> list[float]:
    """Nothing, then the cost from an environment on."""
    return [cost * (place >= first_slow) for place in range(environments)]
