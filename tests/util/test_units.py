from __future__ import annotations

import pytest

from torchscale.util.units import (
    format_byte_rate,
    format_bytes,
    format_change,
    format_flops,
    format_percent,
    format_rate,
    format_seconds,
    parse_bytes,
    parse_duration,
    parse_moment,
)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1023.6, "1.00 KiB"),
        (1536, "1.50 KiB"),
        (10234, "9.99 KiB"),
        (10239, "10.0 KiB"),
        (80 * 2**30, "80.0 GiB"),
        (2**60, "1024 PiB"),
    ],
)
def test_bytes(count: float, text: str) -> None:
    assert format_bytes(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0000025, "2.50 µs"),
        (0.0009996, "1.00 ms"),
        (0.22, "220 ms"),
        (0.9996, "1.00 s"),
        (9.996, "10.0 s"),
        (1.4567, "1.46 s"),
        (59.4, "59.4 s"),
        (59.97, "1 min 00 s"),
        (3599.8, "1 h 00 min"),
        (200.0, "3 min 20 s"),
        (7500.0, "2 h 05 min"),
        (-0.0123, "-12.3 ms"),
    ],
)
def test_seconds(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.000512, "512 µs"), (0.0000997, "100 µs"), (0.0000123, "12 µs"), (0.0061, "6.1 ms")],
)
def test_whole_numbers_of_more_digits_are_written_in_full(seconds: float, text: str) -> None:
    assert format_seconds(seconds, 2) == text


@pytest.mark.parametrize(
    ("rate", "text"), [(1450.4, "1,450"), (12.345, "12.3"), (0.0421, "0.0421"), (0.0, "0")]
)
def test_rate(rate: float, text: str) -> None:
    assert format_rate(rate) == text


def test_percent() -> None:
    assert format_percent(0.934) == "93.4 %"
    assert format_percent(0.934, 0) == "93 %"
    assert format_percent(-0.0004) == "0.0 %"


@pytest.mark.parametrize(
    ("ratio", "text"),
    [(0.0123, "+1.2 %"), (-0.5, "-50.0 %"), (0.0004, "0.0 %"), (-0.0004, "0.0 %"), (8.0, "+800.0 %"), (9.0, "×10.0"),
     (122.0, "×123"), (1e60, "×1.0e+60")],
)  # fmt: skip
def test_change(ratio: float, text: str) -> None:
    assert format_change(ratio) == text


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 30.0),
        ("30s", 30.0),
        ("2m", 120.0),
        ("1.5h", 5400.0),
        ("250ms", 0.25),
        (" 2 min ", 120.0),
    ],
)
def test_duration(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "soon", "-3s", "3 days", "1e3", "nan"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "count"),
    [("8", 8), ("1KiB", 1024), ("64M", 64 << 20), ("1.5GB", 3 << 29), (" 2 kib ", 2048), ("7B", 7)],
)
def test_bytes_as_people_type_them(text: str, count: int) -> None:
    assert parse_bytes(text) == count


@pytest.mark.parametrize("text", ["", "x", "1XB", "-1", "1 K B", "1e3"])
def test_what_is_no_number_of_bytes(text: str) -> None:
    with pytest.raises(ValueError, match="not a number of bytes"):
        parse_bytes(text)


def test_rates_have_decimal_prefixes() -> None:
    assert format_byte_rate(4.3e12) == "4.30 TB/s"
    assert format_byte_rate(999.6) == "1.00 kB/s"
    assert format_flops(7.9e14) == "790 TFLOP/s"
    assert format_flops(2.5e18) == "2500 PFLOP/s"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-01-02T03:04:05+00:00", "2026-01-02T03:04:05+00:00"),
        ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05+00:00"),
        ("2026-01-02T03:04:05", "2026-01-02T03:04:05+00:00"),
        ("2026-01-02T03:04:05+14:00", "2026-01-01T13:04:05+00:00"),
        ("1900-01-02T03:04:05-05:00", "1900-01-02T08:04:05+00:00"),
    ],
)
def test_a_moment_is_read_in_utc(text: str, expected: str) -> None:
    moment = parse_moment(text)
    assert moment is not None
    assert moment.isoformat() == expected


@pytest.mark.parametrize(
    "text",
    ["", "zzz", "12", "2026-13-01", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"],
)
def test_what_is_no_moment_is_none(text: str) -> None:
    assert parse_moment(text) is None
