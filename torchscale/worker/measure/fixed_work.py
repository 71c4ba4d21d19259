"""A fixed piece of work, timed between batches: how much slower a core computes because of what
others do.

Others who share a core take its time, which the kernel counts; beside that they empty its caches
and use up the bandwidth of the memory. The processor time of work that is always the same shows
whether they do.
"""

from __future__ import annotations

import statistics
from time import thread_time

import torch

_SIDE = 96
"""Rows of the square matrices: three of them fit a first-level cache of 128 KiB."""
_PRODUCTS = 6
_COPIED_BYTES = 4 << 20
"""More than a second-level cache holds, less than the third level does."""


class FixedWork:
    """Products of small matrices and a copy: half a millisecond of one core."""

    def __init__(self) -> None:
        self._matrix = torch.ones(_SIDE, _SIDE)
        self._product = torch.empty(_SIDE, _SIDE)
        self._source = torch.zeros(_COPIED_BYTES, dtype=torch.uint8)
        self._copy = torch.empty_like(self._source)
        self._seconds: list[tuple[float, float]] = []

    @torch.no_grad()
    def sample(self) -> None:
        """Do it once."""
        begun = thread_time()
        for _ in range(_PRODUCTS):
            torch.mm(self._matrix, self._matrix, out=self._product)
        multiplied = thread_time()
        self._copy.copy_(self._source)
        self._seconds.append((multiplied - begun, thread_time() - multiplied))

    def read(self) -> tuple[float, float] | None:
        """Medians of the processor time that products and copy took, in seconds; ``None`` if there
        is no sample."""
        if not self._seconds:
            return None
        products, copies = zip(*self._seconds, strict=True)
        return statistics.median(products), statistics.median(copies)
