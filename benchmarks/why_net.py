"""A model for ``why_pairs.py``: a timed operator and a small real network, and what a variable of
the environment says to make slower.

The timed operator waits instead of computing, so that ranks that share cores do not slow each other
and what is injected is the only difference.
"""

from __future__ import annotations

import json
import os
import time

import torch
import torch.distributed as dist
from scenario_net import _cap_buckets, _slow_loader, compute
from torch import Tensor, nn

VARIABLE = "WHY_INJECTED"
"""JSON, by number of the pair: ``layers``, ``width``, and what is injected: seconds of ``forward``,
``backward``, ``loader``, ``start``; ``rank`` with seconds of ``one_rank``; MB of a ``bucket``."""
SECONDS = 0.02
"""The forward pass of the typical rank."""


class _Backward(torch.autograd.Function):
    """Takes time in the backward pass."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, x: Tensor, seconds: float) -> Tensor:
        """Nothing."""
        ctx.seconds = seconds  # type: ignore[attr-defined]
        return x.view_as(x)

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, grad: Tensor) -> tuple[Tensor, None]:
        """Wait."""
        time.sleep(ctx.seconds)  # type: ignore[attr-defined]
        return grad, None


class WhyNet(nn.Module):
    """Square layers after the timed operator."""

    def __init__(self, injected: dict[str, float]) -> None:
        super().__init__()
        self.injected, self.width = injected, int(injected["width"])
        self.layers = nn.ModuleList(
            nn.Linear(self.width, self.width) for _ in range(int(injected["layers"]))
        )

    def forward(self, x: Tensor) -> Tensor:
        """The loss."""
        extra = self.injected.get("forward", 0.0)
        if "one_rank" in self.injected and dist.get_rank() == self.injected["rank"]:
            extra += self.injected["one_rank"]
        x = compute(x, SECONDS + extra)
        for layer in self.layers:
            x = torch.relu(layer(x))
        # The last layers' gradients are computed first: the wait is before any exchange begins.
        x = _Backward.apply(x, self.injected.get("backward", 0.0))  # type: ignore[no-untyped-call]
        return x.square().mean()

    def make_batch(self, batch_size: int, generator: torch.Generator) -> dict[str, Tensor]:
        """Random rows as a batch."""
        return {"x": torch.randn(batch_size, self.width, generator=generator)}


def build(pair: int) -> nn.Module:
    """The model of a pair, with the process prepared."""
    injected = json.loads(os.environ[VARIABLE])[pair]
    if "bucket" in injected:
        _cap_buckets(injected["bucket"])
    if "loader" in injected:
        _slow_loader(-1, injected["loader"])
    time.sleep(injected.get("start", 0.0))
    return WhyNet(injected)
