from __future__ import annotations

import math

import pytest
from scipy import stats

from torchscale.analysis.stats.mean_differences import MeanDifference, mean_difference


def test_it_is_welchs_test_on_the_values_themselves() -> None:
    before, after = [1.0, 1.2, 0.9, 1.1], [-0.5, 0.3, 0.1]
    found = mean_difference([before], [after])
    expected = stats.ttest_ind(after, before, equal_var=False)
    assert found.value == pytest.approx(sum(after) / 3 - sum(before) / 4)
    assert found.p() == pytest.approx(expected.pvalue)
    low, high = expected.confidence_interval()
    assert found.interval == pytest.approx((low, high))


def test_differences_of_parts_add_up() -> None:
    parts = [([0.1, 0.3, 0.2], [0.2, 0.2, 0.5]), ([1.7, 1.1, 1.4], [0.3, 0.6, 0.1])]
    sides = [
        [sum(values) for values in zip(*side, strict=True)] for side in zip(*parts, strict=True)
    ]
    whole = mean_difference([sides[0]], [sides[1]])
    assert math.fsum(mean_difference([a], [b]).value for a, b in parts) == pytest.approx(
        whole.value, abs=1e-15
    )


def test_one_launch_tells_nothing_of_noise() -> None:
    found = mean_difference([[1.0]], [[2.0, 2.1]])
    assert found.value == pytest.approx(1.05)
    assert found.interval is None
    assert found.p() is None


def test_a_difference_is_tested_beyond_what_a_disturbance_may_have_made() -> None:
    found = MeanDifference(1.0, 1.5, error=0.1, degrees=10.0)
    assert found.p(most=0.5) == 1.0
    assert found.p(most=math.inf) == 1.0
    assert found.p(least=-math.inf) == found.p(), "it may have been hidden, but is there"
    assert found.p(most=0.2) == pytest.approx(MeanDifference(1.0, 1.3, 0.1, 10.0).p())
    faster = MeanDifference(1.5, 1.0, error=0.1, degrees=10.0)
    assert faster.p(least=-0.5) == 1.0
    assert faster.p(most=0.5) == faster.p()


def test_values_without_spread_differ_or_do_not() -> None:
    assert mean_difference([[1.0, 1.0]], [[1.0, 1.0]]).p() == 1.0
    assert mean_difference([[1.0, 1.0]], [[2.0, 2.0]]).p() == 0.0
    assert mean_difference([[1.0, 1.0]], [[2.0, 2.0]]).interval == (1.0, 1.0)


def test_the_noise_between_sessions_widens_the_interval() -> None:
    one = mean_difference([[1.0, 1.01, 0.99, 1.3, 1.31, 1.29]], [[1.2, 1.21, 1.19]])
    several = mean_difference([[1.0, 1.01, 0.99], [1.3, 1.31, 1.29]], [[1.2, 1.21, 1.19]])
    assert one.value == several.value
    assert one.interval is not None
    assert several.interval is not None
    assert several.interval[0] < one.interval[0]


def test_launches_that_are_sessions_of_their_own_hold_that_noise_already() -> None:
    apart = mean_difference([[1.0], [1.1], [1.2]], [[1.4], [1.3], [1.5]])
    assert apart == mean_difference([[1.0, 1.1, 1.2]], [[1.4, 1.3, 1.5]])
