"""Memory of a rank over time."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest
import torch

from torchscale.worker.watch import clock, facts, memory
from torchscale.worker.watch.memory import MemoryReadings


def test_resident_memory_is_that_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "now_ns", lambda: 7)
    readings = MemoryReadings()
    readings.read()
    time, resident, allocated, reserved = readings.take()
    assert (time, allocated, reserved) == (7, memory.NONE, memory.NONE)
    assert resident == pytest.approx(psutil.Process().memory_info().rss, rel=0.2)
    assert readings.take() == []


def test_memory_of_the_device_is_that_of_torchs_allocator(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = {"current": 5, "peak": 9}
    found = {"allocated_bytes": {"all": counts}, "reserved_bytes": {"all": {"current": 6}}}
    asked: list[int] = []

    def stats(index: int) -> dict[str, dict[str, dict[str, int]]]:
        asked.append(index)
        return found

    monkeypatch.setattr(torch.cuda, "memory_stats_as_nested_dict", stats)
    readings = MemoryReadings()
    readings.device = 3
    readings.read()
    assert readings.take()[2:] == [5, 6]
    assert asked == [3]


def test_an_allocator_that_does_not_count_has_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: int) -> None:
        raise RuntimeError("CUDAPluggableAllocator does not yet support getDeviceStats")

    monkeypatch.setattr(torch.cuda, "memory_stats_as_nested_dict", fail)
    assert facts.allocator(0) == {}
    readings = MemoryReadings()
    readings.device = 0
    readings.read()
    assert readings.take()[2:] == [memory.NONE, memory.NONE]


def test_a_device_that_is_not_used_stays_so() -> None:
    assert facts.cuda_index() is None
    assert facts.of_cuda(None) == {}
    assert not torch.cuda.is_initialized()  # type: ignore[no-untyped-call]


def test_where_the_kernel_says_nothing_memory_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> bytes:
        raise OSError

    monkeypatch.setattr(Path, "read_bytes", fail)
    readings = MemoryReadings()
    readings.read()
    assert readings.take()[1] == memory.NONE
