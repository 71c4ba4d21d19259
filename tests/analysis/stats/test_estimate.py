"""A mean with its interval."""

from __future__ import annotations

import math

import numpy as np
import pytest

from torchscale.analysis.stats.estimate import (
    Estimate,
    from_log,
    geometric_half_width,
    relative_half_width,
)
from torchscale.util.units import format_seconds


def test_a_mean_worked_by_hand() -> None:
    """1, 2, 3: mean 2, standard deviation 1, standard error 1/√3, t(2) = 4.3027."""
    mean = Estimate.of_mean([1.0, 2.0, 3.0])
    half = 4.3027 / 3**0.5

    assert (mean.value, mean.count) == (2.0, 3)
    assert mean.ends == pytest.approx((2 - half, 2 + half), abs=1e-4)
    assert mean.error == pytest.approx(1 / 3**0.5)
    assert relative_half_width([1.0, 2.0, 3.0]) == pytest.approx(half / 2, rel=1e-4)


def test_a_single_value_has_no_interval() -> None:
    for one in (Estimate.of_mean([5.0]), Estimate.of_log_mean([5.0])):
        assert (one.value, one.low, one.high, one.count) == (5.0, None, None, 1)
        assert one.ends is None
        assert one.bounds == (-math.inf, math.inf)
        assert one.text(format_seconds) == "5.00 s"
    assert geometric_half_width([5.0]) is None


@pytest.mark.parametrize("values", [[], [1.0], [0.0, 0.0]])
def test_too_little_has_no_relative_width(values: list[float]) -> None:
    assert relative_half_width(values) is None


def test_a_geometric_mean_has_an_interval_by_factors() -> None:
    """Logarithms 0.09531 apart: s = 0.09531, error 0.05503, t with two degrees 4.3027."""
    mean = Estimate.of_log_mean([100.0, 110.0, 121.0])

    assert mean.value == pytest.approx(110.0)
    assert mean.ends == pytest.approx((110 * 0.78918, 110 * 1.26714), rel=1e-4)
    assert geometric_half_width([100.0, 110.0, 121.0]) == pytest.approx(0.26714, rel=1e-4)
    logs = Estimate.of_mean([math.log(value) for value in (100.0, 110.0, 121.0)])
    assert logs.through(from_log).ends == pytest.approx(mean.ends)


def test_launches_far_apart_have_finite_ends() -> None:
    half = geometric_half_width([1e-300, 1e300])

    assert half is not None
    assert math.isfinite(half)
    assert math.isfinite(from_log(1e6))


def test_a_geometric_mean_is_of_positive_values() -> None:
    for values in ([], [1.0, 0.0]):
        with pytest.raises(ValueError, match=r"no values|math|positive"):
            Estimate.of_log_mean(values)


def test_the_text_has_the_value_and_both_ends() -> None:
    assert Estimate(0.012, 0.0091, 0.0149, 4).text(format_seconds) == "12.0 ms (9.10 to 14.9 ms)"


def test_a_function_goes_through_value_and_ends_alike() -> None:
    share = Estimate(0.1, 0.05, 0.2, 7).through(math.expm1)

    assert share.value == math.expm1(0.1)
    assert share.ends == (math.expm1(0.05), math.expm1(0.2))
    assert share.count == 7


def test_a_nominal_95_percent_interval_covers_about_95_percent() -> None:
    random = np.random.default_rng(1)
    covered = 0
    for _ in range(2000):
        low, high = Estimate.of_mean(random.normal(1.0, 0.03, 12).tolist()).bounds
        covered += low <= 1.0 <= high
    assert 0.935 <= covered / 2000 <= 0.965
