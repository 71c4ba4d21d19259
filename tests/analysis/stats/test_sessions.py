from __future__ import annotations

import math

import numpy as np
import pytest

from torchscale.analysis.stats.ratios import log_ratio, mean_ratio
from torchscale.analysis.stats.sessions import (
    Groups,
    SessionNoise,
    session_noise,
    with_session_noise,
)

FLAT = [[1.0, 1.01, 0.99]]


def flat(groups: Groups) -> list[float]:
    return [value for group in groups for value in group]


def test_the_estimate_is_that_of_the_analysis_of_variance() -> None:
    """Two sessions of two launches, logarithms 0 and 0.02, then 0.1 and 0.12: within 2 × 0.0002
    with 2 degrees, between 4 × 0.05² with 1 degree; their difference ÷ 2 launches."""
    groups = [[math.exp(0.0), math.exp(0.02)], [math.exp(0.1), math.exp(0.12)]]
    noise = session_noise([groups, FLAT])
    assert noise is not None
    assert noise.variance == pytest.approx((4 * 0.05**2 - 2 * 0.0002 / 2) / 2)
    assert noise.spread == pytest.approx(math.sqrt(noise.variance))
    assert noise.degrees == 1


def test_sessions_no_further_apart_than_launches_add_nothing() -> None:
    noise = session_noise([[[1.0, 1.1], [1.1, 1.0]]])
    assert noise == SessionNoise(0.0, 1.0)


@pytest.mark.parametrize(
    "groups", [FLAT, [[1.0], [1.1], [0.9]]], ids=["one session", "each launch its own"]
)
def test_where_sessions_cannot_be_told_from_launches_nothing_is_estimated(groups: Groups) -> None:
    assert session_noise([groups, groups]) is None


def test_a_single_session_gets_all_of_the_noise_and_launches_of_their_own_sessions_none() -> None:
    noise = SessionNoise(0.01, 4.0)
    ratio = log_ratio([1.0, 1.01, 0.99], [1.0, 1.01, 0.99])
    own = [[1.0], [1.01], [0.99]]
    assert with_session_noise(ratio, [FLAT, own], noise).session_error == pytest.approx(0.1)
    assert with_session_noise(ratio, [own, own], noise).session_error == pytest.approx(
        0.0, abs=1e-9
    )
    wider = with_session_noise(ratio, [FLAT, own], noise).interval
    assert wider is not None
    assert ratio.interval is not None
    assert wider[0] < ratio.interval[0] < ratio.interval[1] < wider[1]
    assert with_session_noise(log_ratio([1.0], [1.0]), [FLAT, own], noise).interval is None


def test_what_sessions_add_does_not_shrink_with_the_number_of_cells() -> None:
    ratio = with_session_noise(log_ratio(FLAT[0], FLAT[0]), [FLAT, FLAT], SessionNoise(0.01, 2.0))
    many = mean_ratio([ratio] * 100)
    assert many.session_error == pytest.approx(ratio.session_error)
    assert many.error == pytest.approx((ratio.error or 0) / 10)


def test_equal_pairs_over_noisy_sessions_are_seldom_called_different() -> None:
    """Sessions that differ three times as much as launches; without their noise a third and more
    differ."""
    generator = np.random.default_rng(7)

    def side(sessions: int) -> list[list[float]]:
        levels = generator.normal(0, 0.06, sessions)
        return [np.exp(level + generator.normal(0, 0.02, 3)).tolist() for level in levels]

    without = different = 0
    pairs = 300
    for number in range(pairs):
        sides = [side(5), side(1 if number % 2 else 5)]
        ratio = log_ratio(flat(sides[1]), flat(sides[0]))
        noise = session_noise(sides)
        assert noise is not None
        without += (ratio.p or 1.0) < 0.05
        different += (with_session_noise(ratio, sides, noise).p or 1.0) < 0.05
    assert without > 0.3 * pairs
    assert different < 0.12 * pairs
