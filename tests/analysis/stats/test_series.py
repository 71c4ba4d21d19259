from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchscale.analysis.stats.series import (
    digest,
    drift_probability,
    is_steady,
    lag1_autocorrelation,
    pooled_digest,
    quarter_means,
    relative_drift,
    student_t_quantile,
)


@pytest.mark.parametrize(
    ("degrees", "quantile"), [(1, 12.7062), (4, 2.7764), (9, 2.2622), (30, 2.0423)]
)
def test_t_quantiles_from_the_printed_table(degrees: int, quantile: float) -> None:
    assert student_t_quantile(0.975, degrees) == pytest.approx(quantile, abs=1e-4)


def test_autocorrelation() -> None:
    assert lag1_autocorrelation([1.0, 2.0]) is None
    assert lag1_autocorrelation([3.0, 3.0, 3.0]) is None
    alternating = lag1_autocorrelation([1.0, -1.0] * 50)
    assert alternating == pytest.approx(-0.99)


def test_drift_is_the_last_third_against_the_first() -> None:
    assert relative_drift([1.0, 1.0, 5.0, 5.0, 1.1, 1.1]) == pytest.approx(0.1)
    assert relative_drift([1.0, 2.0]) is None


def test_a_series_is_steady_where_each_quarter_has_half_of_its_mean() -> None:
    assert quarter_means([1.0, 3.0, 2.0, 2.0, 5.0, 5.0, 6.0, 8.0]) == [2.0, 2.0, 5.0, 7.0]
    assert quarter_means([4.0, 2.0]) == [4.0, 2.0]
    assert is_steady([2.0, 4.0, 4.0, 6.0])
    assert not is_steady([1.9, 4.0, 4.0, 6.0])


def test_a_digest_worked_by_hand() -> None:
    found = digest([float(value) for value in range(1, 102)])
    assert (found.count, found.minimum, found.maximum, found.mean) == (101, 1.0, 101.0, 51.0)
    assert (found.p50, found.p95, found.p99) == (51.0, 96.0, 100.0)
    assert found.values == tuple(range(1, 102))
    assert digest([1.0, 2.0], keep_values=False).values == ()
    with pytest.raises(ValueError, match="empty"):
        digest([])


@given(st.lists(st.floats(1e-7, 1e4), min_size=1, max_size=60))
def test_a_digest_of_any_series_is_in_order_and_counts_everything(values: list[float]) -> None:
    found = digest(values)
    slack = 1e-9 * found.maximum
    assert found.minimum <= found.p50 + slack
    assert found.p50 <= found.p95 + slack
    assert found.p95 <= found.p99 + slack
    assert found.p99 <= found.maximum + slack
    assert list(found.values) == sorted(found.values)
    assert len(found.values) == len(values)


@given(st.lists(st.lists(st.floats(1e-3, 10), min_size=1, max_size=60), min_size=2, max_size=5))
def test_pooled_quantiles_are_those_of_all_values(parts: list[list[float]]) -> None:
    pooled, together = (
        pooled_digest([digest(part) for part in parts]),
        digest([value for part in parts for value in part]),
    )
    assert pooled.count == together.count
    for name in ("mean", "minimum", "p50", "p95", "p99", "maximum"):
        assert getattr(pooled, name) == pytest.approx(getattr(together, name), abs=1e-7)
    assert pooled.values == pytest.approx(together.values, abs=1e-7)


def test_long_series_are_thinned_and_pooled_by_how_many_they_stand_for() -> None:
    """2,000 values around 1 and 400 around 3: five sixths of all lie around 1."""
    generator = np.random.default_rng(7)
    long, short = (
        generator.normal(1.0, 0.01, 2000).tolist(),
        generator.normal(3.0, 0.01, 400).tolist(),
    )
    first, second = digest(long), digest(short)
    assert (len(first.values), len(second.values)) == (500, 400)
    assert (first.values[0], first.values[-1]) == pytest.approx((min(long), max(long)), abs=1e-8)
    pooled = pooled_digest([first, second])
    exact = digest([*long, *short])
    assert (pooled.count, len(pooled.values)) == (2400, 500)
    assert pooled.p50 == pytest.approx(exact.p50, abs=1e-3)
    assert pooled.p95 == pytest.approx(exact.p95, abs=1e-3)
    with pytest.raises(ValueError, match="without its values"):
        pooled_digest([first, digest(short, keep_values=False)])


def test_a_step_and_a_line_are_trends_and_wandering_is_none() -> None:
    generator = np.random.default_rng(1)
    noise = generator.normal(0, 0.01, 30)
    for trend in (np.linspace(1.0, 1.1, 30), np.repeat([1.0, 1.05], 15)):
        probability = drift_probability((trend + noise).tolist())
        assert probability is not None and probability < 0.001
    called = 0
    for _ in range(200):
        wandering = [generator.normal(0, 0.05)]
        for _ in range(29):
            wandering.append(0.5 * wandering[-1] + generator.normal(0, 0.04))
        probability = drift_probability([1 + value for value in wandering])
        called += probability is not None and probability < 0.01
    assert called <= 10, "5 % of launches whose batches are half alike"


def test_few_values_and_constant_ones_show_no_chance() -> None:
    assert drift_probability([1.0] * 5) is None
    assert drift_probability([1.0] * 6) == 1.0
    assert drift_probability([1.0, 1.0, 1.0, 1.0, 1.1, 1.1]) == 0.0
