"""A small network whose compute takes a known time, longer on one rank or in one place."""

from __future__ import annotations

import time

import torch
import torch.distributed as dist
from torch import Tensor, nn

from torchscale.worker.data.synthetic import SyntheticSource


class StragglingNet(nn.Module):
    """``seconds`` in the forward pass on every rank, ``extra`` more on ``rank``."""

    def __init__(self, rank: int, extra: float, seconds: float) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64)
        self.rank, self.extra, self.seconds = rank, extra, seconds

    def forward(self, x: Tensor) -> Tensor:
        """The loss."""
        mine = dist.get_rank() if dist.is_initialized() else -1
        with torch.profiler.record_function("compute"):
            time.sleep(self.seconds + (self.extra if mine == self.rank else 0.0))
        loss: Tensor = self.layer(x).square().mean()
        return loss

    def make_batch(self, batch_size: int, generator: torch.Generator) -> dict[str, Tensor]:
        """Random rows."""
        return {"x": torch.randn(batch_size, 64, generator=generator)}


def build(
    rank: int = -1, extra: float = 0.0, seconds: float = 0.02, loader: float = 0.0
) -> nn.Module:
    """The model; ``loader`` seconds are waited for every batch, on ranks of several."""
    _set_loader(loader)
    return StragglingNet(rank, extra, seconds)


_NEXT_BATCH = SyntheticSource.next_batch


def _set_loader(seconds: float) -> None:
    """Each model sets it anew: several may be built in one process."""

    def slow(self: SyntheticSource) -> dict[str, Tensor]:
        if dist.is_initialized():
            time.sleep(seconds)
        return dict(_NEXT_BATCH(self))

    SyntheticSource.next_batch = slow if seconds else _NEXT_BATCH  # type: ignore[method-assign]
