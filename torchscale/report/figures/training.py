"""The figures of a training cell, with the definitions that tables show."""

from __future__ import annotations

from collections.abc import Iterator

from torchscale.analysis.training.summary import TrainingSummary
from torchscale.report.figures.figure import Figure, finite_bounds
from torchscale.report.text.figures import EXPORTED


def training_figures(summary: TrainingSummary) -> tuple[Figure, ...]:
    """What a cell measured; nothing where it did not."""
    return tuple(_figures(summary))


def _figures(summary: TrainingSummary) -> Iterator[Figure]:
    if summary.figures is None:
        return
    for quantity in EXPORTED:
        value = quantity.value(summary)
        if value is not None and quantity.of_gpus in (None, summary.figures.on_cuda):
            yield Figure(
                quantity.key,
                quantity.unit,
                quantity.definition.partition(". In brackets")[0],
                value,
                finite_bounds(quantity.ends(summary)),
                quantity.higher_is_better,
            )
