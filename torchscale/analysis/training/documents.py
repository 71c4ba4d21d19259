"""Documents of different lengths: how much of what is computed is theirs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.launch.rank import FlopCount
from torchscale.schema.launch.training import TrainingResult
from torchscale.util.optional import complete


@dataclass(frozen=True)
class DocumentFigures:
    """Means per step, of all copies of the model together.

    Attributes:
        real_tokens_per_step: Tokens of documents.
        computed_tokens_per_step: Tokens with the padding.
        document_pairs_per_step: Squared lengths of the documents, added up.
    """

    real_tokens_per_step: float
    computed_tokens_per_step: float
    document_pairs_per_step: float

    @property
    def padding_share(self) -> float:
        """Share of the computed tokens that are padding."""
        return 1 - self.real_tokens_per_step / self.computed_tokens_per_step

    def work_share(self, cell: TrainingCell, flops: FlopCount) -> float | None:
        """Operations that the documents of a step need, over those of as many samples of full
        length: of each document a part grows with its length, and attention with the square of it.
        ``None`` where the parts were not counted."""
        length, attention = cell.model_options.get("sequence_length"), flops.attention_share
        if not isinstance(length, int) or attention is None:
            return None
        linear = (1 - attention) * self.real_tokens_per_step / length
        squared = attention * self.document_pairs_per_step / length**2
        return (linear + squared) / cell.global_batch_size


def document_figures(
    cell: TrainingCell, results: Sequence[TrainingResult]
) -> DocumentFigures | None:
    """Means over launches; ``None`` where samples have one length."""
    uses = [complete(rank.documents for rank in result.ranks) for result in results]
    if cell.lengths is None or not all(uses):
        return None
    # Ranks that share a copy of the model have the same samples, and each of them says so.
    copies = cell.degrees.data / cell.world_size

    def mean(name: str) -> float:
        totals = [math.fsum(getattr(use, name) for use in of_launch or ()) for of_launch in uses]
        return statistics.fmean(totals) * copies

    figures = DocumentFigures(
        mean("real_tokens_per_step"),
        mean("computed_tokens_per_step"),
        mean("document_pairs_per_step"),
    )
    return figures if figures.computed_tokens_per_step > 0 else None
