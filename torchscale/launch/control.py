"""What steers a launch from outside: its time limits, the user's request to stop, and the task
handed to its ranks."""

from __future__ import annotations

import time
from dataclasses import dataclass

from torchscale.plan.expand import Plan
from torchscale.schema.cells.kinds import AnyCell
from torchscale.schema.launch.task import LaunchTask
from torchscale.schema.profiles.request import RecordRequest
from torchscale.util.processes.subprocesses import ManagedProcess

_BUDGET_GRACE_SECONDS = 10.0
"""The worker ends its measurement 3 s before the budget does, to write its record. A launch that is
still running this long after the budget is late by several times that reserve, and the launcher
ends it."""
_COLLECTIVE_MARGIN_SECONDS = 120.0
"""The launcher has to report a hang before torch's own timeout aborts the ranks. A collective
starts later than the launch, so any margin does; two minutes also cover the end of a process tree
on a loaded host."""


@dataclass(frozen=True)
class LaunchLimits:
    """Bounds of one launch, in seconds.

    Attributes:
        timeout_seconds: Longest time from start to end.
        stall_seconds: Longest time without any progress.
        budget_seconds: What the measurement should fit in; ``None`` for no budget.
    """

    timeout_seconds: float
    stall_seconds: float
    budget_seconds: float | None = None

    @property
    def hard_seconds(self) -> float:
        """Seconds from the start after which the launch is ended: the timeout, or the budget and
        its grace if less."""
        if self.budget_seconds is None:
            return self.timeout_seconds
        return min(self.timeout_seconds, self.budget_seconds + _BUDGET_GRACE_SECONDS)

    @property
    def collective_seconds(self) -> float:
        """torch's own bound on a collective: above ours, so that the launcher reports a hang
        first."""
        return self.hard_seconds + _COLLECTIVE_MARGIN_SECONDS


class StopRequest:
    """Whether the user wants to stop: set by the signal handlers, read by every wait."""

    def __init__(self) -> None:
        self.count = 0

    @property
    def asked(self) -> bool:
        """Asked at least once: end this launch with the usual grace."""
        return self.count > 0

    @property
    def at_once(self) -> bool:
        """Asked at least twice: end this launch without grace."""
        return self.count > 1

    def end(self, process: ManagedProcess) -> tuple[str, ...]:
        """End a process with its descendants, with the grace that the user leaves; returns
        survivors."""
        if self.at_once:
            return process.end(grace_seconds=0.0)
        return process.end()


def launch_task(
    plan: Plan,
    cell: AnyCell,
    limits: LaunchLimits,
    *,
    launch: int = 0,
    log_step_times: bool = True,
    telemetry_seconds: float | None = None,
    counts_flops: bool = False,
    recording: RecordRequest | None = None,
) -> LaunchTask:
    """The task of a launch of ``cell`` that starts now, on the devices and cores that ``plan``
    gives to its ranks.

    Args:
        plan: Gives devices, cores and threads.
        cell: One of the plan's.
        limits: Give the budget and the timeout of collectives.
        launch: Which repeat, from 0.
        log_step_times: Whether the step files are kept.
        telemetry_seconds: Seconds between two readings of the machine; ``None`` for none.
        counts_flops: Whether rank 0 counts the model's operations.
        recording: The recording to make, if the cell is to be recorded with a profiler instead of
            measured.
    """
    world_size = cell.world_size
    return LaunchTask(
        cell=cell,
        launch=launch,
        device=plan.device,
        device_indices=plan.device_indices_of(world_size),
        cpu_sets=plan.cpu_sets(world_size),
        exclusive_cores=plan.has_exclusive_cores(world_size),
        oversubscribed=plan.is_oversubscribed(world_size),
        threads_per_rank=plan.threads_per_rank,
        malloc=plan.malloc,
        started_at=time.time(),
        budget_seconds=limits.budget_seconds,
        budget_from=None if limits.budget_seconds is None else time.monotonic(),
        collective_timeout_seconds=limits.collective_seconds,
        log_step_times=log_step_times,
        recording=recording,
        gpu_uuids=plan.uuids_of(world_size),
        telemetry_seconds=telemetry_seconds,
        counts_flops=counts_flops,
    )
