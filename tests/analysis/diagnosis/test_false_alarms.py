"""How often equal systems are called different, by the simulation of ``benchmarks/comparison.py``
in short."""

from __future__ import annotations

import pytest
from comparison import CHANGE, Noise, simulate
from scipy import stats

PAIRS = 400


@pytest.mark.parametrize("launches", [3, 5])
@pytest.mark.parametrize("noise", [0.003, 0.03])
def test_equal_pairs_are_rarely_called_different(noise: float, launches: int) -> None:
    rates = simulate(Noise(noise), launches, PAIRS, 0.0, seed=1)
    # 5 % and what chance adds to so many draws of 5 %, once in a thousand.
    assert rates.called_different <= stats.binom.ppf(0.999, PAIRS, 0.05) / PAIRS
    if noise == 0.03:
        assert rates.pooled_different > 0.5, "pooling steps would call most of them different"


def test_a_family_of_cells_has_no_more_false_alarms_than_one() -> None:
    rates = simulate(Noise(0.03), 5, 100, 0.0, seed=2, family=12)
    assert rates.called_different <= stats.binom.ppf(0.999, 100, 0.05) / 100


def test_a_slow_down_is_seen_where_noise_is_small_and_launches_are_enough() -> None:
    assert simulate(Noise(0.003), 5, PAIRS, CHANGE, seed=3).called_worse > 0.95
    assert simulate(Noise(0.003), 2, PAIRS, CHANGE, seed=3).called_worse == 0, (
        "two launches decide nothing"
    )
    assert simulate(Noise(0.03), 3, PAIRS, CHANGE, seed=3).called_worse < 0.5
