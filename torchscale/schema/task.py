"""What a launch is told: cells of every kind, and how their ranks share the machine."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Discriminator, Tag

from torchscale.schema.base import SCHEMA_VERSION, Frozen
from torchscale.schema.cell import Cell, DeviceKind
from torchscale.schema.collectives import CollectivesCell
from torchscale.schema.hardware import HardwareCell
from torchscale.schema.memory import MemoryCell
from torchscale.schema.record_request import RecordRequest


def _kind(value: Any) -> str:  # noqa: ANN401 - raw JSON, or a cell
    """Cells written before there were other kinds are of training."""
    found = value.get("kind", "training") if isinstance(value, dict) else getattr(value, "kind", "")
    return str(found)


AnyCell = Annotated[
    Annotated[Cell, Tag("training")]
    | Annotated[CollectivesCell, Tag("collectives")]
    | Annotated[HardwareCell, Tag("hardware")]
    | Annotated[MemoryCell, Tag("memory")],
    Discriminator(_kind),
]
"""A cell of any kind."""


class LaunchTask(Frozen):
    """What one launch is told: the file ``task.json`` that every rank reads.

    Attributes:
        schema_version: Of this file.
        cell: What to run.
        launch: Which repeat, from 0.
        device: What the cell's device request resolved to.
        device_indices: Devices of the local ranks, in order: GPU indices, or nothing on CPU.
        cpu_sets: Cores of each local rank; ``None`` leaves the ranks unpinned.
        own_cores: Whether no two ranks share a core.
        oversubscribed: Whether ranks share devices; they then exchange over gloo.
        threads_per_rank: CPU threads of each rank.
        started_at: When the launcher started it, in seconds since the epoch.
        budget_seconds: The launch should end within this, start-up included; ``None`` for no budget.
        collective_timeout_seconds: torch's own bound on one collective; above the launcher's, which decides first.
        log_step_times: Whether the step files are kept (they are always written).
        recording: To be recorded with a profiler instead of measured.
        gpu_uuids: Of the devices, where the driver tells.
        telemetry_seconds: Between two readings of the machine; ``None`` for none.
        counts_flops: Whether rank 0 counts the model's operations once it has measured.
    """

    schema_version: int = SCHEMA_VERSION
    cell: AnyCell
    launch: int
    device: DeviceKind
    device_indices: tuple[int, ...] = ()
    cpu_sets: tuple[tuple[int, ...], ...] | None = None
    own_cores: bool = True
    oversubscribed: bool = False
    threads_per_rank: int
    started_at: float
    budget_seconds: float | None = None
    collective_timeout_seconds: float
    log_step_times: bool = True
    recording: RecordRequest | None = None
    gpu_uuids: tuple[str, ...] = ()
    telemetry_seconds: float | None = None
    counts_flops: bool = False


class GroupItem(Frozen):
    """A launch that is handed to ranks which run one after the other: what to run, and where to leave the record."""

    task: LaunchTask
    directory: str
