"""A small decoder that can be split in every way, and waits a known time in the forward pass of one
rank, in the first block that the rank holds."""

from __future__ import annotations

import time

import torch.distributed as dist
from torch import Tensor, nn

from torchscale.worker.models import decoder
from torchscale.worker.models.interface import PipelineSplit, TensorSplit, Workload

OPTIONS = {"num_heads": 4, "vocab_size": 256, "sequence_length": 32}


class LateBlock(decoder.Block):
    """``seconds`` more on ``rank``."""

    rank, seconds = -1, 0.0

    def forward(
        self, x: Tensor, cosines: Tensor, sines: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        """``x`` (B, T, D) → (B, T, D)."""
        if dist.is_initialized() and dist.get_rank() == self.rank:
            time.sleep(self.seconds)
        return super().forward(x, cosines, sines, mask)


def build(rank: int = -1, seconds: float = 0.0, layers: int = 4, every: int = 4) -> nn.Module:
    """The model; every ``every``-th of its blocks takes ``seconds`` more on ``rank``."""
    workload = decoder.build("", {**OPTIONS, "hidden_size": 128, "num_layers": layers})
    module = workload.module
    assert isinstance(module, decoder.Decoder)
    for number, block in module.blocks.items():
        if int(number) % every == 0:
            assert isinstance(block, decoder.Block)
            block.__class__ = LateBlock
            block.rank, block.seconds = rank, seconds  # type: ignore[assignment]
    return _described(module, workload)


def _described(module: nn.Module, workload: Workload) -> nn.Module:
    """With what the contract of a user's model asks for."""

    def tensor_split() -> TensorSplit:
        assert workload.tensor is not None
        return workload.tensor

    def pipeline_split() -> PipelineSplit:
        assert workload.pipeline is not None
        return workload.pipeline

    for name, value in (
        ("make_batch", workload.make_batch),
        ("tensor_split", tensor_split),
        ("pipeline_split", pipeline_split),
    ):
        object.__setattr__(module, name, value)
    return module
