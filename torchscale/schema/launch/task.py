"""What a launch gets from the launcher: its cell, and how its ranks share the machine."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from torchscale.config.choices import DeviceKind, Malloc
from torchscale.schema.base import (
    SCHEMA_VERSION,
    Count,
    EpochSeconds,
    Frozen,
    Real,
)
from torchscale.schema.cells.kinds import AnyCell
from torchscale.schema.profiles.request import RecordRequest


def ended_file(number: int) -> str:
    """Name of the file with the exit status of the agent of one launch, in the directory that hands
    over launches to forks."""
    return f"ended-{number}"


class LaunchTask(Frozen):
    """The task of one launch: the file ``task.json`` that every rank reads.

    Attributes:
        schema_version: Schema version of this file.
        cell: What to run.
        launch: Which repeat, from 0.
        device: What the cell's device request resolved to.
        device_indices: Devices of the local ranks, in order: GPU indices, or nothing on CPU.
        cpu_sets: Cores of each local rank; ``None`` leaves the ranks unpinned.
        exclusive_cores: Whether no two ranks share a core.
        oversubscribed: Whether ranks share devices; they then exchange over gloo.
        threads_per_rank: CPU threads of each rank.
        malloc: Whether glibc keeps the memory that a step frees.
        started_at: When the launcher started it, in seconds since the epoch.
        budget_seconds: The launch should end within this, start-up included; ``None`` for no
            budget.
        budget_from: When that begins, by the clock since this machine started, which nobody can
            set; the ranks that decide when a measurement ends run on it. ``None`` for no budget.
        collective_timeout_seconds: torch's own bound on one collective; above the launcher's, which
            decides first.
        log_step_times: Whether the step files are kept (they are always written).
        recording: The recording to make, if the cell is to be recorded with a profiler instead of
            measured.
        gpu_uuids: UUIDs of the devices, where the driver tells.
        telemetry_seconds: Seconds between two readings of the machine; ``None`` for none.
        counts_flops: Whether rank 0 counts the model's operations once it has measured.
    """

    schema_version: Count = SCHEMA_VERSION
    cell: AnyCell
    launch: Count
    device: DeviceKind
    device_indices: tuple[Count, ...] = ()
    cpu_sets: tuple[tuple[Count, ...], ...] | None = None
    exclusive_cores: bool = True
    oversubscribed: bool = False
    threads_per_rank: Count
    malloc: Malloc = "keep"
    started_at: EpochSeconds
    budget_seconds: Real | None = None
    budget_from: Real | None = None
    collective_timeout_seconds: Real
    log_step_times: bool = True
    recording: RecordRequest | None = None
    gpu_uuids: tuple[str, ...] = ()
    telemetry_seconds: Real | None = None
    counts_flops: bool = False


class GroupItem(Frozen):
    """A launch that is handed to processes which run one after the other.

    Attributes:
        task: What to run. Processes beyond its ranks wait for the next launch.
        directory: Where the ranks leave their records.
        cpu_sets: Cores of every process, also of those that wait; ``None`` leaves them unpinned.
        environment: Variables of this launch alone, where it gets processes of its own.
    """

    task: LaunchTask
    directory: str
    cpu_sets: tuple[tuple[Count, ...], ...] | None = None
    environment: Mapping[str, str] = Field(default_factory=dict)
