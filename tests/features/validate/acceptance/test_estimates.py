"""Levels over rounds, and two speeds of one figure."""

from __future__ import annotations

import numpy as np
import pytest

from tests.features.validate.acceptance.runs import noisy
from torchscale.analysis.stats.estimate import from_log
from torchscale.features.validate.acceptance.estimates import log_level, modes


def test_the_level_is_the_geometric_mean_with_students_interval() -> None:
    found = log_level([100.0, 110.0, 121.0]).through(from_log)
    assert found.value == pytest.approx(110.0)
    # logarithms are 0.09531 apart: s = 0.09531, error 0.05503, t with two degrees 4.3027
    assert found.ends == pytest.approx((110 * 0.78918, 110 * 1.26714), rel=1e-4)


def test_one_round_has_no_interval() -> None:
    assert log_level([5.0]).ends is None


def test_a_figure_that_alternates_has_two_speeds_and_says_which_rounds() -> None:
    rng = np.random.default_rng(1)
    values = [rate * (0.85 if it % 2 else 1.0) for it, rate in enumerate(noisy(rng, 100.0, 10))]
    found = modes(values, 1e-3)
    assert found is not None
    slow, fast = found
    assert slow.rounds == (1, 3, 5, 7, 9)
    assert slow.rate == pytest.approx(85, rel=0.02)
    assert fast.rate == pytest.approx(100, rel=0.02)


@pytest.mark.parametrize("rounds", [60, 400, 1200])
def test_two_speeds_are_found_in_any_number_of_rounds(rounds: int) -> None:
    rng = np.random.default_rng(rounds)
    values = [
        rate * (0.9 if it % 3 == 0 else 1.0) for it, rate in enumerate(noisy(rng, 9.0, rounds))
    ]
    assert modes(values, 1e-5) is not None
    assert modes(noisy(rng, 9.0, rounds, 0.03), 1e-5) is None


def test_rounds_that_were_not_measured_keep_the_numbers_of_the_others() -> None:
    found = modes([100.0, None, 80.0, 100.1, None, 80.1, 99.9, 79.9], 1e-3)
    assert found is not None
    assert found[0].rounds == (2, 5, 7)


def test_a_single_round_apart_is_no_second_speed() -> None:
    assert modes([100.0, 100.1, 99.9, 60.0, 100.05, 99.95], 1e-3) is None


def test_a_gap_below_five_percent_is_no_second_speed() -> None:
    assert modes([100.0, 97.0] * 6, 1e-3) is None


@pytest.mark.parametrize("rounds", [4, 6, 12, 30])
def test_normal_noise_is_hardly_ever_taken_for_two_speeds(rounds: int) -> None:
    """The bound is 1 in 1,000 of figures; the noise is large enough for gaps above 5 %."""
    rng = np.random.default_rng(rounds)
    found = sum(modes(noisy(rng, 1.0, rounds, 0.1), 1e-3) is not None for _ in range(2000))
    assert found <= 8  # a Poisson mean of 2 exceeds 8 once in 4,000 tests


def test_too_few_rounds_tell_nothing_of_two_speeds() -> None:
    assert modes([100.0, 50.0, 100.0], 1e-3) is None


def test_a_few_rounds_that_agree_closely_are_no_two_speeds_by_that() -> None:
    """Copies of a sound node under a quota, whose rates differ by 3 to 7 % from round to round."""
    values = [5.84e9, 5.05e9, 5.06e9, 5.85e9, 5.04e9]
    assert modes(values, 8e-5) is None
    assert modes([*values, *values], 8e-5) is not None, "ten rounds tell it from chance"
