"""A multi-layer perceptron that computes for real, and waits a known time in one pass of one
rank."""

from __future__ import annotations

import time

import torch
import torch.distributed as dist
from torch import Tensor, nn


class LateMlp(nn.Module):
    """``seconds`` more on ``rank`` in its forward or backward pass."""

    def __init__(self, rank: int, seconds: float, place: str) -> None:
        super().__init__()
        layers = [layer for _ in range(6) for layer in (nn.Linear(512, 512), nn.ReLU())]
        self.network = nn.Sequential(*layers, nn.Linear(512, 10))
        self._rank, self._seconds, self._place = rank, seconds, place
        if place == "backward":
            list(self.network.parameters())[6].register_hook(self._late)  # type: ignore[no-untyped-call]

    def forward(self, x: Tensor) -> Tensor:
        """The loss."""
        if self._place == "forward":
            self._late(x)
        loss: Tensor = self.network(x).square().mean()
        return loss

    def make_batch(self, batch_size: int, generator: torch.Generator) -> dict[str, Tensor]:
        """Random rows."""
        return {"x": torch.randn(batch_size, 512, generator=generator)}

    def _late(self, tensor: Tensor) -> Tensor:
        if dist.is_initialized() and dist.get_rank() == self._rank:
            time.sleep(self._seconds)
        return tensor


def build(rank: int = -1, seconds: float = 0.0, place: str = "forward") -> nn.Module:
    """The model."""
    return LateMlp(rank, seconds, place)
