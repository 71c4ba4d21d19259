"""What the host did to the process: collections, pressure, throttling."""

from __future__ import annotations

import gc
import mmap
import time

import pytest
import torch

from torchscale.worker.measure import host_events
from torchscale.worker.measure.host_events import (
    CollectionMeter,
    FaultMeter,
    PressureMeter,
    ThrottleWatch,
)
from torchscale.worker.measure.link import _pieces


def test_collections_are_counted_and_timed_while_it_listens() -> None:
    meter = CollectionMeter()
    gc.collect()
    meter.start()
    try:
        began = time.perf_counter()
        gc.collect()
        gc.collect()
        took = time.perf_counter() - began
    finally:
        meter.stop()
    gc.collect()
    assert meter.count == 2
    assert 0 < meter.longest <= meter.seconds <= took


def test_on_cpu_there_are_page_faults_and_no_allocator(monkeypatch: pytest.MonkeyPatch) -> None:
    meter = PressureMeter(torch.device("cpu"))
    assert meter.page_faults() >= 0
    assert meter.allocation_retries() is None
    faults = iter((5, 12))
    monkeypatch.setattr(host_events, "_major_faults", lambda: next(faults))
    assert PressureMeter(torch.device("cpu")).page_faults() == 7


def test_pages_that_each_step_takes_from_the_kernel_are_counted_and_timed() -> None:
    meter = FaultMeter()
    assert meter.read() is None
    for _ in range(3):
        for _ in range(2):
            with mmap.mmap(-1, 8 * 2**20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as mapping:
                mapping[:: mmap.PAGESIZE] = bytes(len(mapping) // mmap.PAGESIZE)
        meter.note(2)
    faults = meter.read()
    assert faults is not None
    assert faults.per_step >= 4, "8 MiB in pages of at most 2 MiB"
    assert 0 < faults.seconds_each < 0.001
    assert faults.kernel_seconds_per_step >= 0


def test_pages_by_which_the_process_grows_are_told_apart() -> None:
    meter = FaultMeter()
    kept = []
    for _ in range(4):
        mapping = mmap.mmap(-1, 16 * 2**20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        mapping[:: mmap.PAGESIZE] = bytes(len(mapping) // mmap.PAGESIZE)
        kept.append(mapping)
        meter.note(1)
    faults = meter.read()
    for mapping in kept:
        mapping.close()
    assert faults is not None
    # 4,096 pages a step; other tests' garbage may be freed meanwhile.
    assert 3000 < faults.grown_pages_per_step < 6000


def test_reasons_add_up_over_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = ThrottleWatch(torch.device("cpu"))
    watch.poll()
    seen = [watch.reasons]
    watch._uuid = "1b3f"
    answers = iter((None, (), ("power brake",), ("hardware slowdown", "power brake")))
    monkeypatch.setattr(host_events, "throttle_reasons_of", lambda _: next(answers))
    for _ in range(4):
        watch.poll()
        seen.append(watch.reasons)
    assert seen == [None, None, (), ("power brake",), ("hardware slowdown", "power brake")]


def test_large_buckets_go_in_pieces_and_no_byte_is_lost() -> None:
    sizes = [4, 64 << 20, (200 << 20) + 8]
    pieces = _pieces(sizes)
    assert sum(pieces) * 4 == sum(sizes)
    assert max(pieces) * 4 == 64 << 20
    assert pieces[0] == 1
