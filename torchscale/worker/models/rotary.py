"""Rotary positions (Su et al., 2021)."""

from __future__ import annotations

import torch
from torch import Tensor


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
