"""A cell: one workload in one setting at one world size, and what a single launch of it is told."""

from __future__ import annotations

import hashlib
import json
from typing import Literal

from pydantic import Field

from torchscale.catalog.models import OptionValue
from torchscale.schema.base import SCHEMA_VERSION, Frozen
from torchscale.schema.config import DeviceRequest, OptimizerName, Precision, Preset, Scaling, Strategy
from torchscale.schema.record_request import RecordRequest

DeviceKind = Literal["cuda", "cpu"]
"""What a device request resolves to on a machine."""


class Measurement(Frozen):
    """When warm-up and measurement end; the fields are those of ``benchmark:`` and ``training.epochs``."""

    preset: Preset
    warmup_steps: int
    warmup_seconds: float
    warmup_max_seconds: float
    steady_tolerance: float
    min_steps: int
    min_seconds: float
    max_steps: int
    max_seconds: float
    target_half_width: float
    measure_steps: int | None = None
    measure_seconds: float | None = None
    epochs: int | None = None
    sync_cuda: bool = False


class Cell(Frozen):
    """One training cell. Its id says what was asked, never where it ran.

    ``batch_size`` is per device under weak scaling and global under strong scaling, as the user wrote it.
    """

    kind: Literal["training"] = "training"
    model: str
    model_options: dict[str, OptionValue] = Field(default_factory=dict)
    batch_size: int
    scaling: Scaling
    world_size: int
    device: DeviceRequest
    precision: Precision
    strategy: Strategy
    optimizer: OptimizerName
    learning_rate: float
    channels_last: bool
    compile: bool
    seed: int
    cudnn_benchmark: bool
    data_source: Literal["synthetic"]
    num_samples: int
    measurement: Measurement

    @property
    def per_device_batch_size(self) -> int:
        """Samples each rank processes per step."""
        return self.batch_size if self.scaling == "weak" else self.batch_size // self.world_size

    @property
    def global_batch_size(self) -> int:
        """Samples all ranks process per step."""
        return self.per_device_batch_size * self.world_size

    @property
    def id(self) -> str:
        """Readable and stable: ``resnet50-b64-n4-fp32-ddp-1a2b3c4d``; ends in a hash of the whole content."""
        content = json.dumps(self.model_dump(mode="json"), sort_keys=True)
        digest = hashlib.sha256(content.encode()).hexdigest()[:8]
        # Bytes, not characters, bound a file name: letters of other scripts go, the hash still tells models apart.
        plain = "".join(char if char.isascii() and (char.isalnum() or char in "._-") else "-" for char in self.model)
        name = plain.strip(".-")[:60] or "model"
        batch = f"b{self.batch_size}" if self.scaling == "weak" else f"g{self.batch_size}"
        return f"{name}-{batch}-n{self.world_size}-{self.precision}-{self.strategy}-{digest}"

    @property
    def series(self) -> str:
        """Equal for cells that differ in world size alone: efficiency compares within a series."""
        return json.dumps(self.model_dump(mode="json", exclude={"world_size"}), sort_keys=True)


class LaunchTask(Frozen):
    """What one launch is told: the file ``task.json`` that every rank reads.

    Attributes:
        schema_version: Of this file.
        cell: What to run.
        launch: Which repeat, from 0.
        device: What the cell's device request resolved to.
        device_indices: Devices of the local ranks, in order: GPU indices, or nothing on CPU.
        cpu_sets: Cores of each local rank on CPU; ``None`` leaves the ranks unpinned.
        threads_per_rank: CPU threads of each rank.
        started_at: When the launcher started it, in seconds since the epoch.
        budget_seconds: The launch should end within this, start-up included; ``None`` for no budget.
        collective_timeout_seconds: torch's own bound on one collective; above the launcher's, which decides first.
        log_step_times: Whether the step files are kept (they are always written).
        recording: To be recorded with a profiler instead of measured.
    """

    schema_version: int = SCHEMA_VERSION
    cell: Cell
    launch: int
    device: DeviceKind
    device_indices: tuple[int, ...] = ()
    cpu_sets: tuple[tuple[int, ...], ...] | None = None
    threads_per_rank: int
    started_at: float
    budget_seconds: float | None = None
    collective_timeout_seconds: float
    log_step_times: bool = True
    recording: RecordRequest | None = None
