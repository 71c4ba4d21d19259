"""Formats and parses quantities with units: bytes, seconds, rates, ratios. Pure functions, no
dependencies."""

from __future__ import annotations

import re
from datetime import datetime, timezone

_BINARY_PREFIXES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_DURATION = re.compile(r"^\s*(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>ms|s|m|min|h)?\s*$")
_BYTES = re.compile(r"^\s*(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[KMGTkmgt])?(?:i?[Bb])?\s*$")
_SECONDS_PER_UNIT = {"ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, None: 1.0}


def format_bytes(count: float) -> str:
    """``1536`` → ``1.5 KiB``; binary prefixes, three significant digits."""
    value = float(count)
    for prefix in _BINARY_PREFIXES[:-1]:
        if abs(value) < 1023.5:
            return f"{_significant(value)} {prefix}"
        value /= 1024
    return f"{_significant(value)} {_BINARY_PREFIXES[-1]}"


def byte_unit(largest: float) -> tuple[str, int]:
    """The unit for an axis of bytes up to ``largest``: its name, and its size in bytes."""
    power = 0
    while largest >= 1024 and power < len(_BINARY_PREFIXES) - 1:
        largest /= 1024
        power += 1
    return _BINARY_PREFIXES[power], 1024**power


def format_seconds(seconds: float, digits: int = 3) -> str:
    """A short time with its unit: ``220 ms``, ``1.45 s``, ``3 min 20 s``, ``2 h 05 min``, ``-12.3
    ms``; below a minute with so many significant digits."""
    if seconds < 0:
        return f"-{format_seconds(-seconds, digits)}"
    if seconds < 0.9995e-3:  # what rounds to 1 of the next unit is shown in it
        return f"{_significant(seconds * 1e6, digits)} µs"
    if seconds < 0.9995:
        return f"{_significant(seconds * 1e3, digits)} ms"
    if seconds < 59.95:
        return f"{_significant(seconds, digits)} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def format_rate(per_second: float, digits: int = 3) -> str:
    """A rate without its unit: ``1,450``, ``12.3``, ``0.042``; so many significant digits below
    1,000."""
    if abs(per_second) >= 1000:
        return f"{per_second:,.0f}"
    return _significant(per_second, digits)


def format_percent(ratio: float, digits: int = 1) -> str:
    """``0.934`` → ``93.4 %``; what rounds to zero has no sign."""
    return f"{round(ratio * 100, digits) + 0.0:.{digits}f} %"


def format_whole_percent(ratio: float) -> str:
    """``0.934`` → ``93 %``."""
    return format_percent(ratio, 0)


LARGE_FACTOR = 10.0
"""From here on a change is a factor: ``×12.3`` reads better than ``+1130.0 %``."""


def format_change(ratio: float) -> str:
    """``0.0123`` → ``+1.2 %``; values that round to zero give ``0.0 %``, factors of ten and more
    ``×12.3``."""
    factor = ratio + 1
    if factor >= LARGE_FACTOR:
        return format_factor(factor)
    percent = round(ratio * 100, 1)
    if percent:
        return f"{percent:+.1f} %"
    return "0.0 %"


def format_factor(factor: float) -> str:
    """``×12.3``, ``×0.27``."""
    if factor < 1e6:
        return f"×{_significant(factor)}"
    return f"×{factor:.1e}"


def parse_bytes(text: str) -> int:
    """Bytes of ``8``, ``1KiB``, ``64MiB``, ``1G`` or ``1.5GB``: K, M, G and T are powers of 1,024,
    optionally followed by ``B`` or ``iB``, as in nccl-tests.

    Raises:
        ValueError: the text is not a number of bytes.
    """
    match = _BYTES.match(text)
    if match is None:
        raise ValueError(f"{text!r} is not a number of bytes; write 1024, 1KiB or 64MiB")
    power: int = "BKMGT".index((match["unit"] or "B").upper())
    return round(float(match["number"]) * float(1024**power))


def format_coarse_seconds(seconds: float) -> str:
    """``45 s``, ``12 min``, ``3 h 20 min``: an estimate, no finer than it is."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 100:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def format_byte_rate(per_second: float) -> str:
    """``4.3e12`` → ``4.30 TB/s``: decimal prefixes, as links and memories are rated."""
    return _decimal(per_second, "B/s")


def format_flops(per_second: float) -> str:
    """``7.9e14`` → ``790 TFLOP/s``: decimal prefixes, three significant digits."""
    return _decimal(per_second, "FLOP/s")


def _decimal(value: float, unit: str) -> str:
    for prefix in ("", "k", "M", "G", "T"):
        if abs(value) < 999.5:
            return f"{_significant(value)} {prefix}{unit}"
        value /= 1000
    return f"{_significant(value)} P{unit}"


def parse_duration(text: str) -> float:
    """Seconds of ``30``, ``30s``, ``2m``, ``1.5h`` or ``250ms``.

    Raises:
        ValueError: the text is not a duration.
    """
    match = _DURATION.match(text)
    if match is None:
        raise ValueError(f"{text!r} is not a duration; write 30, 30s, 2m or 1h")
    return float(match["number"]) * _SECONDS_PER_UNIT[match["unit"]]


def _significant(value: float, digits: int = 3) -> str:
    """``value`` with so many significant digits; larger whole numbers in full."""
    if 1e-4 <= abs(value) < 10**digits - 0.5:
        return f"{value:#.{digits}g}".removesuffix(".")
    exponent = f"{value:.{digits - 1}e}".partition("e")[2]
    if value == 0 or not exponent:  # infinite, or no number
        return f"{value:g}"
    return f"{value:.{max(0, digits - 1 - int(exponent))}f}"


def parse_moment(text: str) -> datetime | None:
    """A moment as files have it (ISO 8601), in UTC; ``None`` for what is none. Without a zone it is
    in UTC."""
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
        if not moment.tzinfo:
            return moment.replace(tzinfo=timezone.utc)
        return moment.astimezone(timezone.utc)
    except (ValueError, OverflowError):  # OverflowError: before year 1 or after 9999 in UTC
        return None
