"""Elements that differ in any bit from what they should be, counted on the device."""

from __future__ import annotations

from collections.abc import Callable

import torch

from torchscale.schema.node.burn_in import WrongValue

Expected = Callable[[int, int], "torch.Tensor | int"]
"""What so many elements from one on should be."""

CHUNK = {"cpu": 2**23, "cuda": 2**26}
"""Elements compared at once: what a comparison needs beside the buffer stays bounded. 512 MiB of a
GPU's memory take longer to read than the host to queue their comparison, 64 MiB would not."""


def compare(seen: torch.Tensor, expected: torch.Tensor) -> tuple[int, WrongValue | None]:
    """The number of elements that differ in any bit (a NaN and a negative zero differ), and the
    first of them."""
    ours, theirs = bits(seen), bits(expected)
    return differing(ours, lambda start, count: theirs[start : start + count])


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """The elements of a contiguous tensor as a flat view of whole numbers."""
    kinds = {2: torch.int16, 4: torch.int32, 8: torch.int64}
    return tensor.view(-1).view(kinds[tensor.element_size()])


def differing(seen: torch.Tensor, expected: Expected) -> tuple[int, WrongValue | None]:
    """The number of elements of a flat tensor that are not ``expected(start, count)``, and the
    first of them."""
    mismatches = Mismatches(seen.device)
    mismatches.add(seen, expected)
    return mismatches.read(seen)


class Mismatches:
    """Elements that differ, over any number of comparisons: their number, and the first one with
    both values, which are kept on the device until they are read."""

    def __init__(self, device: torch.device) -> None:
        self._chunk = CHUNK[device.type]
        self._count = torch.zeros(1, dtype=torch.int64, device=device)
        self._first = torch.zeros(3, dtype=torch.int64, device=device)

    def add(self, seen: torch.Tensor, expected: Expected) -> None:
        """Compare a flat tensor of whole numbers with ``expected(start, count)``, without waiting
        for the device."""
        for start in range(0, seen.numel(), self._chunk):
            part = seen[start : start + self._chunk]
            self._add(start, part, expected(start, part.numel()))

    def _add(self, start: int, seen: torch.Tensor, expected: torch.Tensor | int) -> None:
        differs = seen != expected
        index = differs.view(torch.uint8).argmax().view(1)  # of equal values, the first
        values = [index + start, seen.index_select(0, index), _at(expected, index)]
        count = differs.sum()
        is_first = (self._count == 0) & (count > 0)
        self._first = torch.where(is_first, torch.cat([it.long() for it in values]), self._first)
        self._count += count

    def read(self, buffer: torch.Tensor) -> tuple[int, WrongValue | None]:
        """Wait for the device; the number, and the first wrong value. ``buffer`` is what was
        compared."""
        count, index, seen, expected = torch.cat([self._count, self._first]).tolist()
        if count == 0:
            return 0, None
        width = buffer.element_size()
        mask, offset = (1 << 8 * width) - 1, index * width
        value = WrongValue(
            offset_bytes=offset,
            address=buffer.data_ptr() + offset,
            expected=f"0x{expected & mask:0{2 * width}x}",
            seen=f"0x{seen & mask:0{2 * width}x}",
        )
        return count, value


def _at(expected: torch.Tensor | int, index: torch.Tensor) -> torch.Tensor:
    """The expected value at an index that is on the device, as a tensor of one element."""
    if isinstance(expected, int):
        return torch.full_like(index, expected)
    return expected.index_select(0, index)
