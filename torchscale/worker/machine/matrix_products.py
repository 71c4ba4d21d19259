"""Products of matrices whose result is known exactly, computed again and again and compared."""

from __future__ import annotations

from itertools import pairwise
from math import ceil

import torch

from torchscale.schema.node.burn_in import PartResult
from torchscale.worker.machine.mismatches import Mismatches, bits
from torchscale.worker.measure.clock import make_clock

_MATRIX = {"cpu": 512, "cuda": 8192}
"""Even. On a GPU large enough for its full rate; on a CPU some milliseconds."""
_FACTORS = (-3, -2, -1, 1, 2, 3)
_MAX_QUEUED = 1024
"""Products queued before their times are read. The device is never idle between them, and waits
once for the host after half a second or more: an H100 takes about 2 ms for each."""


def matmul_matrices(
    dtype: torch.dtype, size: int, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Two matrices ``(size, size)`` and their exact product.

    ``A[i, k] = a[i] s[k]`` and ``B[k, j] = s[k] t[k] b[j]`` with random signs s and t = 2, −1, 1,
    −1, …, which sum to
    1: the product is ``a[i] b[j]``. Sums of neighbouring terms are small multiples of it, exact in
    every dtype, and no term is lost beside a large sum: any one bit of an element of A or B changes
    a whole row or column, but for the last bits of fp32, which the rounding of partial sums may
    hide.
    """
    factors = torch.tensor(_FACTORS)
    a, b = (factors[torch.randint(len(_FACTORS), (size,), generator=generator)] for _ in range(2))
    signs = torch.randint(2, (size,), generator=generator) * 2 - 1
    weights = 1 - 2 * (torch.arange(size) % 2)
    weights[0] = 2
    left, right = torch.outer(a, signs).to(dtype), torch.outer(signs * weights, b).to(dtype)
    return left, right, torch.outer(a, b).to(dtype)


class Products:
    """The product of two matrices, computed again and again and compared each time."""

    def __init__(
        self, device: torch.device, dtype: torch.dtype, generator: torch.Generator
    ) -> None:
        self.name = f"matmul {str(dtype).removeprefix('torch.')}"
        self._device = device
        self._size = _MATRIX[device.type]
        self._left, self._right, self._expected = (
            matrix.to(device) for matrix in matmul_matrices(dtype, self._size, generator)
        )
        self._product = torch.empty_like(self._expected)
        self._clock = make_clock(device, sync_cuda=False)
        self._seconds_each = 0.0

    def run(self, seconds: float = 0.0) -> PartResult:
        """Products until they took ``seconds``, the comparisons not counted; at least one."""
        mismatches = Mismatches(self._device)
        count, spent = 0, 0.0
        while count == 0 or spent < seconds:
            queued = self._fitting(seconds - spent)
            spent += self._queue(queued, mismatches)
            count += queued
            self._seconds_each = spent / count
        wrong, first = mismatches.read(self._product)
        return PartResult(
            part=self.name,
            unit="FLOP",
            seconds=spent,
            work=2.0 * self._size**3 * count,
            wrong=wrong,
            first=first,
        )

    def _fitting(self, seconds: float) -> int:
        """How many products take ``seconds``, by those before; one where there were none."""
        if self._seconds_each == 0.0:
            return 1
        return max(1, min(_MAX_QUEUED, ceil(seconds / self._seconds_each)))

    def _queue(self, count: int, mismatches: Mismatches) -> float:
        """Seconds of ``count`` products, each of which is compared before the next one replaces
        it. The host waits for the last one alone."""
        seen, expected = bits(self._product), bits(self._expected)
        for _ in range(count):
            self._clock.mark()
            torch.matmul(self._left, self._right, out=self._product)
            self._clock.mark()
            mismatches.add(seen, lambda start, size: expected[start : start + size])
        marks = self._clock.read()
        return sum(after - before for before, after in list(pairwise(marks))[::2])
