"""Searches the largest batch size that fits: doubles until one does not fit, then bisects. Pure."""

from __future__ import annotations

from collections.abc import Mapping


def next_batch(
    tried: Mapping[int, bool], *, start: int, multiple: int = 1, largest: int = 1 << 20
) -> int | None:
    """The batch size to try next; ``None`` when the search is complete: the largest of ``tried``
    that fits is the result.

    Args:
        tried: Batch size → whether it fitted. Batch sizes below one that fitted are assumed to fit.
        start: The first batch size to try.
        multiple: Only multiples of this are tried.
        largest: Nothing above this is tried; a million samples per step are beyond any training.
    """
    if not tried:
        return max(multiple, start // multiple * multiple)
    fitting = max((batch for batch, fits in tried.items() if fits), default=0)
    failing = min((batch for batch, fits in tried.items() if not fits), default=None)
    if failing is None:
        doubled = min(2 * fitting, largest // multiple * multiple)
        if doubled > fitting:
            return doubled
        return None
    between = (fitting + failing) // 2 // multiple * multiple
    if fitting < between < failing:
        return between
    return None


def largest_fitting(tried: Mapping[int, bool]) -> int | None:
    """The largest batch size that fitted; ``None`` where none did."""
    return max((batch for batch, fits in tried.items() if fits), default=None)
