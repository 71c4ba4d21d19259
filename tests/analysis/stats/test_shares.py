from __future__ import annotations

import pytest

from torchscale.analysis.stats.shares import share_interval


@pytest.mark.parametrize(
    ("have", "count", "low", "high"),
    [  # R: binom.test(have, count)$conf.int
        (0, 10, 0.0, 0.3084971),
        (5, 10, 0.1870860, 0.8129140),
        (3, 20, 0.0320709, 0.3789268),
        (20, 20, 0.8315665, 1.0),
    ],
)
def test_exact_intervals_are_those_of_binom_test(
    have: int, count: int, low: float, high: float
) -> None:
    assert share_interval(have, have, count) == pytest.approx((low, high), abs=1e-6)


def test_what_is_open_for_some_lies_between_both_ends() -> None:
    low, high = share_interval(2, 5, 20)
    assert low == share_interval(2, 2, 20)[0]
    assert high == share_interval(5, 5, 20)[1]


@pytest.mark.parametrize("numbers", [(3, 2, 10), (0, 11, 10), (0, 0, 0)])
def test_numbers_that_do_not_fit_are_refused(numbers: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="is no share"):
        share_interval(*numbers)
