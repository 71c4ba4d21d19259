"""Borders of documents within samples: which tokens see each other.

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
