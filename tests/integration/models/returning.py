"""A model that needs 40 MiB for a moment in every step: more than glibc ever keeps of its own
accord."""

from __future__ import annotations

import torch
from torch import nn

_FLOATS = 10 * 2**20


class Returning(nn.Module):
    """A small network with a large intermediate result."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 1)

    def make_batch(self, batch_size: int, generator: torch.Generator) -> dict[str, torch.Tensor]:
        return {"values": torch.randn(batch_size, 8, generator=generator)}

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        scratch = torch.full((_FLOATS,), 1e-3)
        loss: torch.Tensor = (self.layer(values) * scratch[: len(values), None]).pow(2).mean()
        return loss


def build() -> nn.Module:
    return Returning()
