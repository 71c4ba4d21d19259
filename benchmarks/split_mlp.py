"""A wide MLP that names how it is split, over matrices and over layers."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel

from torchscale.worker.models.interface import PipelineSplit, TensorSplit


class Layer(nn.Module):
    """Up, down, and a residual connection."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x: Tensor) -> Tensor:
        """``x`` (B, D) → (B, D)."""
        return x + self.down(nn.functional.relu(self.up(x)))  # type: ignore[no-any-return]


class Mlp(nn.Module):
    """``layers`` of ``width`` with an inner dimension of their own."""

    def __init__(self, width: int, inner: int, layers: int) -> None:
        super().__init__()
        self.width, self.inner = width, inner
        self.blocks = nn.ModuleDict({str(one): Layer(width, inner) for one in range(layers)})

    def forward(self, x: Tensor) -> Tensor:
        """What the last layer gives, or what the next stage takes."""
        for block in self.blocks.values():
            x = block(x)
        return x

    def compute_loss(self, output: Tensor, batch: dict[str, Tensor]) -> Tensor:
        """The mean squared error."""
        return nn.functional.mse_loss(output, batch["y"])

    def make_batch(self, batch_size: int, generator: torch.Generator) -> dict[str, Tensor]:
        """Random rows."""
        return {name: torch.randn(batch_size, self.width, generator=generator) for name in "xy"}

    def tensor_split(self) -> TensorSplit:
        """Columns of the first matrix of a layer, and rows of the second."""
        plan = {
            f"blocks.{name}.{matrix}": style
            for name in self.blocks
            for matrix, style in (("up", ColwiseParallel()), ("down", RowwiseParallel()))
        }
        return TensorSplit(self.inner, lambda _: plan)

    def pipeline_split(self) -> PipelineSplit:
        """Layer by layer."""
        return PipelineSplit(len(self.blocks), _stage, "x", "y", nn.functional.mse_loss)


def _stage(module: nn.Module, layers: range, first: bool, last: bool) -> nn.Module:
    del first, last
    assert isinstance(module, Mlp)
    stage = copy.copy(module)
    stage._modules = {
        "blocks": nn.ModuleDict({str(one): module.blocks[str(one)] for one in layers})
    }
    return stage


def build(width: int = 256, inner: int = 2048, layers: int = 8) -> nn.Module:
    """The model: about ``2 × width × inner × layers`` parameters."""
    return Mlp(width, inner, layers)
