"""Context parallelism: the tokens of every sample split over ranks that hold all layers. Before
attention they gather the keys and values of all tokens.

Shapes: B samples, H heads, T tokens of a sample, t tokens of it on this rank, P ranks that share it.
"""

from __future__ import annotations

from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn

from torchscale.worker.models.interface import BatchOfTensors, ContextSplit
from torchscale.worker.models.sequence import (
    CausalAttention,
    SequenceModule,
    SequencePart,
    following,
)

_all_gather = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)
"""torch 2.13 calls it by another name."""


def sequence_part(
    index: int, parts: int, length: int, group: dist.ProcessGroup | None
) -> SequencePart:
    """One rank's part of every sequence. Without a ``group`` it exchanges nothing: it takes the
    memory that it would take, and its values mean nothing.

    Raises:
        ValueError: the sequence does not divide into two chunks for each rank.
    """
    if length % (2 * parts):
        raise ValueError(
            f"sequences of {length} tokens do not divide into {2 * parts} chunks, two for each of "
            f"{parts} devices"
        )
    exchange = KeyExchange(parts, group)
    return SequencePart(index, parts, length, exchange.gather, exchange.add_up)


def split(module: nn.Module, how: ContextSplit, part: SequencePart) -> None:
    """Tell ``module``, in place, that it gets the tokens of ``part`` alone."""
    if how.prepare is not None:
        how.prepare(module, part)
    for one in module.modules():
        if isinstance(one, SequenceModule):
            one.take_part(part)


def keep_eager(module: nn.Module) -> None:
    """Leave attention out of what is compiled: it waits for the keys and values of other ranks."""
    for one in module.modules():
        if isinstance(one, CausalAttention):
            one.forward = torch.compiler.disable(one.forward)  # type: ignore[method-assign, no-untyped-call]


def take(batch: BatchOfTensors, how: ContextSplit, part: SequencePart) -> BatchOfTensors:
    """What ``part`` has of a batch of whole samples; of a batch without tensors nothing."""
    taken = dict(batch)
    for name in (*how.inputs, how.targets):
        if name not in batch:
            continue
        tokens = batch[name]
        if name == how.targets:
            tokens = following(tokens)
        taken[name] = part.take(tokens, 1)
        if how.positions:
            positions = part.positions(tokens.device)
            taken[how.positions] = positions.expand(len(tokens), -1)
    return taken


class KeyExchange:
    """Gathers keys and values over the ranks that share sequences."""

    def __init__(self, parts: int, group: dist.ProcessGroup | None) -> None:
        self.parts, self.group = parts, group

    def gather(self, x: Tensor) -> Tensor:
        """(B, H, t, …) of this rank → (B, H, T, …) of all, in the order of the sequence."""
        return cast(Tensor, _Gather.apply(x, self))  # type: ignore[no-untyped-call]

    def add_up(self, x: Tensor) -> Tensor:
        """The sum over all ranks."""
        total = x.detach().clone()
        if self.group is not None:
            dist.all_reduce(total, group=self.group)
        return total

    def gathered(self, x: Tensor) -> Tensor:
        """``x`` of each rank, (P, …)."""
        whole = x.new_empty((self.parts * len(x), *x.shape[1:]))
        if self.group is not None:
            _all_gather(whole, x.contiguous(), group=self.group)
        return whole.view(self.parts, *x.shape)

    def returned(self, x: Tensor) -> Tensor:
        """(P, …), a part for each rank, → the sum of the parts that all ranks have for this one.
        Sent whole and added here: gloo adds up no bf16, and the sum is in fp32."""
        x = x.contiguous()
        arriving = torch.empty_like(x)
        if self.group is not None:
            dist.all_to_all_single(arriving, x, group=self.group)
        kind = torch.promote_types(x.dtype, torch.float32)
        return arriving.sum(dim=0, dtype=kind).to(x.dtype)


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, exchange: KeyExchange) -> Tensor:  # noqa: ANN401 - torch's own interface
        ctx.exchange = exchange
        whole, dim = exchange.gathered(x), 3  # of tokens, once there is one of ranks before it
        early, late = whole.chunk(2, dim=dim)
        return torch.cat((*early.unbind(), *reversed(late.unbind())), dim=dim - 1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:  # noqa: ANN401 - torch's own interface
        exchange: KeyExchange = ctx.exchange
        chunks = gradients[0].chunk(2 * exchange.parts, dim=2)
        early, late = chunks[: exchange.parts], chunks[: exchange.parts - 1 : -1]
        pairs = [torch.cat(pair, dim=2) for pair in zip(early, late, strict=True)]
        return exchange.returned(torch.stack(pairs)), None
