"""What a training step takes of a device's memory: the cell, and what each rank measured in it."""

from __future__ import annotations

from functools import cached_property
from typing import Literal

from torchscale.catalog.devices import BLOCK_SCALED
from torchscale.config.choices import DeviceRequest
from torchscale.config.strategy import strategy_label
from torchscale.schema.base import (
    SCHEMA_VERSION,
    Count,
    Frozen,
    PositiveCount,
)
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.ident import content_hash, file_name
from torchscale.schema.node.environment import RankIdentity

_PREDICTED = ("none", "ddp", "zero1", "fsdp", "ep", "cp", "hybrid")
"""Strategies that there is a prediction for, unless they split layers."""


def why_unpredicted(cell: TrainingCell) -> str:
    """Why there is no prediction of a cell's memory, whatever its model is; else empty."""
    degrees, strategy = cell.degrees, cell.strategy
    if degrees.tensor * degrees.pipeline > 1 or strategy.name not in _PREDICTED:
        return f"no prediction for strategy {strategy.name}"
    if cell.precision in ("fp8", *BLOCK_SCALED):
        return f"no prediction for {cell.precision}"
    if cell.compile:
        return "no prediction for compiled models"
    return ""


class MemoryCell(Frozen):
    """A few steps of a training cell, for their memory alone. ``limit_bytes`` is what a device may
    take of it."""

    kind: Literal["memory"] = "memory"
    training: TrainingCell
    limit_bytes: Count | None = None

    @property
    def world_size(self) -> int:
        """World size of the training cell."""
        return self.training.world_size

    @property
    def device(self) -> DeviceRequest:
        """Device of the training cell."""
        return self.training.device

    @cached_property
    def id(self) -> str:
        """``memory-resnet50-b64-n1-1a2b3c4d``."""
        name = file_name(self.training.model) or "model"
        digest = content_hash({"training": self.training.id, "limit_bytes": self.limit_bytes})
        return f"memory-{name}-b{self.training.batch_size}-n{self.world_size}-{digest}"

    @property
    def title(self) -> str:
        """Short name for tables and live lines."""
        return f"memory of {self.training.title} at batch {self.training.batch_size}"

    @property
    def settings(self) -> tuple[str, ...]:
        """What sets it apart, in words: precision and strategy too, which the title does not
        name."""
        cell, strategy = self.training, strategy_label(self.training.strategy)
        words = ((cell.precision, "fp32"), (strategy, "ddp"))
        return (*(word for word, default in words if word != default), *cell.settings)

    @property
    def deterministic(self) -> bool:
        """Whether the training cell asks for deterministic algorithms."""
        return self.training.deterministic


class MemoryParts(Frozen):
    """Bytes of tensors on one device; ``None`` where a part is unknown.

    ``activations`` is the most that autograd kept at any time for the backward pass, inputs and
    parameters left out.
    """

    parameters: Count
    buffers: Count
    gradients: Count
    optimizer_states: Count
    activations: Count | None


class PredictedMemory(Frozen):
    """Memory of a training step, predicted without running it: from torch's memory tracker under
    fake tensors, for one device, and arithmetic for what a strategy shares out.

    Attributes:
        parts: Where the peak's bytes are.
        peak_bytes: Most tensor bytes at any time of the second step.
        method: How it was found.
    """

    parts: MemoryParts
    peak_bytes: Count
    method: str


class MemoryRank(RankIdentity):
    """What one rank measured: ``rank-R.json``.

    Attributes:
        parts: Tensor bytes.
        peak_bytes: Most bytes that the allocator had given out in the steps: of CUDA, or of the CPU
            as torch's profiler records it.
        reserved_bytes: What the allocator held of the device at most; ``None`` on CPU.
        predicted: Rank 0's alone; ``None`` where it cannot be predicted, and ``not_predicted`` says
            why.
    """

    kind: Literal["memory"] = "memory"
    schema_version: Count = SCHEMA_VERSION
    parts: MemoryParts
    peak_bytes: PositiveCount
    reserved_bytes: Count | None = None
    predicted: PredictedMemory | None = None
    not_predicted: str = ""


class MemoryResult(Frozen):
    """What all ranks measured of their memory: records of those that left one, by rank."""

    kind: Literal["memory"] = "memory"
    ranks: tuple[MemoryRank, ...] = ()
