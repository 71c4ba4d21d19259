"""Documents of different lengths: how much of what is computed is theirs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.exports.training import DocumentFigures
from torchscale.schema.launch.training import TrainingResult
from torchscale.util.optional import complete


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
