"""Processor time read from outside."""

from __future__ import annotations

import os
import time

import pytest

from tests.worker.measure.test_run_queue import counted, sharing_a_core
from torchscale.features.watch.job.host_load import HostLoadSamples


@counted
def test_a_process_that_computes_uses_its_core() -> None:
    samples, start = HostLoadSamples(), time.time()
    cpus = sorted(os.sched_getaffinity(0))
    samples.sample([os.getpid()])
    computed, waited = time.process_time() + 0.3, time.monotonic() + 0.6
    while time.process_time() < computed or time.monotonic() < waited:
        sum(range(1000))
    samples.sample([os.getpid()])

    load = samples.between(start, time.time(), pid=os.getpid(), cpus=cpus, pinned=True)

    assert load.cores == len(cpus)
    assert 0.25 < load.process_seconds <= load.wall_seconds * 1.2
    assert load.busy_seconds > 0.25
    assert load.run_queue is not None
    assert load.run_queue.main_cpu_seconds == pytest.approx(load.process_seconds, abs=0.1)


@counted
@pytest.mark.slow
def test_a_process_that_shares_its_core_waited_for_it() -> None:
    samples, pid = HostLoadSamples(), os.getpid()
    with sharing_a_core():
        start, cpus = time.time(), sorted(os.sched_getaffinity(0))
        samples.sample([pid])
        computed, waited = time.process_time() + 0.5, time.monotonic() + 0.6
        while time.process_time() < computed or time.monotonic() < waited:
            sum(range(1000))
        samples.sample([pid])
        load = samples.between(start, time.time(), pid=pid, cpus=cpus, pinned=True)

    assert load.run_queue is not None
    assert load.run_queue.main_seconds > 0.1
    assert load.run_queue.seconds >= 0.9 * load.run_queue.main_seconds
    together = load.run_queue.main_seconds + load.run_queue.main_cpu_seconds
    assert together == pytest.approx(load.wall_seconds, rel=0.2)


def test_a_process_that_was_never_read_has_no_load() -> None:
    samples = HostLoadSamples()
    samples.sample([2**30])

    load = samples.between(0.0, 10.0, pid=2**30, cpus=(0,), pinned=True)

    assert load.cores == 0
    assert load.wall_seconds == 10
