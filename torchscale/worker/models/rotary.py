"""Rotary positions (Su et al., 2021)."""

from __future__ import annotations

import torch
from torch import Tensor

from torchscale.worker.models.sequence import SequenceModule


class Rotations(SequenceModule):
    """Cosines and sines of each position and pair of dimensions. Those of whole sequences are kept:
    buffers must be equal on all ranks, since DistributedDataParallel sends those of the first."""

    cosines: Tensor
    sines: Tensor

    def __init__(self, length: int, head_size: int) -> None:
        super().__init__()
        cosines, sines = rotations(length, head_size)
        self.register_buffer("cosines", cosines, persistent=False)
        self.register_buffer("sines", sines, persistent=False)

    def forward(self, length: int, positions: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Of ``length`` tokens, or of its part of them: both (t, head size). Of whole sequences
        whose tokens have ``positions`` of their own, (B, T): both (B, 1, T, head size)."""
        if self.part is not None:
            return self.part.take(self.cosines, 0), self.part.take(self.sines, 0)
        if positions is None:
            return self.cosines[:length], self.sines[:length]
        return self.cosines[positions].unsqueeze(1), self.sines[positions].unsqueeze(1)


def rotations(length: int, head_size: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines of each position and pair of dimensions, (T, head size)."""
    rate = 10_000.0 ** (-torch.arange(0, head_size, 2, dtype=torch.float32) / head_size)
    angles = torch.outer(torch.arange(length, dtype=torch.float32), rate).repeat(1, 2)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """``x`` (…, T, head size), each pair of dimensions turned by its position's angle."""
    first, second = x.chunk(2, dim=-1)
    turned = torch.cat((-second, first), dim=-1)
    return x * cosines.to(x.dtype) + turned * sines.to(x.dtype)
