"""CPU time of this rank and of its cores, and its memory: raw readings, judged in analysis."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import resource
import sys
from collections.abc import Iterable
from pathlib import Path
from time import perf_counter, process_time

import psutil
import torch

from torchscale.schema.launch.rank import HostLoad, MemoryUse
from torchscale.schema.launch.task import LaunchTask
from torchscale.util.optional import optional
from torchscale.worker.measure.fixed_work import FixedWork
from torchscale.worker.measure.run_queue import RunQueueMeter

_PROC_STAT = Path("/proc/stat")


class HostLoadMeter:
    """CPU time from construction to :meth:`read`, of this rank and of everything on the CPUs
    ``cpus``."""

    def __init__(
        self, cpus: tuple[int, ...], *, pinned: bool, with_fixed_work: bool = False
    ) -> None:
        self._cpus, self._pinned = cpus, pinned
        self._fixed_work = FixedWork() if with_fixed_work else None
        self._wall, self._process = perf_counter(), process_time()
        self._before = _busy_seconds(cpus)
        self._children = _children_seconds()
        self._run_queue = RunQueueMeter()

    def between(self) -> None:
        """Do the fixed work between two batches, where it is asked for."""
        if self._fixed_work is not None:
            self._fixed_work.sample()

    @property
    def seconds(self) -> float:
        """Wall time since construction."""
        return perf_counter() - self._wall

    def read(self) -> HostLoad:
        """Seconds since construction: wall time, busy time of the CPUs, CPU time of this rank with
        its loader processes, and how long their threads waited for a core."""
        busy, interrupted, stolen = map(_gone_up, _busy_seconds(self._cpus), self._before)
        return HostLoad(
            wall_seconds=perf_counter() - self._wall,
            busy_seconds=busy,
            process_seconds=process_time() - self._process + self._by_children(),
            cores=len(self._cpus),
            pinned=self._pinned,
            interrupted_seconds=interrupted,
            stolen_seconds=min(stolen, interrupted),
            run_queue=self._run_queue.read(),
            fixed_work_seconds=optional(FixedWork.read, self._fixed_work),
        )

    def _by_children(self) -> float:
        """CPU time of the data loader's processes, which belongs to the rank. A process that has
        ended is not counted."""
        return sum(
            _gone_up(seconds, self._children.get(pid, 0.0))
            for pid, seconds in _children_seconds().items()
        )


def _gone_up(now: float, before: float) -> float:
    """What a counter of the kernel has gained. Some step back: time that a hypervisor took, once a
    machine has moved to another host; that of a process whose number another one has now."""
    return max(0.0, now - before)


class MemoryMeter:
    """Peak memory from construction, which is to be before the model is built, to :meth:`read`."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._before = int(psutil.Process().memory_info().rss)
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)

    def read(self) -> MemoryUse:
        """Bytes: the allocator's peaks on CUDA, resident memory before and at its peak on CPU."""
        if self._device.type == "cuda":
            return MemoryUse(
                peak_allocated_bytes=torch.cuda.max_memory_allocated(self._device),
                peak_reserved_bytes=torch.cuda.max_memory_reserved(self._device),
            )
        return MemoryUse(
            resident_before_bytes=self._before,
            resident_peak_bytes=max(self._before, _peak_resident()),
        )


def launch_cpus() -> tuple[int, ...]:
    """Logical CPUs that all ranks of this launch together may run on: those of torchrun, which is
    not pinned."""
    try:
        return tuple(sorted(psutil.Process().parent().cpu_affinity()))  # type: ignore[union-attr]
    except (
        psutil.Error,
        AttributeError,
        OSError,
    ):  # torchrun has ended, or the system has no CPU affinity
        return usable_cpus()


def _children_seconds() -> dict[int, float]:
    """CPU seconds of each living child process, by pid."""
    seconds = {}
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):  # it has ended
            used = child.cpu_times()
            seconds[child.pid] = used.user + used.system
    return seconds


def usable_cpus() -> tuple[int, ...]:
    """Logical CPUs that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def host_load_meter(task: LaunchTask, *, with_fixed_work: bool = False) -> HostLoadMeter:
    """A meter of the cores that are this rank's, or where ranks share cores, of the launch's."""
    pinned = task.cpu_sets is not None and task.exclusive_cores
    return HostLoadMeter(
        usable_cpus() if pinned else launch_cpus(), pinned=pinned, with_fixed_work=with_fixed_work
    )


def _busy_seconds(cpus: tuple[int, ...]) -> tuple[float, float, float]:
    """Time the given CPUs were not idle since boot; of it, the time in interrupts or stolen by the
    hypervisor; of that, the time stolen."""
    selected = set(cpus)
    by_processes, interrupted, stolen = 0.0, 0.0, 0.0
    for cpu, times in zip(_online_cpus(), psutil.cpu_times(percpu=True), strict=False):
        if cpu in selected:
            fields = times._asdict()
            # guest time is contained in user time
            by_processes += sum(fields.get(name, 0.0) for name in ("user", "nice", "system"))
            interrupted += sum(fields.get(name, 0.0) for name in ("irq", "softirq", "steal"))
            stolen += fields.get("steal", 0.0)
    return by_processes + interrupted, interrupted, stolen


def _online_cpus() -> Iterable[int]:
    """Numbers of the CPUs that psutil lists, in its order: without those that are offline (SMT off
    leaves gaps)."""
    try:
        numbers = re.findall(r"^cpu(\d+) ", _PROC_STAT.read_text(), re.MULTILINE)
    except OSError:
        return itertools.count()  # not Linux: all of them
    return [int(number) for number in numbers]


def _peak_resident() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if sys.platform == "darwin":
        return peak
    return peak * 1024
