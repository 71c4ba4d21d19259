"""Two levels, one change, and growth: worked by hand, and against scipy."""

from __future__ import annotations

import numpy as np
import pytest

from torchscale.analysis.stats.levels import (
    between_parts,
    line,
    off_one_change,
    rises,
    scatter,
    two_levels,
)


def test_the_scatter_of_normal_noise_is_its_standard_deviation() -> None:
    noise = np.random.default_rng(0).normal(0, 0.05, (2, 4_000))
    assert float(scatter(noise)) == pytest.approx(0.05, rel=0.03)
    assert scatter(noise, axis=1).shape == (2,)
    assert scatter(noise, axis=1, keepdims=True).shape == (2, 1)
    noise[0, 0] = 1e9
    assert float(scatter(noise)) == pytest.approx(0.05, rel=0.03)


def test_parts_worked_by_hand() -> None:
    """0, 0, 3: behind the first cut 1.5 against 0, behind the second 3 against 0."""
    values = np.array([0.0, 0.0, 3.0])
    assert rises(values).tolist() == pytest.approx([1.5, 3.0])
    assert between_parts(values).tolist() == pytest.approx([1.5**2 * 2 / 3, 3.0**2 * 2 / 3])
    assert rises(-values).tolist() == pytest.approx([-1.5, -3.0])


def test_both_parts_and_what_is_between_them_make_up_the_whole() -> None:
    values = np.random.default_rng(1).normal(1e6, 1, (3, 20))
    between = between_parts(values)
    for cut in range(1, 20):
        within = values[:, :cut].var(axis=1) * cut + values[:, cut:].var(axis=1) * (20 - cut)
        assert within + between[:, cut - 1] == pytest.approx(values.var(axis=1) * 20)


def test_two_levels_and_the_scatter_within_them() -> None:
    """Scatter is a standard deviation, by which it is judged whether the levels are two at all."""
    random = np.random.default_rng(0)
    values = random.normal(0.0, 0.05, (3, 400))
    values[:, 300:] += 1.0
    levels = two_levels(random.permuted(values, axis=1))
    assert levels.low == pytest.approx(0.0, abs=0.02)
    assert levels.high == pytest.approx(1.0, abs=0.02)
    assert levels.scatter == pytest.approx(0.05, rel=0.15)


def test_each_level_is_the_median_of_its_values() -> None:
    uneven = two_levels(np.array([[13.0, 0.0, 10.0, 1.0, 12.0, 2.0, 11.0]]))
    assert (uneven.low[0], uneven.high[0], uneven.scatter[0]) == (1.0, 11.5, 1.4826)
    even = two_levels(np.array([[11.0, 0.0, 10.0, 1.0, 12.0]]))
    assert (even.low[0], even.high[0], even.scatter[0]) == (0.5, 11.0, 0.7413)


def test_what_one_change_leaves() -> None:
    assert off_one_change(np.array([1.0, 1.0, 1.0, 5.0, 5.0])) == pytest.approx(0, abs=1e-7)
    # the best cut of 0, 1, 2, 3 is in the middle: each value 0.5 from its level
    assert off_one_change(np.arange(4.0)) == pytest.approx(0.5)


def test_a_line_is_that_of_theil_and_sen_with_kendalls_correlation() -> None:
    from scipy import stats

    random = np.random.default_rng(3)
    time = np.sort(random.uniform(0, 50, 24))
    values = 0.3 * time + random.normal(0, 1, 24)
    values[5] = 1e3
    found = line(time, values)
    theirs = stats.theilslopes(values, time)
    assert found.slope.value == pytest.approx(theirs.slope)
    assert found.slope.ends == pytest.approx((theirs.low_slope, theirs.high_slope), rel=0.02)
    assert found.slope.count == 24
    assert found.correlation == pytest.approx(stats.kendalltau(time, values).statistic)


def test_the_interval_of_a_slope_holds_the_true_one() -> None:
    random, time = np.random.default_rng(4), np.arange(12.0)
    held = 0
    for _ in range(400):
        low, high = line(time, 0.1 * time + random.normal(0, 0.2, 12)).slope.bounds
        held += low <= 0.1 <= high
    assert 0.92 <= held / 400 <= 0.99


def test_growth_lies_on_a_line_and_one_change_does_not() -> None:
    time = np.arange(24.0)
    noise = np.random.default_rng(5).normal(0, 0.5, 24)
    grows, changed = 0.5 * time + noise, 6.0 * (time >= 12) + noise
    assert line(time, grows).off < off_one_change(grows)
    assert line(time, changed).off > off_one_change(changed)
    assert line(time, noise).correlation == pytest.approx(0, abs=0.4)


def test_values_at_one_time_are_no_slope() -> None:
    found = line(np.array([0.0, 0.0, 1.0, 2.0]), np.array([5.0, 0.0, 1.0, 2.0]))
    assert found.slope.value == pytest.approx(1.0)
