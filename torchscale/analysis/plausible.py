"""Whether figures can be of a measurement at all: a results directory may have been damaged, or made up."""

from __future__ import annotations

from enum import Enum

_LARGEST = 1e30
"""Beyond FLOPs of the longest training and bytes of the largest cluster, in any unit of ours."""


def implausible(value: object) -> str | None:
    """The first number that no measurement has, by name (``steps.p50 is 1e+300``); ``None`` where all can be.

    Looks into models, dataclasses and tuples; it runs over every cell of a large directory.
    """
    found = _wrong(value)
    if found is None:
        return None
    *names, number = found
    return f"{'.'.join(names)} is {number}"


def _wrong(value: object) -> list[str] | None:
    """Names down to the number, and the number."""
    kind = type(value)
    if kind is float or kind is int:
        fine = -_LARGEST < value < _LARGEST  # type: ignore[operator] # false for NaN
        return None if fine else [f"{value:.4g}" if kind is float else "a huge whole number"]
    if value is None or isinstance(value, str | bool | Enum):
        return None
    if isinstance(value, tuple):
        if value and type(value[0]) in (float, int) and type(value[-1]) in (float, int):
            return None if sum(map(abs, value)) < _LARGEST else [f"one of {len(value)} numbers", "too large"]
        return next((wrong for item in value if (wrong := _wrong(item)) is not None), None)
    for name, item in getattr(value, "__dict__", {}).items():
        wrong = _wrong(item)
        if wrong is not None:
            return [name, *wrong]
    return None
