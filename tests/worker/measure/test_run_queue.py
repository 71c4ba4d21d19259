from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from torchscale.worker.measure import run_queue
from torchscale.worker.measure.run_queue import RunQueueMeter

counted = pytest.mark.skipif(
    not Path("/proc/self/schedstat").exists(), reason="this kernel does not count waiting"
)


def compute(seconds: float) -> None:
    """Processor time, not wall time."""
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass


@contextmanager
def sharing_a_core() -> Iterator[None]:
    """This process and another that computes, on one core."""
    allowed = os.sched_getaffinity(0)
    core = {max(allowed)}
    os.sched_setaffinity(0, core)
    other = multiprocessing.get_context("fork").Process(target=compute, args=(60.0,), daemon=True)
    other.start()
    try:
        yield
    finally:
        other.kill()
        other.join()
        os.sched_setaffinity(0, allowed)


@counted
@pytest.mark.slow
def test_a_thread_that_shares_its_core_waits_and_one_that_sleeps_does_not() -> None:
    with sharing_a_core():
        meter, begun = RunQueueMeter(), time.perf_counter()
        compute(0.3)
        computed, wall = meter.read(), time.perf_counter() - begun
    assert computed is not None
    assert computed.main_seconds >= 0.5 * (wall - 0.3), "the time it did not compute, it waited"
    assert computed.main_cpu_seconds == pytest.approx(0.3, rel=0.2)
    assert computed.seconds >= computed.main_seconds

    asleep = RunQueueMeter()
    time.sleep(0.3)
    slept = asleep.read()
    assert slept is not None
    assert slept.main_seconds < 0.2


def test_a_kernel_that_does_not_count_gives_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(run_queue, "_PROC", tmp_path)
    assert RunQueueMeter().read() is None


def test_a_file_in_another_form_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own = tmp_path / "self"
    own.mkdir()
    (own / "schedstat").write_text("0\n")
    monkeypatch.setattr(run_queue, "_PROC", tmp_path)
    assert RunQueueMeter().read() is None


def test_counters_that_step_back_count_as_still(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A number of a thread that has ended is given to another."""
    monkeypatch.setattr(run_queue, "_PROC", tmp_path)
    places = [tmp_path / "self", tmp_path / str(os.getpid()) / "task" / "1"]
    for place in places:
        place.mkdir(parents=True)
        (place / "schedstat").write_text("900 500 1\n")
    meter = RunQueueMeter()
    for place in places:
        (place / "schedstat").write_text("100 20 1\n")
    found = meter.read()
    assert found is not None
    assert (found.seconds, found.main_seconds, found.main_cpu_seconds) == (0, 0, 0)
