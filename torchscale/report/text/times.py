"""Times of runs in words."""

from __future__ import annotations

from collections.abc import Iterable

from torchscale.report.values import shortened


def format_period(start: str, end: str) -> str:
    """``2026-11-20 14:02 to 15:31 UTC``; the day is repeated where it is another."""
    first, last = format_minute(start), format_minute(end)
    if first == last:
        return f"{first} UTC"
    return f"{first} to {last.removeprefix(f'{first[:10]} ')} UTC"


def format_minute(time: str) -> str:
    """``2026-11-20 14:02`` of a time in ISO 8601."""
    return shortened(time[:16].replace("T", " "))


def format_days(times: Iterable[str]) -> str:
    """First and last day of times in ISO 8601; empty without any."""
    days = sorted({time[:10] for time in times})
    if days:
        return shortened(" to ".join(dict.fromkeys([days[0], days[-1]])))
    return ""
