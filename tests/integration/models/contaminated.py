"""A model that fails in a process in which another cell has run before, and not in one of its
own."""

import sys

import torch
from torch import Tensor, nn


class Net(nn.Module):
    """A linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        """The loss."""
        loss: Tensor = self.layer(x).square().mean()
        return loss

    def make_batch(self, batch_size: int, generator: torch.Generator) -> dict[str, Tensor]:
        """Random input."""
        return {"x": torch.randn(batch_size, 8, generator=generator)}


def build() -> nn.Module:
    """The model, if nothing was built here before."""
    if "torchscale.worker.models.decoder" in sys.modules:
        raise RuntimeError("something has run here before")
    return Net()
