"""A decoder whose feed-forward layers are experts, with grouped-query or latent attention; sizes
after Mixtral, Qwen3 and DeepSeek.

Shapes: B samples, T tokens, D hidden size, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from torchscale.catalog.experts import ExpertShape, shape_of_options
from torchscale.catalog.model_facts import OptionValue
from torchscale.worker.models.decoder import Attention, stage_of
from torchscale.worker.models.experts import ExpertLayer, ExpertRouter, Experts
from torchscale.worker.models.interface import ContextSplit, PipelineSplit, TensorSplit, Workload
from torchscale.worker.models.rotary import Rotations, rotate
from torchscale.worker.models.sequence import CausalAttention, NextTokenLoss, attended
from torchscale.worker.models.text import token_batches

if TYPE_CHECKING:
    from torch.distributed.tensor.parallel import ParallelStyle

_INIT_STD = 0.02
"""Standard deviation of initial weights, as in GPT-2 (Radford et al., 2019)."""


def build(name: str, options: Mapping[str, OptionValue]) -> Workload:
    """A causal language model; options are the sizes of
    :class:`~torchscale.catalog.experts.ExpertShape`, ``shared_experts`` (their number),
    ``balance``, ``skew`` and ``sequence_length``.

    Raises:
        ValueError: sizes that do not fit each other.
    """
    del name
    shape, length = shape_of_options(options), int(options["sequence_length"])
    _check(shape, float(options["skew"]))
    module = ExpertDecoder(
        shape, length, balance=float(options["balance"]), skew=float(options["skew"])
    )
    carried = module.carried

    def plan(sequence: bool) -> Mapping[str, ParallelStyle]:
        from torchscale.worker.models.splits.moe import tensor_plan  # noqa: PLC0415 - slow to import

        del sequence
        return tensor_plan(shape.num_layers)

    def loss(logits: Tensor, labels: Tensor) -> Tensor:
        return module.loss(logits, labels) + carried.take()  # type: ignore[no-any-return]

    tensor = None if shape.kv_rank else TensorSplit(shape.num_kv_heads, plan)
    return Workload(
        module,
        token_batches(shape.vocab_size, length),
        length,
        tensor=tensor,
        pipeline=PipelineSplit(shape.num_layers, stage_of, "input_ids", "labels", loss),
        experts=shape.num_experts,
        active_parameters=shape.active_parameters,
        context=ContextSplit(length),
    )


def _check(shape: ExpertShape, skew: float) -> None:
    if shape.num_heads % shape.num_kv_heads:
        raise ValueError(
            f"num_kv_heads {shape.num_kv_heads} does not divide num_heads {shape.num_heads}"
        )
    turned = shape.rope_size if shape.kv_rank else shape.head_size
    if turned % 2 or turned == 0:
        name = "rope_size" if shape.kv_rank else "head_size"
        raise ValueError(f"{name} {turned} is not an even number of dimensions above 0")
    if not 0 < shape.experts_per_token <= shape.num_experts:
        raise ValueError(
            f"experts_per_token {shape.experts_per_token} is not between 1 and the num_experts "
            f"{shape.num_experts}"
        )
    if not 0 <= shape.dense_layers < shape.num_layers:
        raise ValueError(
            f"dense_layers {shape.dense_layers} leaves none of the {shape.num_layers} layers for "
            "experts"
        )
    if shape.dense_layers and not shape.dense_size:
        raise ValueError(f"dense_layers {shape.dense_layers} need a dense_size")
    most = shape.num_experts / shape.experts_per_token
    if not 0 <= skew <= most:
        raise ValueError(
            f"skew {skew:g} is not between 0 and {most:g}, where all tokens go to expert 0"
        )


class CarriedBalance:
    """The loss for load balancing on its way from the last stage of a pipeline to where its loss is
    computed, micro-batch by micro-batch."""

    def __init__(self) -> None:
        self._loss: Tensor | None = None

    def put(self, loss: Tensor) -> None:
        """Keep that of the forward pass that has just ended."""
        self._loss = loss

    def take(self) -> Tensor:
        """What was kept.

        Raises:
            RuntimeError: there is none.
        """
        if self._loss is None:
            raise RuntimeError("the loss of a pipeline was asked for before its last stage ran")
        loss, self._loss = self._loss, None
        return loss


class ExpertDecoder(nn.Module):
    """Pre-norm blocks (RMSNorm) with rotary positions; no biases, no dropout, separate embedding
    and head. The first ``dense_layers`` have a dense feed-forward.

    A stage of a pipeline lacks the parts that belong to others. What it passes on has one more
    dimension than the hidden size: the loss for load balancing of the layers so far.
    """

    def __init__(self, shape: ExpertShape, length: int, *, balance: float, skew: float) -> None:
        super().__init__()
        hidden = shape.hidden_size
        self.embedding: nn.Module | None = nn.Embedding(shape.vocab_size, hidden)
        self.blocks = nn.ModuleDict(
            {
                str(layer): ExpertBlock(shape, _feed_forward(shape, layer, balance, skew))
                for layer in range(shape.num_layers)
            }
        )
        self.norm: nn.Module | None = nn.RMSNorm(hidden)
        self.head: nn.Module | None = nn.Linear(hidden, shape.vocab_size, bias=False)
        self.loss = NextTokenLoss()
        self.carried = CarriedBalance()
        self.rotations = Rotations(length, shape.rope_size if shape.kv_rank else shape.head_size)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding | ExpertRouter | Experts):
                for parameter in module.parameters():
                    nn.init.normal_(parameter, std=_INIT_STD)

    def forward(
        self,
        input_ids: Tensor,
        labels: Tensor | None = None,
        positions: Tensor | None = None,
        documents: Tensor | None = None,
    ) -> Tensor:
        """The loss, that for load balancing included; ``input_ids`` and ``labels`` (B, T). Without
        labels what the next stage takes, or logits (B, T, V). ``positions`` and ``documents``, both
        (B, T), are of tokens of several documents in a sample, which do not see each other."""
        x, carried = input_ids, []
        if self.embedding is None:
            x, carried = input_ids[..., :-1], [input_ids[..., -1].float().mean()]
        else:
            x = self.embedding(input_ids)
        cosines, sines = self.rotations(input_ids.shape[1], positions)
        mask = attended(documents)
        for block in self.blocks.values():
            x, loss = block(x, cosines, sines, mask=mask)
            carried.append(loss.float())
        balance = torch.stack(carried).sum()
        if self.head is None or self.norm is None:
            return torch.cat((x, balance.to(x.dtype).expand(*x.shape[:-1], 1)), dim=-1)
        logits: Tensor = self.head(self.norm(x))
        if labels is None:
            self.carried.put(balance)
            return logits
        return self.loss(logits, labels) + balance  # type: ignore[no-any-return]


class ExpertBlock(nn.Module):
    """Attention and feed-forward, each with a norm before it and a residual connection."""

    def __init__(self, shape: ExpertShape, feed_forward: nn.Module) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(shape.hidden_size)
        self.attention = _attention(shape)
        self.feed_forward_norm = nn.RMSNorm(shape.hidden_size)
        self.feed_forward = feed_forward

    def forward(
        self, x: Tensor, cosines: Tensor, sines: Tensor, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """``x`` (B, T, D) → (B, T, D), and the layer's loss for load balancing; a token attends to
        those where ``mask`` (B, 1, T, T) is true."""
        x = x + self.attention(self.attention_norm(x), cosines, sines, mask=mask)
        normed = self.feed_forward_norm(x)
        if not isinstance(self.feed_forward, ExpertLayer):
            return x + self.feed_forward(normed), x.new_zeros(())
        out, balance = self.feed_forward(normed)
        return x + out, balance


class LatentAttention(nn.Module):
    """Causal self-attention whose keys and values come from a narrow vector of each token, with
    further dimensions for the position (DeepSeek-V2, section 2.1)."""

    def __init__(self, shape: ExpertShape) -> None:
        super().__init__()
        hidden, heads, size = shape.hidden_size, shape.num_heads, shape.head_size
        self.head_size, self.rope_size, self.kv_rank = size, shape.rope_size, shape.kv_rank
        queries = heads * (size + shape.rope_size)
        self.query_down: nn.Module = nn.Identity()
        if shape.query_rank:
            self.query_down = nn.Sequential(
                nn.Linear(hidden, shape.query_rank, bias=False), nn.RMSNorm(shape.query_rank)
            )
        self.query = nn.Linear(shape.query_rank or hidden, queries, bias=False)
        self.kv_down = nn.Linear(hidden, shape.kv_rank + shape.rope_size, bias=False)
        self.kv_norm = nn.RMSNorm(shape.kv_rank)
        self.kv_up = nn.Linear(shape.kv_rank, heads * 2 * size, bias=False)
        self.out = nn.Linear(heads * size, hidden, bias=False)
        self.mix = CausalAttention()

    def forward(
        self, x: Tensor, cosines: Tensor, sines: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        """``x`` (B, T, D) → (B, T, D); ``mask`` as in :class:`ExpertBlock`."""
        sizes = (self.head_size, self.rope_size)
        query = self.query(self.query_down(x)).unflatten(-1, (-1, sum(sizes))).transpose(1, 2)
        content, position = query.split(sizes, dim=-1)
        query = torch.cat((content, rotate(position, cosines, sines)), dim=-1)
        narrow, position = self.kv_down(x).split((self.kv_rank, self.rope_size), dim=-1)
        both = self.kv_up(self.kv_norm(narrow)).unflatten(-1, (-1, 2 * self.head_size))
        content, value = both.transpose(1, 2).chunk(2, dim=-1)
        position = rotate(position.unsqueeze(1), cosines, sines).expand(*content.shape[:-1], -1)
        key = torch.cat((content, position), dim=-1)
        mixed = self.mix(query, key, value, mask=mask)
        return self.out(mixed.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


class GatedFeedForward(nn.Module):
    """Gate, up and down matrices with a SiLU gate: a dense layer, or all shared experts."""

    def __init__(self, hidden: int, inner: int) -> None:
        super().__init__()
        self.gate = nn.Linear(hidden, inner, bias=False)
        self.up = nn.Linear(hidden, inner, bias=False)
        self.down = nn.Linear(inner, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """``x`` (B, T, D) → (B, T, D)."""
        return self.down(functional.silu(self.gate(x)) * self.up(x))  # type: ignore[no-any-return]


def _attention(shape: ExpertShape) -> nn.Module:
    if shape.kv_rank:
        return LatentAttention(shape)
    return Attention(shape.hidden_size, shape.num_heads, shape.num_kv_heads, shape.head_size)


def _feed_forward(shape: ExpertShape, layer: int, balance: float, skew: float) -> nn.Module:
    if layer < shape.dense_layers:
        return GatedFeedForward(shape.hidden_size, shape.dense_size)
    shared = None
    if shape.shared_size:
        shared = GatedFeedForward(shape.hidden_size, shape.shared_size)
    return ExpertLayer(
        shape.hidden_size,
        shape.num_experts,
        shape.experts_per_token,
        shape.expert_size,
        shared,
        balance=balance,
        skew=skew,
    )
