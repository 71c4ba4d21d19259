"""Change points: planted ones found at their place, none in series without one, whatever the
noise."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from torchscale.analysis.stats.change_points import MIN_LENGTH, NoisySeries, change_points


def series(
    random: np.random.Generator, *levels: tuple[int, float], noise: float = 0.015
) -> NoisySeries:
    """So many values at each level, with heavy tails (Student's t with three degrees)."""
    count = sum(length for length, _ in levels)
    steps = itertools.chain.from_iterable([math.log(level)] * length for length, level in levels)
    return NoisySeries(
        tuple(np.fromiter(steps, float) + noise * random.standard_t(3, count) / math.sqrt(3))
    )


def test_series_without_a_change_are_left_alone() -> None:
    random = np.random.default_rng(11)
    rounds = [change_points([series(random, (60, 1.0)) for _ in range(20)]) for _ in range(20)]
    # 20 histories of 20 series; a rate of 1 % makes 0.2 of these histories speak, and 3 has a
    # probability of 0.001.
    assert sum(any(places) for one in rounds for places in one) < 3


def test_a_change_is_found_at_its_place() -> None:
    random = np.random.default_rng(12)
    found = change_points(
        [series(random, (60, 1.0), (40, level)) for level in (0.9, 0.95, 1.05, 1.1)]
    )
    assert [len(places) for places in found] == [1, 1, 1, 1]
    assert all(abs(places[0] - 60) <= 2 for places in found)


def test_several_changes_and_one_that_was_taken_back() -> None:
    random = np.random.default_rng(13)
    (places,) = change_points([series(random, (50, 1.0), (30, 0.93), (40, 1.0), (30, 1.08))])
    assert len(places) == 3
    assert all(
        abs(place - expected) <= 2 for place, expected in zip(places, (50, 80, 120), strict=True)
    )


def test_a_large_change_is_told_from_the_fewest_runs_and_not_from_fewer() -> None:
    random = np.random.default_rng(14)
    others = [series(random, (100, 1.0)) for _ in range(9)]
    for after in range(1, MIN_LENGTH):
        assert change_points([series(random, (100, 1.0), (after, 0.8)), *others])[0] == ()
    assert change_points([series(random, (100, 1.0), (MIN_LENGTH, 0.8)), *others])[0] == (100,)


def test_outliers_are_no_change() -> None:
    logs = np.array(series(np.random.default_rng(15), (80, 1.0)).logs)
    logs[[20, 41, 42, 63]] -= 0.5
    assert change_points([NoisySeries(tuple(logs))]) == [()]


def test_runs_of_few_launches_weigh_less() -> None:
    """Ten noisy runs of one launch each, by chance at one end, among runs of many launches."""
    random = np.random.default_rng(16)
    precise, coarse = 0.002 * random.standard_normal(40), 0.05 * random.standard_normal(10)
    logs = np.concatenate([precise[:20], coarse, precise[20:] - 0.01])
    variances = (4e-6,) * 20 + (25e-4,) * 10 + (4e-6,) * 20
    (weighted,) = change_points([NoisySeries(tuple(logs), variances)])
    assert len(weighted) == 1
    assert 20 <= weighted[0] <= 30  # where among the coarse ones cannot be told


def test_figures_that_repeat_exactly() -> None:
    constant, stepped = (0.5,) * 40, (0.5,) * 20 + (0.6,) * 20
    assert change_points([NoisySeries(constant), NoisySeries(stepped)]) == [(), (20,)]
    below = (0.5,) * 20 + (
        0.50001,
    ) * 20  # far below what is told from equal, and still no division by zero
    assert all(math.isfinite(place) for place in change_points([NoisySeries(below)])[0])


@pytest.mark.parametrize("length", [0, 1, 2, 2 * MIN_LENGTH - 1])
def test_too_short_series(length: int) -> None:
    assert change_points([NoisySeries(tuple(float(number) for number in range(length)))]) == [()]
    assert change_points([]) == []


def test_the_same_series_always_give_the_same() -> None:
    random = np.random.default_rng(17)
    several = [series(random, (40, 1.0), (20, 0.96)) for _ in range(5)]
    assert change_points(several) == change_points(several)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_not_finite_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="not finite"):
        change_points([NoisySeries((1.0, value))])
    with pytest.raises(ValueError, match="not finite"):
        change_points([NoisySeries((1.0, 2.0), (0.0, value))])
