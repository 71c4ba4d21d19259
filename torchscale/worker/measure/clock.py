"""All clocks that time steps. A mark is cheap; the times are read later, between batches.

The functions of :mod:`time` are bound here, as everywhere in the worker, when the module is
imported: before a user's model, which may replace them.
"""

from __future__ import annotations

from time import perf_counter
from typing import Protocol

import torch

_ANCHOR_MS = 1_000.0
"""CUDA gives the time between two events as a float of milliseconds: over a second it is exact to
60 ns, over ten minutes to 60 µs."""


class BatchClock(Protocol):
    """Takes marks during a batch of steps, which are read after it."""

    def mark(self) -> None:
        """Take a mark now (with CUDA events: when the device reaches it), without
        synchronization."""
        ...

    def read(self) -> list[float]:
        """Seconds of every mark since the first one, in order; clears the marks. May wait for the
        device."""
        ...


class HostClock:
    """``time.perf_counter``: on CPU the work is done when the call returns."""

    def __init__(self) -> None:
        self._marks: list[float] = []

    def mark(self) -> None:
        """Take the host's time now."""
        self._marks.append(perf_counter())

    def read(self) -> list[float]:
        """Seconds of every mark since the first one; clears the marks."""
        marks, self._marks = self._marks, []
        return [mark - marks[0] for mark in marks]


class CudaEventClock:
    """CUDA events recorded in the current stream: no synchronization inside a batch."""

    def __init__(self) -> None:
        self._free: list[torch.cuda.Event] = []
        self._marks: list[torch.cuda.Event] = []

    def mark(self) -> None:
        """Record an event; it is timed when the device reaches it."""
        event = self._free.pop() if self._free else torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        self._marks.append(event)

    def read(self) -> list[float]:
        """Wait for the last event; seconds of every event since the first one."""
        marks, self._marks = self._marks, []
        if not marks:
            return []
        marks[-1].synchronize()
        seconds, before, anchor = [], 0.0, marks[0]
        for event in marks:
            since = anchor.elapsed_time(event)
            seconds.append((before + since) / 1e3)
            if since >= _ANCHOR_MS:
                before, anchor = before + since, event
        self._free.extend(marks)
        return seconds


class CudaSyncClock(HostClock):
    """Host time after the device has finished: exact phases, but slower steps, since host and
    device do not overlap."""

    def mark(self) -> None:
        """Wait for the device, then take the host's time."""
        torch.cuda.synchronize()
        super().mark()


class AcceleratorSyncClock(HostClock):
    """Host time after any other accelerator has finished; whether its events can be timed is not
    verified."""

    def mark(self) -> None:
        """Wait for the device, then take the host's time."""
        torch.accelerator.synchronize()
        super().mark()


def make_clock(device: torch.device, *, sync_cuda: bool) -> BatchClock:
    """The clock for ``device``: host time on CPU, events on CUDA (host time with ``sync_cuda``),
    else synchronized host time."""
    if device.type == "cpu":
        return HostClock()
    if device.type != "cuda":
        return AcceleratorSyncClock()
    if sync_cuda:
        return CudaSyncClock()
    return CudaEventClock()
