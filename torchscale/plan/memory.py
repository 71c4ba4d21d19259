"""What cells are predicted to take of a device's memory, and whether that fits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torchscale.schema.cells.kinds import AnyCell, training_workload
from torchscale.schema.cells.memory import PredictedMemory


@dataclass(frozen=True)
class Forecast:
    """Predicted memory of a plan's cells.

    Attributes:
        predicted: Predicted memory by the id of the training cell; cells without a prediction are
            missing.
        device_bytes: Memory of a device; ``None`` where it is unknown.
        shared: Whether all ranks share that memory, as on a CPU.
    """

    predicted: Mapping[str, PredictedMemory]
    device_bytes: int | None
    shared: bool

    def peak_bytes(self, cell: AnyCell) -> int | None:
        """Predicted peak memory of one device, or of all ranks together where they share one
        memory; ``None`` where there is no prediction."""
        workload = training_workload(cell)
        if workload is None or (memory := self.predicted.get(workload.id)) is None:
            return None
        if self.shared:
            return memory.peak_bytes * cell.world_size
        return memory.peak_bytes

    def fits(self, cell: AnyCell) -> bool | None:
        """Whether the cell should fit; ``None`` without a prediction or a known size."""
        peak = self.peak_bytes(cell)
        if peak is None or self.device_bytes is None:
            return None
        return peak <= self.device_bytes
