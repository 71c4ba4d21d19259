"""Times of runs in words."""

from __future__ import annotations

from torchscale.report.text.times import format_days, format_minute, format_period


def test_a_day_is_repeated_where_it_is_another() -> None:
    assert format_minute("2026-11-20T14:02:31+00:00") == "2026-11-20 14:02"
    assert (
        format_period("2026-11-20T14:02:31+00:00", "2026-11-20T15:31:00+00:00")
        == "2026-11-20 14:02 to 15:31 UTC"
    )
    assert (
        format_period("2026-11-20T23:02:31+00:00", "2026-11-21T01:31:00+00:00")
        == "2026-11-20 23:02 to 2026-11-21 01:31 UTC"
    )
    assert format_period("2026-11-20T14:02:31", "2026-11-20T14:02:59") == "2026-11-20 14:02 UTC"


def test_days_are_named_once() -> None:
    assert format_days([]) == ""
    assert format_days(["2026-11-20T14:02", "2026-11-20T15:02"]) == "2026-11-20"
    assert format_days(["2026-11-22T14:02", "2026-11-20T15:02"]) == "2026-11-20 to 2026-11-22"
