"""Tokens of documents in samples of different lengths: of a step on a rank, and of a launch."""

from __future__ import annotations

from torchscale.schema.base import Count, Frozen, NotNegative


class DocumentStep(Frozen):
    """The samples of one step that a rank works on, which are also those of the ranks that it shares
    a copy of the model with.

    Attributes:
        real_tokens_per_rank: Tokens of documents.
        document_pairs_per_rank: Their squared lengths, added up: what attention within documents
            takes is proportional to it.
        computed_tokens_per_rank: Tokens with the padding.
        computed_pairs_per_rank: Squared lengths of the samples with their padding, added up.
    """

    real_tokens_per_rank: Count
    document_pairs_per_rank: Count
    computed_tokens_per_rank: Count
    computed_pairs_per_rank: Count


class DocumentUse(Frozen):
    """Means over the measured steps of a rank; the figures of :class:`DocumentStep`."""

    real_tokens_per_step: NotNegative
    document_pairs_per_step: NotNegative
    computed_tokens_per_step: NotNegative
