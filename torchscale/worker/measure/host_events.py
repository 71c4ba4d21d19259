"""Host events that slow the training process: garbage collection, paging, allocator retries, throttling."""

from __future__ import annotations

import gc
import resource
import time

import torch

from torchscale.worker.probe_gpu import throttle_reasons_of


class CollectionMeter:
    """Number, total and longest duration (seconds) of Python's garbage collections from :meth:`start` to
    :meth:`stop`."""

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
            self._began = time.perf_counter()
        elif self._began is not None:
            took = time.perf_counter() - self._began
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
        return None if now is None or self._retries is None else now - self._retries


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
        return None if self._seen is None else tuple(sorted(self._seen))


def _uuid(device: torch.device) -> str | None:
    if device.type != "cuda":
        return None
    uuid = getattr(torch.cuda.get_device_properties(device), "uuid", None)  # older torch has no UUID
    return None if uuid is None else str(uuid)


def _major_faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_majflt


def _allocation_retries(device: torch.device) -> int | None:
    if device.type != "cuda":
        return None
    return int(torch.cuda.memory_stats(device).get("num_alloc_retries", 0))
