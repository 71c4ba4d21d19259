"""What the host did to the training process while it was measured: garbage collection, paging, throttling."""

from __future__ import annotations

import gc
import resource
import time

import torch

from torchscale.worker.probe_gpu import throttle_reasons_of


class CollectionMeter:
    """Python's garbage collections from :meth:`start` to :meth:`stop`: seconds and how many."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.count = 0
        self.longest = 0.0
        self._began: float | None = None

    def start(self) -> None:
        """Listen from now on."""
        gc.callbacks.append(self._note)

    def stop(self) -> None:
        """Listen no longer."""
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
    """Page faults that went to disk, and retries of the CUDA allocator, since its making."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._faults, self._retries = _major_faults(), _allocation_retries(device)

    def page_faults(self) -> int:
        """Of this process."""
        return _major_faults() - self._faults

    def allocation_retries(self) -> int | None:
        """``None`` on CPU."""
        now = _allocation_retries(self._device)
        return None if now is None or self._retries is None else now - self._retries


class ThrottleWatch:
    """Reasons for lowered clocks that the driver gave at any look; ``None`` where it cannot be asked."""

    def __init__(self, device: torch.device) -> None:
        self._uuid = _uuid(device)
        self._seen: set[str] | None = None

    def look(self) -> None:
        """Ask the driver now."""
        if self._uuid is None:
            return
        reasons = throttle_reasons_of(self._uuid)
        if reasons is not None:
            self._seen = (self._seen or set()) | set(reasons)

    @property
    def reasons(self) -> tuple[str, ...] | None:
        """All that were seen."""
        return None if self._seen is None else tuple(sorted(self._seen))


def _uuid(device: torch.device) -> str | None:
    if device.type != "cuda":
        return None
    uuid = getattr(torch.cuda.get_device_properties(device), "uuid", None)  # older builds do not tell
    return None if uuid is None else str(uuid)


def _major_faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_majflt


def _allocation_retries(device: torch.device) -> int | None:
    if device.type != "cuda":
        return None
    return int(torch.cuda.memory_stats(device).get("num_alloc_retries", 0))
