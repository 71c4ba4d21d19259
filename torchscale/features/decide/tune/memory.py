"""What strategies are predicted to take of a device's memory, before anything is launched.

Where torch's tracker gives no prediction (models that are split by matrices or layers), a lower
bound: parameters, gradients and optimizer states, divided by all devices that share a copy, without
activations. A strategy that takes more than there is even so cannot run.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from torchscale.catalog.devices import BLOCK_SCALED
from torchscale.config.secrets import hidden_environment
from torchscale.config.strategy import sharding
from torchscale.launch.prediction import predict_cells
from torchscale.measure.context import PlannedRun
from torchscale.schema.cells.memory import MemoryParts, PredictedMemory
from torchscale.schema.cells.training import TrainingCell
from torchscale.util.units import format_bytes

PREDICTION_SECONDS = 60.0
"""Bound on the predictions of a search: strategies share the model's, which takes seconds. Cells
without a prediction in time are launched."""


@dataclass(frozen=True)
class MemoryNeed:
    """What a rank is predicted to take.

    Attributes:
        rank_bytes: Peak of a training step.
        at_least: Whether it is a lower bound only.
    """

    rank_bytes: int
    at_least: bool = False


class MemoryForecast:
    """Predicted memory of cells, and whether that fits a rank's share of this machine's."""

    def __init__(self, planned: PlannedRun, world_size: int) -> None:
        self._planned, self._world_size = planned, world_size
        self._needs: dict[str, MemoryNeed | None] = {}

    @property
    def rank_bytes(self) -> int | None:
        """Memory that a rank may take: its device's, on a CPU its share of the host's, and no more
        than ``memory.limit``; ``None`` where it is unknown."""
        device = self._planned.device_memory_bytes
        if device is not None and self._planned.plan.device == "cpu":
            device //= self._world_size
        limits = [one for one in (device, self._planned.experiment.memory.limit) if one is not None]
        return min(limits, default=None)

    def predict(self, cells: Iterable[TrainingCell]) -> None:
        """Predict cells that were not predicted before, in one process."""
        new = [cell for cell in cells if cell.id not in self._needs]
        if not new:
            return
        whole = {cell.id: _whole(cell) for cell in new}
        distinct = {cell.id: cell for cell in (*new, *whole.values())}
        predicted = predict_cells(
            list(distinct.values()),
            timeout_seconds=PREDICTION_SECONDS,
            env=hidden_environment(self._planned.experiment),
        )
        for cell in new:
            self._needs[cell.id] = need(
                cell, predicted.get(cell.id), predicted.get(whole[cell.id].id)
            )

    def need(self, cell: TrainingCell) -> MemoryNeed | None:
        """What a rank of a cell is predicted to take; ``None`` without a prediction."""
        self.predict([cell])
        return self._needs[cell.id]

    def refusal(self, cell: TrainingCell) -> str | None:
        """Why a cell is not launched; ``None`` where it may fit."""
        predicted, available = self.need(cell), self.rank_bytes
        if predicted is None or available is None or predicted.rank_bytes <= available:
            return None
        amount = "at least " * predicted.at_least + format_bytes(predicted.rank_bytes)
        return f"predicted to take {amount} a rank, of {format_bytes(available)}"


def as_ddp(cell: TrainingCell) -> TrainingCell:
    """The same cell with a copy of the model on every device."""
    return TrainingCell.model_validate({**cell.model_dump(), "strategy": "ddp"})


def _whole(cell: TrainingCell) -> TrainingCell:
    """What has the states of the cell's whole model, and can be predicted."""
    content = {**as_ddp(cell).model_dump(), "compile": False}
    if cell.precision in ("fp8", *BLOCK_SCALED):
        content["precision"] = "bf16"
    return TrainingCell.model_validate(content)


def need(
    cell: TrainingCell, predicted: PredictedMemory | None, whole: PredictedMemory | None
) -> MemoryNeed | None:
    """What a rank takes: as predicted, or at least. Pure.

    Args:
        cell: The cell.
        predicted: Its prediction, where there is one.
        whole: That of the same cell with a copy of the model on every device.
    """
    if predicted is not None:
        return MemoryNeed(predicted.peak_bytes)
    sharded = sharding(cell.strategy, cell.degrees)
    degrees = cell.degrees.beside_context(sharded=sharded is not None)
    split = degrees.tensor * degrees.pipeline
    if whole is None or split == 1 or (sharded is not None and sharded.offload):
        return None
    shares = split * degrees.shard * degrees.expert
    return MemoryNeed(_states(whole.parts) // shares, at_least=True)


def _states(parts: MemoryParts) -> int:
    return parts.parameters + parts.gradients + parts.optimizer_states
