"""An interval is shown by its ends, wherever it is shown."""

from __future__ import annotations

import math

import pytest

from torchscale.util.interval_text import (
    finite_ends,
    format_ends,
    format_interval,
    format_share_interval,
    with_interval,
)
from torchscale.util.units import format_rate, format_seconds


@pytest.mark.parametrize(
    ("low", "high", "wanted"),
    [
        ("25 %", "84 %", "25 to 84 %"),
        ("-0.4 %", "+2.9 %", "-0.4 to +2.9 %"),
        ("794 µs", "1.02 ms", "794 µs to 1.02 ms"),
        ("+850.0 %", "×12.3", "+850.0 % to ×12.3"),
        ("1,200", "1,260", "1,200 to 1,260"),
        ("1 min 20 s", "1 min 25 s", "1 min 20 s to 1 min 25 s"),
        ("9.5 s", "1 min 25 s", "9.5 s to 1 min 25 s"),
    ],
)
def test_a_unit_stands_once_where_both_ends_have_it(low: str, high: str, wanted: str) -> None:
    assert format_ends(low, high) == wanted


def test_both_ends_of_an_asymmetric_interval_are_shown() -> None:
    assert (
        with_interval("46.1 %", format_share_interval(0.461, (0.2517, 0.8443)))
        == "46.1 % (25 to 84 %)"
    )
    assert (
        with_interval("1,234", format_interval(1234, (1200, 1260), format_rate))
        == "1,234 (1,200 to 1,260)"
    )


def test_a_narrow_share_keeps_its_digit() -> None:
    assert format_share_interval(0.952, (0.9498, 0.9542)) == "95.0 to 95.4 %"


@pytest.mark.parametrize(
    ("interval", "wanted"),
    [
        ((1e-9, 1e30), "under 1.60 to over 16,000"),
        ((120.0, math.inf), "120 to over 16,000"),
        ((0.0, 170.0), "under 1.60 to 170"),
    ],
)
def test_ends_that_say_nothing_are_bounded(interval: tuple[float, float], wanted: str) -> None:
    assert format_interval(160.0, interval, format_rate) == wanted


def test_times() -> None:
    assert format_interval(0.000812, (0.000794, 0.000833), format_seconds) == "794 to 833 µs"
    assert with_interval("812 µs", "") == "812 µs"


def test_narrow_ends_get_as_many_digits_as_tell_them_apart() -> None:
    assert format_interval(160.0, (159.6, 160.4), format_rate) == "159.6 to 160.4"
    assert format_interval(0.0012, (0.0011996, 0.0012004), format_seconds) == "1.1996 to 1.2004 ms"
    assert format_interval(160.0, (160.0, 160.0), format_rate) == "160 to 160", "of no width"


def test_files_have_none_for_an_end_that_is_not_there() -> None:
    assert finite_ends((1.0, 2.0)) == (1.0, 2.0)
    assert finite_ends((1.0, math.inf)) == (1.0, None)
    assert finite_ends(None) == (None, None)
