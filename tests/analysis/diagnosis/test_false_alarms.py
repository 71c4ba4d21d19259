"""How often equal systems are called different, by the simulation of ``benchmarks/comparison.py``
in short."""

from __future__ import annotations

import pytest
from comparison import CHANGE, Noise, simulate

PAIRS = 400


def allowed(pairs: int) -> float:
    """5 % and what chance adds to so many draws of 5 %, once in a thousand."""
    from scipy import stats

    return float(stats.binom.ppf(0.999, pairs, 0.05) / pairs)


@pytest.mark.parametrize("launches", [3, 5])
@pytest.mark.parametrize("noise", [0.003, 0.03])
def test_equal_pairs_are_rarely_called_different(noise: float, launches: int) -> None:
    rates = simulate(Noise(noise), launches, PAIRS, 0.0, seed=1)
    assert rates.called_different <= allowed(PAIRS)
    if noise == 0.03:
        assert rates.pooled_different > 0.5, "pooling steps would call most of them different"


def test_a_family_of_cells_has_no_more_false_alarms_than_one() -> None:
    rates = simulate(Noise(0.03), 5, 100, 0.0, seed=2, family=12)
    assert rates.called_different <= allowed(100)


def test_a_slow_down_is_seen_where_noise_is_small_and_launches_are_enough() -> None:
    assert simulate(Noise(0.003), 5, PAIRS, CHANGE, seed=3).called_worse > 0.95
    assert simulate(Noise(0.003), 2, PAIRS, CHANGE, seed=3).called_worse == 0, (
        "two launches decide nothing"
    )
    assert simulate(Noise(0.03), 3, PAIRS, CHANGE, seed=3).called_worse < 0.5
