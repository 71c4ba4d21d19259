"""Values that may be missing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TypeVar

Value = TypeVar("Value")
Result = TypeVar("Result")


def optional(function: Callable[[Value], Result], value: Value | None) -> Result | None:
    """``function`` of ``value``; ``None`` where there is none."""
    if value is None:
        return None
    return function(value)


def complete(values: Iterable[Value | None]) -> list[Value] | None:
    """All of them; ``None`` where one is missing."""
    known = []
    for value in values:
        if value is None:
            return None
        known.append(value)
    return known


def sole(values: Collection[Value]) -> Value | None:
    """The only one; ``None`` where there is none or several."""
    if len(values) != 1:
        return None
    return next(iter(values))
