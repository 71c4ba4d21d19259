"""A tiny model that stops in the middle of its measurement for as long as a file exists."""

import os
import time
from pathlib import Path

import torch
from torch import Tensor, nn

HELD_STEP = 12
HOLD_SECONDS = 120
"""Longer than any test waits."""


class HeldNet(nn.Module):
    """A linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        """The loss, once the file has gone."""
        self.calls += 1
        hold = Path(os.environ["TORCHSCALE_TEST_HOLD"])
        if self.calls == HELD_STEP and hold.exists():
            (hold.parent / f"held-{os.environ['RANK']}").touch()
            end = time.monotonic() + HOLD_SECONDS
            while hold.exists() and time.monotonic() < end:
                time.sleep(0.02)
        loss: Tensor = self.layer(x).square().mean()
        return loss

    def make_batch(self, batch_size: int, generator: torch.Generator) -> dict[str, Tensor]:
        """Random input."""
        return {"x": torch.randn(batch_size, 8, generator=generator)}


def build() -> nn.Module:
    """The model."""
    return HeldNet()
