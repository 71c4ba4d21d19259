"""What of a decoder depends on where a token lies in its sequence: causal attention, the loss of the
next token, and positions. Under context parallelism a rank has some of the tokens of every sample.

Shapes: B samples, H heads, T tokens of a sample, t tokens of it on this rank, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

NO_TARGET = -100
"""Label of a token that no other follows; ``cross_entropy`` leaves it out."""


@dataclass(frozen=True)
class SequencePart:
    """The tokens of every sample that one of several ranks has. Of ``2 · parts`` equal chunks it has
    number ``index`` and, counted from the end, number ``index`` again: under a causal mask a later
    token attends to more, and the two together attend to as much on every rank.

    Attributes:
        index: Which part, from 0.
        parts: Ranks that share a sequence.
        length: Tokens of a sample, T; twice the parts divide them.
        gather: ``(B, H, t, …) → (B, H, T, …)``: the tokens of all ranks, in the order of the
            sequence. Gradients go back to the ranks that the tokens came from, and are added up.
        add_up: The sum of a tensor over these ranks, without a gradient.
    """

    index: int
    parts: int
    length: int
    gather: Callable[[Tensor], Tensor]
    add_up: Callable[[Tensor], Tensor]

    @property
    def chunk(self) -> int:
        """Tokens of a chunk."""
        return self.length // (2 * self.parts)

    @property
    def ends(self) -> tuple[int, int]:
        """Where its two chunks end in the sequence: as many tokens their last ones attend to."""
        return (self.index + 1) * self.chunk, (2 * self.parts - self.index) * self.chunk

    def take(self, x: Tensor, dim: int) -> Tensor:
        """Of ``x``, whose dimension ``dim`` is the sequence, what belongs to its tokens."""
        return torch.cat([x.narrow(dim, end - self.chunk, self.chunk) for end in self.ends], dim)

    def positions(self, device: torch.device | None = None) -> Tensor:
        """Places of its tokens in the sequence, (t,)."""
        return self.take(torch.arange(self.length, device=device), 0)


def attended(documents: Tensor | None) -> Tensor | None:
    """(B, 1, T, T): whether a token attends to another one, which is in its document and not after
    it, from the document of every token (B, T); ``None`` where all tokens of a sample are of one
    document, which causal attention alone says."""
    if documents is None:
        return None
    same = documents[:, :, None] == documents[:, None, :]
    return same.tril().unsqueeze(1)


class SequenceModule(nn.Module):
    """A module that depends on which tokens it gets.

    Attributes:
        part: Those that it gets; ``None`` for all.
    """

    part: SequencePart | None = None

    def take_part(self, part: SequencePart) -> None:
        """From now on it gets the tokens of ``part`` alone."""
        self.part = part


class CausalAttention(SequenceModule):
    """Each token attends to itself and to those before it.

    Attributes:
        groups: Heads of queries for each head of keys and values.
    """

    def __init__(self, groups: int = 1) -> None:
        super().__init__()
        self.groups = groups

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        mask: Tensor | None = None,
        scale: float | None = None,
        dropout: float = 0.0,
    ) -> Tensor:
        """Queries, keys and values (B, H, t, …) → (B, H, t, …).

        Args:
            mask: (B, 1, T, T), of whole sequences: a token attends to those where it is true, in
                place of all before it. Parts of sequences have none.
            scale: What products of queries and keys are multiplied with; ``None`` for one over the
                root of their size.
            dropout: Probability with which a weight is dropped.
        """
        if self.part is None:
            key, value = self._repeated(key), self._repeated(value)
            return functional.scaled_dot_product_attention(
                query,
                key,
                value,
                attn_mask=mask,
                is_causal=mask is None,
                scale=scale,
                dropout_p=dropout,
            )
        whole = self.part.gather(torch.cat((key, value), dim=-1))
        size = key.shape[-1]
        key, value = self._repeated(whole[..., :size]), self._repeated(whole[..., size:])
        chunks = [
            functional.scaled_dot_product_attention(
                chunk,
                key[:, :, :end],
                value[:, :, :end],
                attn_mask=_last_rows(chunk, end),
                scale=scale,
                dropout_p=dropout,
            )
            for chunk, end in zip(query.chunk(2, dim=2), self.part.ends, strict=True)
        ]
        return torch.cat(chunks, dim=2)

    def _repeated(self, x: Tensor) -> Tensor:
        return x if self.groups == 1 else x.repeat_interleave(self.groups, dim=1)


def _last_rows(query: Tensor, keys: int) -> Tensor:
    """The mask of the last tokens of a sequence of ``keys``, which ``query`` has. On devices one
    that kernels know and that takes no memory."""
    rows = query.shape[2]
    if query.device.type == "cuda":
        from torch.nn.attention.bias import causal_lower_right  # noqa: PLC0415 - imports the compiler

        return causal_lower_right(rows, keys)
    mask = torch.ones(rows, keys, dtype=torch.bool, device=query.device)
    return mask.tril(keys - rows)


class NextTokenLoss(SequenceModule):
    """Mean cross-entropy of each token given those before it."""

    def forward(self, logits_BtV: Tensor, labels_Bt: Tensor) -> Tensor:
        """The loss, a scalar. Of a part of each sequence its share of the loss, such that the mean
        over all parts is the loss of the whole; its labels are the tokens that follow, or
        :data:`NO_TARGET`."""
        if self.part is None:
            return next_token_loss(logits_BtV, labels_Bt)
        total = functional.cross_entropy(
            logits_BtV.flatten(0, 1).float(),
            labels_Bt.flatten(),
            ignore_index=NO_TARGET,
            reduction="sum",
        )
        return total * (self.part.parts / (len(labels_Bt) * (self.part.length - 1)))


def next_token_loss(logits_BTV: Tensor, labels_BT: Tensor) -> Tensor:
    """Mean cross-entropy of each token of whole sequences given those before it; labels below 0
    (:data:`NO_TARGET`) do not count."""
    predicted, target = logits_BTV[:, :-1], labels_BT[:, 1:]
    return functional.cross_entropy(predicted.flatten(0, 1).float(), target.flatten())


def following(tokens_BT: Tensor) -> Tensor:
    """The token that follows each, and :data:`NO_TARGET` after the last."""
    return functional.pad(tokens_BT[:, 1:], (0, 1), value=NO_TARGET)
