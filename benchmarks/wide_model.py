"""A model with much state and little to compute: square layers, a row a sample."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Wide(nn.Module):
    """``layers`` square layers of ``width``."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.network = nn.Sequential(*(nn.Linear(width, width) for _ in range(layers)))
        self.width = width

    def forward(self, x: Tensor) -> Tensor:
        """The loss."""
        loss: Tensor = self.network(x).square().mean()
        return loss

    def make_batch(self, batch_size: int, generator: torch.Generator) -> dict[str, Tensor]:
        """Random rows."""
        return {"x": torch.randn(batch_size, self.width, generator=generator)}


def build(width: int = 1024, layers: int = 8) -> nn.Module:
    """The model: ``12 × layers × width²`` bytes of state under AdamW."""
    return Wide(width, layers)
