"""Borders of documents within samples: which tokens see each other, and where each stands.

Shapes: B samples, T tokens.
"""

from __future__ import annotations

from torch import Tensor


def attended(documents: Tensor | None) -> Tensor | None:
    """(B, 1, T, T): whether a token attends to another one, which is in its document and not after
    it; ``None`` where all tokens of a sample are of one document, which causal attention alone
    says."""
    if documents is None:
        return None
    same = documents[:, :, None] == documents[:, None, :]
    return same.tril().unsqueeze(1)


def placed(
    tables: tuple[Tensor, Tensor], length: int, positions: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Rows of tables over positions, for ``length`` tokens: (T, size), or (B, 1, T, size) where
    each token has a position of its own."""
    first, second = tables
    if positions is None:
        return first[:length], second[:length]
    return first[positions].unsqueeze(1), second[positions].unsqueeze(1)
