"""Host events that slow the training process: garbage collection, paging, allocator retries,
throttling."""

from __future__ import annotations

import gc
import mmap
import resource
import statistics
from time import perf_counter

import psutil
import torch

from torchscale.schema.launch.signals import MinorFaults
from torchscale.worker.probe.gpu import throttle_reasons_of

_FAULT_PROBES = 9
_PROBED_BYTES = 2 * 2**20
"""512 pages of 4 KiB: a probe takes a fraction of a millisecond, and an interruption of one does
not move the median of nine."""


class CollectionMeter:
    """Number, total and longest duration (seconds) of Python's garbage collections from
    :meth:`start` to :meth:`stop`."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.count = 0
        self.longest = 0.0
        self._began: float | None = None

    def start(self) -> None:
        """Count collections from now on."""
        gc.callbacks.append(self._note)

    def stop(self) -> None:
        """Count no further collections."""
        gc.callbacks.remove(self._note)

    def _note(self, phase: str, info: dict[str, int]) -> None:
        del info
        if phase == "start":
            self._began = perf_counter()
        elif self._began is not None:
            took = perf_counter() - self._began
            self.seconds += took
            self.longest = max(self.longest, took)
            self.count += 1
            self._began = None


class PressureMeter:
    """Major page faults, and retries of the CUDA allocator, since construction."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._faults, self._retries = _major_faults(), _allocation_retries(device)

    def page_faults(self) -> int:
        """Major page faults of this process (those that read from disk)."""
        return _major_faults() - self._faults

    def allocation_retries(self) -> int | None:
        """Retries of the CUDA allocator after it freed its cache; ``None`` on other devices."""
        now = _allocation_retries(self._device)
        if now is None or self._retries is None:
            return None
        return now - self._retries


class FaultMeter:
    """Minor page faults of this process (pages that the kernel hands out without reading a disk),
    batch by batch, and how resident memory grows, from construction to :meth:`read`."""

    def __init__(self) -> None:
        self._per_step: list[float] = []
        self._steps = 0
        self._resident = psutil.Process().memory_info().rss
        self._usage = self._last = resource.getrusage(resource.RUSAGE_SELF)

    def note(self, steps: int) -> None:
        """Call it after each batch of ``steps``."""
        now = resource.getrusage(resource.RUSAGE_SELF)
        self._per_step.append((now.ru_minflt - self._last.ru_minflt) / steps)
        self._steps += steps
        self._last = now

    def read(self) -> MinorFaults | None:
        """The counts so far, with what a fault costs here; ``None`` before the first batch."""
        if not self._per_step:
            return None
        grown = (psutil.Process().memory_info().rss - self._resident) / self._steps
        return MinorFaults(
            per_step=statistics.median(self._per_step),
            grown_pages_per_step=max(0.0, grown / mmap.PAGESIZE),
            seconds_each=seconds_per_fault(),
            kernel_seconds_per_step=(self._last.ru_stime - self._usage.ru_stime) / self._steps,
        )


def seconds_per_fault() -> float:
    """What the kernel takes to hand out a page of its smallest size: the median over fresh mappings
    of 2 MiB, of the first write to each page less a second one."""
    costs = []
    for _ in range(_FAULT_PROBES):
        with mmap.mmap(-1, _PROBED_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as mapping:
            if hasattr(mmap, "MADV_NOHUGEPAGE"):
                mapping.madvise(mmap.MADV_NOHUGEPAGE)
            pages = torch.frombuffer(mapping, dtype=torch.uint8)[:: mmap.PAGESIZE]
            began = perf_counter()
            pages.fill_(1)
            first = perf_counter()
            pages.fill_(2)
            costs.append((first - began - (perf_counter() - first)) / len(pages))
            del pages  # or the mapping cannot be closed
    return max(0.0, statistics.median(costs))


class ThrottleWatch:
    """Collects the throttle reasons that the driver reports whenever :meth:`poll` is called."""

    def __init__(self, device: torch.device) -> None:
        self._uuid = _uuid(device)
        self._seen: set[str] | None = None

    def poll(self) -> None:
        """Query the driver, and add its throttle reasons."""
        if self._uuid is None:
            return
        reasons = throttle_reasons_of(self._uuid)
        if reasons is not None:
            self._seen = (self._seen or set()) | set(reasons)

    @property
    def reasons(self) -> tuple[str, ...] | None:
        """All reasons so far; ``None`` where the driver could not be queried."""
        if self._seen is None:
            return None
        return tuple(sorted(self._seen))


def _uuid(device: torch.device) -> str | None:
    if device.type != "cuda":
        return None
    uuid = getattr(
        torch.cuda.get_device_properties(device), "uuid", None
    )  # older torch has no UUID
    if uuid is None:
        return None
    return str(uuid)


def _major_faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_majflt


def _allocation_retries(device: torch.device) -> int | None:
    if device.type != "cuda":
        return None
    return int(torch.cuda.memory_stats(device).get("num_alloc_retries", 0))
