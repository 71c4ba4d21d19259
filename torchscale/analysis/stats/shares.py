"""A share of a population, from how many of a sample have a property."""

from __future__ import annotations

_TAIL = 0.025
"""On either side of a 95 % interval."""


def share_interval(least: int, most: int, count: int) -> tuple[float, float]:
    """Exact 95 % interval (Clopper and Pearson 1934) of the share that ``least`` to ``most`` of
    ``count`` have: ``most`` is more where it is open for some whether they have it.

    Raises:
        ValueError: the numbers do not fit together.
    """
    if not 0 <= least <= most <= count or count == 0:
        raise ValueError(f"{least} to {most} of {count} is no share")
    from scipy.special import betaincinv  # noqa: PLC0415 - 0.2 s to import, and only this needs it

    low, high = 0.0, 1.0
    if least:
        low = float(betaincinv(least, count - least + 1, _TAIL))
    if most < count:
        high = float(betaincinv(most + 1, count - most, 1 - _TAIL))
    return low, high
