from __future__ import annotations

import math
from statistics import geometric_mean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchscale.analysis.stats.ratios import LogRatio, holm, log_ratio, mean_ratio

AFTER, BEFORE = [104.0, 101.0, 106.0, 103.0], [100.0, 98.0, 101.0]


def test_ratio_interval_and_p_are_those_of_an_independent_tool() -> None:
    from scipy import stats

    found = log_ratio(AFTER, BEFORE)
    told = stats.ttest_ind(
        [math.log(x) for x in AFTER], [math.log(x) for x in BEFORE], equal_var=False
    )
    low, high = told.confidence_interval(0.95)
    assert found.p == pytest.approx(told.pvalue)
    assert found.interval == pytest.approx((math.exp(low), math.exp(high)))
    assert found.value == pytest.approx(stats.gmean(AFTER) / stats.gmean(BEFORE))


def test_launches_that_have_nothing_in_common_give_an_interval_all_the_same() -> None:
    found = log_ratio([1e-30, 1e30], [1e30, 1e-30])
    assert found.interval is not None
    assert 0 <= found.interval[0] < 1e-100
    assert 1e100 < found.interval[1] < math.inf


def test_one_launch_gives_a_ratio_and_nothing_about_its_spread() -> None:
    found = log_ratio([110.0], BEFORE)
    assert found.value == pytest.approx(110 / geometric_mean(BEFORE))
    assert found.interval is None
    assert found.p is None


def test_launches_that_all_agree_leave_no_doubt() -> None:
    assert log_ratio([100.0] * 3, [100.0] * 3).p == 1.0
    different = log_ratio([105.0] * 3, [100.0] * 3)
    assert different.p == 0.0
    assert different.interval == pytest.approx((1.05, 1.05))


def test_a_figure_that_is_not_positive_has_no_ratio() -> None:
    with pytest.raises(ValueError, match="math domain"):
        log_ratio([1.0, -1.0], BEFORE)


def test_the_mean_of_ratios_counts_each_once_and_narrows() -> None:
    one = log_ratio(AFTER, BEFORE)
    four = mean_ratio([one] * 4)
    assert four.value == pytest.approx(one.value)
    assert one.error is not None
    assert one.degrees is not None
    assert four.error == pytest.approx(one.error / 2)
    assert four.degrees == pytest.approx(4 * one.degrees)
    assert mean_ratio([LogRatio(math.log(2)), one]).interval is None
    with pytest.raises(ValueError, match="no ratios"):
        mean_ratio([])


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), max_size=30))
def test_holm_only_ever_raises_and_keeps_the_order(values: list[float]) -> None:
    adjusted = holm(values)
    assert all(value <= found <= 1 for value, found in zip(values, adjusted, strict=True))
    ordered = sorted(range(len(values)), key=lambda index: values[index])
    assert [adjusted[index] for index in ordered] == sorted(adjusted)
