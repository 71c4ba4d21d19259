"""Whether figures can come from a measurement: a results directory may be damaged or forged."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from torchscale.schema.base import LARGEST

_HARMLESS = frozenset({type(None), str, bool})
_NUMBERS = frozenset({float, int})


def implausible(value: object) -> str | None:
    """The first number that no measurement has, by name (``steps.p50 is 1e+300``); ``None`` where
    all can be.

    Looks into models, dataclasses and tuples; it runs over every cell of a large directory.
    """
    path = _wrong((("", value),))
    if path is None:
        return None
    *names, number = path
    return f"{'.'.join(name for name in names if name)} is {number}"


def _wrong(named: Iterable[tuple[str, object]]) -> list[str] | None:
    """Names down to the number, and the number."""
    for name, value in named:
        kind = type(value)
        if kind in _HARMLESS:
            continue
        if kind in _NUMBERS:
            if -LARGEST < value < LARGEST:  # type: ignore[operator] # false for NaN
                continue
            return [name, f"{value:.4g}" if kind is float else "a huge whole number"]
        if isinstance(value, tuple):
            if value and {type(value[0]), type(value[-1])} <= _NUMBERS:
                if sum(map(abs, value)) < LARGEST:
                    continue
                return [name, f"one of {len(value)} numbers", "too large"]
            wrong = _wrong([("", item) for item in value])
        elif isinstance(value, Enum):
            continue
        else:
            wrong = _wrong(getattr(value, "__dict__", {}).items())
        if wrong is not None:
            return [name, *wrong]
    return None
