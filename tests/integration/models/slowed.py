"""A model that does more work in every step where the environment asks for it: a slow-down of a
known kind."""

import os

import torch
from torch import Tensor, nn

WIDTH = 256
LAYERS = 20


class SlowedNet(nn.Module):
    """Linear layers, and as many further products of one layer's size as ``EXTRA_PRODUCTS``
    says."""

    def __init__(self) -> None:
        super().__init__()
        blocks = [block for _ in range(LAYERS) for block in (nn.Linear(WIDTH, WIDTH), nn.Tanh())]
        self.layers = nn.Sequential(*blocks)
        self.weight = torch.randn(WIDTH, WIDTH)
        self.extra = int(os.environ.get("EXTRA_PRODUCTS", "0"))

    def forward(self, x: Tensor) -> Tensor:
        """The loss; what is extra has no part in it. Forward and backward take three products a
        layer."""
        for _ in range(self.extra):
            torch.matmul(x, self.weight)
        loss: Tensor = self.layers(x).square().mean()
        return loss

    def make_batch(self, batch_size: int, generator: torch.Generator) -> dict[str, Tensor]:
        """Random input."""
        return {"x": torch.randn(batch_size, WIDTH, generator=generator)}


def build() -> nn.Module:
    """The model."""
    return SlowedNet()
