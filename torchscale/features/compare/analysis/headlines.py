"""The metrics that decide, and the loss that no gate may miss."""

from __future__ import annotations

from collections.abc import Sequence

from torchscale.config.choices import Metric
from torchscale.schema.run.result_set import ResultCell

BLIND = 0.25
"""An unclear comparison fails where a loss of this share is possible: a gate that could miss a
quarter of the speed holds nothing back. Launches on a shared machine differ by 2 to 3 %, which
gives intervals of 5 to 8 % with three of them (docs/method.md)."""
HEADLINES = (
    Metric.THROUGHPUT,
    Metric.STEPS,
    Metric.BUSBW,
    Metric.COMPUTE,
    Metric.COPY,
    Metric.SAVE,
    Metric.LOAD,
)
"""What decides unless something else is asked for; of a cell that measures memory alone, that."""


def decides(cell: ResultCell, metric: Metric, metrics: Sequence[Metric]) -> bool:
    """Whether a metric of a cell decides: one of ``metrics``, or without any its headline."""
    if metrics:
        return metric in metrics
    return metric in HEADLINES or (cell.cell.kind == "memory" and metric is Metric.MEMORY)
