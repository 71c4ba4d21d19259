"""How the sequences of transformers' decoders are split over ranks: their attention, their loss and
the positions of their tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from torch import Tensor, nn
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from torchscale.worker.models.interface import ContextSplit
from torchscale.worker.models.sequence import CausalAttention, NextTokenLoss, SequencePart

_ATTENTION = "torchscale_context"
"""Name of :func:`_attend` among transformers' attention functions; of one that it does not know it
makes no mask."""


def context_split(length: int, attentions: Callable[[nn.Module], Iterable[Any]]) -> ContextSplit:
    """Of a causal language model whose attention layers are ``attentions(model)``."""

    def prepare(module: nn.Module, part: SequencePart) -> None:
        del part  # what is added here is told it like all modules of its kind
        ALL_ATTENTION_FUNCTIONS[_ATTENTION] = _attend
        for attention in attentions(module):
            attention.config._attn_implementation = _ATTENTION
            attention.mix = CausalAttention(getattr(attention, "num_key_value_groups", 1))
        model: Any = module
        loss = model.next_token_loss = NextTokenLoss()
        model.loss_function = lambda logits, labels, **_: loss(logits, labels)

    return ContextSplit(length, positions="position_ids", prepare=prepare)


def _attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    dropout: float = 0.0,
    **_: object,
) -> tuple[Tensor, None]:
    """Queries, keys and values (B, H, T, …) → (B, T, H, …), as transformers calls it. No batch here
    is padded, so that there is no mask but the causal one."""
    del attention_mask
    mix = module.mix
    assert isinstance(mix, CausalAttention)  # noqa: S101 - set above
    mixed = mix(query, key, value, scale=scaling, dropout=dropout)
    return mixed.transpose(1, 2).contiguous(), None
