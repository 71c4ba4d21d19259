"""How much of a pipeline's passes its stages idle: as measured, and as the schedule makes
unavoidable."""

from __future__ import annotations

from torchscale.config.strategies.model_parallel import PipelineBase
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.exports.training import Bubble


def computed_bubble(cell: TrainingCell) -> float | None:
    """Share of the passes that stages idle by the cell's schedule; ``None`` without a pipeline."""
    degrees, strategy = cell.degrees, cell.strategy
    if degrees.pipeline == 1 or not isinstance(strategy, PipelineBase):
        return None
    turns = strategy.pieces(degrees) * strategy.stages(degrees) // degrees.pipeline
    return (degrees.pipeline - 1) / (turns + degrees.pipeline - 1)


def bubble(
    cell: TrainingCell, *, idle: float | None, forward: float | None, backward: float | None
) -> Bubble | None:
    """Measured and computed bubble of a cell, from mean seconds per step; ``None`` where nothing
    was measured."""
    computed = computed_bubble(cell)
    passes = (idle or 0.0) + (forward or 0.0) + (backward or 0.0)
    if computed is None or idle is None or passes == 0:
        return None
    return Bubble(idle / passes, computed)
