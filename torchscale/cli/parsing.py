"""Texts of options as values, with errors that name the option."""

from __future__ import annotations

from collections.abc import Iterable

from torchscale.errors import UsageError
from torchscale.util.units import parse_duration


def parse_seconds(option: str, text: str) -> float:
    """Seconds above 0 from ``30``, ``30s`` or ``2m``.

    Raises:
        UsageError: it is not a duration above 0.
    """
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from error
    if not seconds > 0:
        raise UsageError(f"{option}: {text} is not above 0", hint="write 30, 30s or 2m")
    return seconds


def listed(values: Iterable[str] | None) -> list[str]:
    """Every value of an option that may be given several times, or once with commas: ``--algo Ring,Tree``."""
    return [part.strip() for value in values or () for part in value.split(",") if part.strip()]


def integers(option: str, values: Iterable[str] | None) -> list[int]:
    """As :func:`listed`, of whole numbers.

    Raises:
        UsageError: one of them is not a whole number.
    """
    numbers = []
    for text in listed(values):
        try:
            numbers.append(int(text))
        except ValueError as error:
            raise UsageError(f"{option} {text}: expected a whole number") from error
    return numbers
