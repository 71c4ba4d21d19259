"""A decoder with experts whose compute is a timed operator: so much for each token at an expert, in
both passes, and more on one rank. Ranks on few cores then do not slow each other, and what is
injected is the only difference (see ``scenario_net.py``).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from scenario_net import compute
from torch import Tensor, nn

from torchscale.catalog.experts import ExpertShape
from torchscale.worker.models.experts import Experts, expert_layers
from torchscale.worker.models.moe import ExpertDecoder
from torchscale.worker.models.text import token_batches

LENGTH = 32
SHAPE = ExpertShape(
    hidden_size=32,
    num_layers=2,
    num_heads=2,
    num_kv_heads=2,
    head_size=16,
    vocab_size=256,
    num_experts=8,
    experts_per_token=2,
    expert_size=32,
)


@torch.library.custom_op("scenario::rows", mutates_args=())
def compute_rows(x: Tensor, seconds: float) -> Tensor:
    """Take ``seconds`` for each row, like a kernel."""
    time.sleep(seconds * len(x))
    return x.clone()


@compute_rows.register_fake
def _(x: Tensor, seconds: float) -> Tensor:
    del seconds
    return torch.empty_like(x)


def _keep_seconds(ctx: Any, inputs: tuple[Tensor, float], output: Tensor) -> None:  # noqa: ANN401 - torch's own
    del output
    ctx.seconds = inputs[1]


compute_rows.register_autograd(
    lambda ctx, grad: (compute_rows(grad, ctx.seconds), None), setup_context=_keep_seconds
)


class TimedExperts(Experts):
    """Experts that take ``seconds`` for each token in each pass, whatever they compute."""

    seconds = 0.0

    def forward(self, x_MD: Tensor, counts_E: Tensor, host_counts: Sequence[int] | None) -> Tensor:
        """``x`` in the order of experts → (M, D)."""
        return super().forward(compute_rows(x_MD, self.seconds), counts_E, host_counts)


class ScenarioDecoder(ExpertDecoder):
    """With ``seconds`` of other compute, and ``extra`` more on ``rank``."""

    tokens_per_sample = LENGTH

    def __init__(self, skew: float, rank: int, extra: float, seconds: float) -> None:
        super().__init__(SHAPE, LENGTH, balance=0.0, skew=skew)
        self.rank, self.extra, self.seconds = rank, extra, seconds
        self.make_batch = token_batches(SHAPE.vocab_size, LENGTH)

    def forward(self, input_ids: Tensor, labels: Tensor | None = None, *_: Tensor | None) -> Tensor:
        """The loss."""
        is_slow = dist.is_initialized() and dist.get_rank() == self.rank
        taken = self.seconds + (self.extra if is_slow else 0.0)
        loss: Tensor = compute(super().forward(input_ids, labels), taken)
        return loss


def build(
    skew: float = 0.0,
    rank: int = -1,
    extra: float = 0.0,
    seconds: float = 0.01,
    token_seconds: float = 20e-6,
) -> nn.Module:
    """The model; ``skew``: share of the tokens that expert 0 of each layer gets, over an even
    one."""
    module = ScenarioDecoder(skew, rank, extra, seconds)
    for layer in expert_layers(module):
        experts = layer.experts
        experts.__class__ = TimedExperts
        assert isinstance(experts, TimedExperts)
        experts.seconds = token_seconds
    return module
