"""What launches say of the answers: against sums worked by hand, and the promise of its error."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from torchscale.features.bisect.evidence import BisectionEvidence, Launched, _with_heavy_tails
from torchscale.features.bisect.hypotheses import AnswerKind, factorial, steps

LEAST = math.log1p(0.03)


def launches(*pairs: tuple[int, float]) -> list[Launched]:
    return [Launched(environment, log) for environment, log in pairs]


def drawn(costs: list[float], count: int, noise: float, seed: int) -> list[Launched]:
    random = np.random.default_rng(seed)
    return [
        Launched(place, math.log1p(cost) + noise * random.standard_normal())
        for _ in range(count)
        for place, cost in enumerate(costs)
    ]


def test_without_launches_nothing_is_known() -> None:
    evidence = BisectionEvidence(steps(5), [], 0.05, LEAST)
    assert evidence.shares == pytest.approx([0.25] * 4)
    assert len(evidence.left) == 4
    assert evidence.is_slow(0) == 0
    assert evidence.is_slow(4) == pytest.approx(1)
    assert evidence.noise is None


def test_the_likelier_answer_is_the_one_whose_sides_differ() -> None:
    evidence = BisectionEvidence(steps(4), drawn([0, 0, 0.1, 0.1], 4, 0.01, 1), 0.05, LEAST)
    assert [one.members for one in evidence.left] == [(2,)]
    assert evidence.shares[1] > 0.99


def test_the_level_does_not_matter() -> None:
    before = drawn([0, 0, 0.1, 0.1], 3, 0.02, 2)
    moved = [Launched(one.environment, one.log + 7) for one in before]
    first, second = (BisectionEvidence(steps(4), some, 0.05, LEAST) for some in (before, moved))
    assert first.shares == pytest.approx(second.shares, rel=1e-6)
    assert first.cost(steps(4)[1]).value == pytest.approx(second.cost(steps(4)[1]).value)


def test_a_level_that_drifts_is_no_step() -> None:
    """Launches in the order of the environments, each slower than the one before by as much."""
    rising = launches(*((place, 0.01 * number) for number, place in enumerate([0, 1, 2, 3] * 6)))
    cost = BisectionEvidence(steps(4)[:1], rising, 0.05, LEAST).cost(steps(4)[0])
    low, high = cost.bounds
    assert low < 0 < high


def test_the_cost_is_the_difference_of_the_means() -> None:
    exact = launches((0, 0.0), (1, 0.101), (1, 0.099), (0, 0.001), (0, -0.001), (1, 0.1))
    cost = BisectionEvidence(steps(2), exact, 0.05, LEAST).cost(steps(2)[0])
    assert math.log1p(cost.value) == pytest.approx(0.1, abs=0.002)
    low, high = cost.bounds
    assert low < math.expm1(0.1) < high
    assert cost.count == len(exact)


def test_both_costs_of_two_factors() -> None:
    (both,) = (one for one in factorial(2) if one.kind is AnswerKind.SUM)
    costs = [0, 0.2, 0.1, 1.1 * 1.2 - 1]
    evidence = BisectionEvidence(factorial(2), drawn(costs, 8, 0.01, 3), 0.05, LEAST)
    assert evidence.left == (both,)
    assert evidence.cost(both, 0).value == pytest.approx(0.1, abs=0.02)
    assert evidence.cost(both, 1).value == pytest.approx(0.2, abs=0.02)
    for effect, cost in ((0, 0.1), (1, 0.2)):
        low, high = evidence.cost(both, effect).bounds
        assert low < cost < high


def test_a_factor_next_to_none_is_not_counted_as_a_second_one() -> None:
    evidence = BisectionEvidence(factorial(2), drawn([0, 0, 0.1, 0.1], 10, 0.01, 4), 0.05, LEAST)
    assert [(one.kind, one.members) for one in evidence.left] == [(AnswerKind.ALONE, (0,))]


def test_the_noise_is_that_within_environments() -> None:
    exact = launches((0, 0.0), (0, 0.02), (1, 5.0), (1, 5.02))
    assert BisectionEvidence(steps(2), exact, 0.05, LEAST).noise == pytest.approx(
        0.0141, abs=0.0002
    )


def test_a_disturbed_launch_decides_nothing() -> None:
    """One of the middle environment's takes 40 % longer, as slow launches of nobody's doing do; the
    cost that is looked for is 10 %."""
    quiet = drawn([0, 0, 0.1, 0.1], 4, 0.01, 7)
    ends = [one for one in quiet if one.environment in (0, 3)]
    late = BisectionEvidence(steps(4), [*ends, *launches((1, math.log(1.4)))], 0.05, LEAST)
    assert len(late.left) == 3
    seen = BisectionEvidence(steps(4), [*late_and_more(ends)], 0.05, LEAST)
    assert (1,) not in [one.members for one in seen.left]


def late_and_more(ends: list[Launched]) -> list[Launched]:
    """The same with five launches more, which are as the good end's."""
    return [*ends, *launches((1, math.log(1.4)), *((1, 0.003 * place) for place in range(-2, 3)))]


def test_heavy_tails_are_those_of_students_t() -> None:
    """Likelihoods of costs, with level and size of the noise integrated numerically."""
    random = np.random.default_rng(5)
    effects = np.array([[0.0, 1.0] * 10])
    logs = 0.1 * effects[0] + 0.03 * random.standard_t(3, 20)
    logs[4] += 0.4
    costs = np.array([-0.05, 0.0, 0.05, 0.1, 0.15])
    mine = _with_heavy_tails(logs, effects, costs)
    exact = np.array([_integrated(logs - cost * effects[0]) for cost in costs])
    shares = (mine[3] - mine[:3]) / (exact[3] - exact[:3])
    assert all(0.85 < share < 1.1 for share in shares), shares
    assert mine[4] == pytest.approx(mine[3], abs=1)


def _integrated(logs: np.ndarray[Any, np.dtype[np.float64]]) -> float:
    """The logarithm of the integral over levels and sizes; of these as the module expects them."""
    levels, sizes = np.linspace(-0.3, 0.6, 901), np.geomspace(0.003, 1.0, 200)
    parts = []
    for size in sizes:
        each = -2 * np.log1p(((logs[:, None] - levels) / size) ** 2 / 3) - math.log(size)
        expected = -2 * math.log(size) - 0.02**2 / (2 * size**2)
        # A step of sizes grows with the size.
        parts.append(np.logaddexp.reduce(each.sum(axis=0)) + expected + math.log(size))
    return float(np.logaddexp.reduce(parts))


def test_equal_figures_are_not_taken_as_exact() -> None:
    """A program that prints the same number each time: two launches of each decide nothing."""
    same = launches((0, 0.0), (1, 0.0005)) * 2
    cost = BisectionEvidence(steps(2), same, 0.05, LEAST).cost(steps(2)[0])
    low, high = cost.bounds
    assert low < 0 < high


@pytest.mark.parametrize("noise", [0.01, 0.05])
def test_the_true_answer_is_excluded_in_few_of_many_games_however_often_one_looks(
    noise: float,
) -> None:
    """At each of six looks; 5 % are promised, and the costs are 5 %."""
    excluded = 0
    for seed in range(40):
        game = drawn([0, 0, 0.05, 0.05], 12, noise, seed)
        looks = (BisectionEvidence(steps(4), game[:end], 0.05, LEAST) for end in range(4, 49, 8))
        excluded += any(steps(4)[1] not in look.left for look in looks)
    assert excluded <= 3
