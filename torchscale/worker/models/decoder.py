"""A decoder transformer that supports tensor, sequence, pipeline and context parallelism.

Shapes: B samples, T tokens, D hidden size, V vocabulary; under tensor parallelism a device holds
some of the heads.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING

from torch import Tensor, nn
from torch.nn import functional

from torchscale.catalog.model_facts import OptionValue
from torchscale.worker.models.interface import ContextSplit, PipelineSplit, TensorSplit, Workload
from torchscale.worker.models.rotary import Rotations, rotate
from torchscale.worker.models.sequence import CausalAttention, NextTokenLoss, attended
from torchscale.worker.models.text import token_batches

if TYPE_CHECKING:
    from torch.distributed.tensor.parallel import ParallelStyle

_INIT_STD = 0.02
"""Standard deviation of initial weights, as in GPT-2 (Radford et al., 2019)."""


def build(name: str, options: Mapping[str, OptionValue]) -> Workload:
    """A causal language model; options ``hidden_size``, ``num_layers``, ``num_heads``,
    ``vocab_size``, ``sequence_length``.

    Raises:
        ValueError: the heads do not divide the hidden size, or leave an odd number for each head.
    """
    del name
    hidden, layers, heads = (
        int(options[key]) for key in ("hidden_size", "num_layers", "num_heads")
    )
    vocabulary, length = int(options["vocab_size"]), int(options["sequence_length"])
    if hidden % (2 * heads):
        raise ValueError(f"hidden_size {hidden} does not divide by twice the num_heads {heads}")

    def plan(sequence: bool) -> Mapping[str, ParallelStyle]:
        from torchscale.worker.models.splits.decoder import sequence_plan, tensor_plan  # noqa: PLC0415 - slow to import

        if sequence:
            return sequence_plan(layers)
        return tensor_plan(layers)

    module = Decoder(hidden, layers, heads, vocabulary, length)
    return Workload(
        module,
        token_batches(vocabulary, length),
        length,
        tensor=TensorSplit(heads, plan, takes_sequence=True, length=length),
        pipeline=PipelineSplit(layers, stage_of, "input_ids", "labels", module.loss),
        context=ContextSplit(length),
    )


class Decoder(nn.Module):
    """Pre-norm blocks with rotary positions (Su et al., 2021); no biases, no dropout, separate
    embedding and head.

    A stage of a pipeline lacks the parts that belong to others.
    """

    def __init__(self, hidden: int, layers: int, heads: int, vocabulary: int, length: int) -> None:
        super().__init__()
        self.embedding: nn.Module | None = nn.Embedding(vocabulary, hidden)
        self.blocks = nn.ModuleDict({str(layer): Block(hidden, heads) for layer in range(layers)})
        self.norm: nn.Module | None = nn.LayerNorm(hidden, bias=False)
        self.head: nn.Module | None = nn.Linear(hidden, vocabulary, bias=False)
        self.loss = NextTokenLoss()
        self.rotations = Rotations(length, hidden // heads)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=_INIT_STD)

    def forward(
        self,
        input_ids: Tensor,
        labels: Tensor | None = None,
        positions: Tensor | None = None,
        documents: Tensor | None = None,
    ) -> Tensor:
        """The loss where there are labels (B, T); else what the next stage takes, or logits (B, T,
        V). ``positions`` and ``documents``, both (B, T), are of tokens of several documents in a
        sample, which do not see each other."""
        x = input_ids if self.embedding is None else self.embedding(input_ids)
        cosines, sines = self.rotations(input_ids.shape[1], positions)
        mask = attended(documents)
        for block in self.blocks.values():
            x = block(x, cosines, sines, mask=mask)
        if self.head is None or self.norm is None:
            return x
        logits: Tensor = self.head(self.norm(x))
        if labels is None:
            return logits
        return self.loss(logits, labels)  # type: ignore[no-any-return]


class Block(nn.Module):
    """Attention and feed-forward, each with a norm before it and a residual connection."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(hidden, bias=False)
        self.attention = Attention(hidden, heads, heads, hidden // heads)
        self.feed_forward_norm = nn.LayerNorm(hidden, bias=False)
        self.feed_forward = FeedForward(hidden)

    def forward(
        self, x: Tensor, cosines: Tensor, sines: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        """``x`` (B, T, D) → (B, T, D); ``mask`` as in :class:`Attention`."""
        x = x + self.attention(self.attention_norm(x), cosines, sines, mask=mask)
        return x + self.feed_forward(self.feed_forward_norm(x))  # type: ignore[no-any-return]


class Attention(nn.Module):
    """Causal self-attention over the heads that this device holds; groups of heads may share keys and
    values."""

    def __init__(self, hidden: int, heads: int, kv_heads: int, head_size: int) -> None:
        super().__init__()
        self.head_size = head_size
        self.query = nn.Linear(hidden, heads * head_size, bias=False)
        self.key = nn.Linear(hidden, kv_heads * head_size, bias=False)
        self.value = nn.Linear(hidden, kv_heads * head_size, bias=False)
        self.out = nn.Linear(heads * head_size, hidden, bias=False)
        self.mix = CausalAttention(heads // kv_heads)

    def forward(
        self, x: Tensor, cosines: Tensor, sines: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        """``x`` (B, T, D) → (B, T, D); with ``mask`` (B, 1, T, T), a token attends to those where
        it is true."""
        query, key, value = (
            projection(x).unflatten(-1, (-1, self.head_size)).transpose(1, 2)
            for projection in (self.query, self.key, self.value)
        )
        query, key = rotate(query, cosines, sines), rotate(key, cosines, sines)
        mixed = self.mix(query, key, value, mask=mask)
        return self.out(mixed.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


class FeedForward(nn.Module):
    """Two matrices with a GELU between; the inner dimension is 4 D."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.up = nn.Linear(hidden, 4 * hidden, bias=False)
        self.down = nn.Linear(4 * hidden, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """``x`` (B, T, D) → (B, T, D)."""
        return self.down(functional.gelu(self.up(x)))  # type: ignore[no-any-return]


def stage_of(module: nn.Module, layers: range, first: bool, last: bool) -> nn.Module:
    """A decoder with some of the layers of ``module``, sharing its parameters: of any that has
    ``embedding``, ``blocks`` by number, ``norm`` and ``head``."""
    stage = copy.copy(module)
    stage._modules = dict(module._modules)
    blocks = module.get_submodule("blocks")
    stage.blocks = nn.ModuleDict({str(layer): blocks.get_submodule(str(layer)) for layer in layers})
    left_out = ("embedding",) * (not first) + ("norm", "head") * (not last)
    stage._modules.update(dict.fromkeys(left_out))
    return stage
