from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import namedtuple
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from torch import nn

from tests.factories import cells
from torchscale.worker.measure import host
from torchscale.worker.measure.clock import CudaEventClock, CudaSyncClock, HostClock, make_clock
from torchscale.worker.measure.host import HostLoadMeter, MemoryMeter, usable_cpus
from torchscale.worker.measure.parameters import (
    Comparison,
    Fingerprint,
    compare_parameters,
    fingerprint,
)
from torchscale.worker.process_group import Ranks
from torchscale.worker.trainer import Trainer

ALONE = Ranks(rank=0, local_rank=0, world_size=1, device=torch.device("cpu"), backend=None)


def test_the_host_clock_against_known_sleeps() -> None:
    clock = HostClock()
    for pause in (0.0, 0.02, 0.05):
        time.sleep(pause)
        clock.mark()
    first, second, third = clock.read()
    assert first == 0.0
    assert 0.02 <= second < 0.2
    assert 0.05 <= third - second < 0.25
    clock.mark()
    assert clock.read() == [0.0]


class FakeEvent:
    """A CUDA event whose time is the number of events recorded before it, in milliseconds."""

    made = 0
    recorded = 0

    def __init__(self, *, enable_timing: bool) -> None:
        assert enable_timing
        FakeEvent.made += 1
        self.time = -1

    def record(self) -> None:
        self.time = FakeEvent.recorded
        FakeEvent.recorded += 1

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, other: Any) -> float:
        return float(other.time - self.time)


def test_the_event_clock_reads_milliseconds_as_seconds_and_uses_events_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "Event", FakeEvent)
    clock = CudaEventClock()
    for _ in range(3):
        for _ in range(4):
            clock.mark()
        assert clock.read() == [0.0, 0.001, 0.002, 0.003]
    assert FakeEvent.made == 4
    assert clock.read() == []


def test_the_cpu_has_the_hosts_clock() -> None:
    assert type(make_clock(torch.device("cpu"), sync_cuda=True)) is HostClock


def test_own_processor_time_against_known_work() -> None:
    meter = HostLoadMeter(usable_cpus(), pinned=False)
    deadline = time.process_time() + 0.2
    while time.process_time() < deadline:
        pass
    time.sleep(0.1)
    load = meter.read()
    assert 0.2 <= load.process_seconds < 0.3
    assert load.wall_seconds >= 0.3
    assert load.busy_seconds >= 0.1
    assert load.cores == len(os.sched_getaffinity(0))


def test_resident_memory_grows_by_what_is_touched() -> None:
    meter = MemoryMeter(torch.device("cpu"))
    held = torch.ones(64 * 2**20, dtype=torch.uint8)
    use = meter.read()
    assert use.peak_allocated_bytes is None
    assert use.peak_bytes is not None
    assert use.peak_bytes >= 0
    assert use.resident_peak_bytes is not None
    assert use.resident_peak_bytes >= held.numel()


def fingerprint_of(module: nn.Module) -> Fingerprint:
    """Fingerprint of all parameters of a module."""
    return fingerprint(dict(module.named_parameters()))


def test_a_fingerprint_sees_every_bit_and_no_layout() -> None:
    module = nn.Conv2d(3, 8, 3)
    before = fingerprint_of(module)
    assert before == fingerprint_of(module.to(memory_format=torch.channels_last))  # type: ignore[call-overload]
    with torch.no_grad():
        module.bias.view(torch.int32)[3] += 1  # type: ignore[union-attr]
    after = fingerprint_of(module)
    assert before["weight"] == after["weight"]
    assert before["bias"] != after["bias"]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_fingerprints_of_other_dtypes_and_of_nan(dtype: torch.dtype) -> None:
    module = nn.Linear(3, 3).to(dtype)
    with torch.no_grad():
        module.weight[0, 0] = float("nan")
    assert fingerprint_of(module) == fingerprint_of(module)


def test_a_single_rank_agrees_with_itself() -> None:
    comparison = compare_parameters(dict(nn.Linear(2, 2).named_parameters()), ALONE)
    assert comparison == Comparison(0, None)
    assert comparison.equal is None
    assert ALONE.broadcast_scalar(3.0) == 3.0
    assert fingerprint_of(nn.ReLU()) == {}


def test_processor_time_is_read_from_the_right_cpus_when_some_are_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With SMT off, CPUs 0, 2 and 4 may be all there are; the second line is then of CPU 2."""
    (tmp_path / "stat").write_text("cpu  9 0 0\ncpu0 1 0 0\ncpu2 1 0 0\ncpu4 1 0 0\nintr 5\n")
    times = [
        dict.fromkeys(("user", "nice", "system", "irq", "softirq", "steal"), 0.0) for _ in range(3)
    ]
    row = namedtuple("row", list(times[0]))  # type: ignore[misc]
    monkeypatch.setattr(host, "_PROC_STAT", tmp_path / "stat")
    monkeypatch.setattr(psutil, "cpu_times", lambda percpu: [row(**entry) for entry in times])
    two, four = HostLoadMeter((2,), pinned=True), HostLoadMeter((4,), pinned=True)
    times[1].update(user=1.0, steal=0.5)
    times[2].update(system=0.25, softirq=0.5)
    assert two.read().busy_seconds == 1.5
    assert four.read().busy_seconds == 0.75
    assert four.read().interrupted_seconds == 0.5


def test_processor_time_of_others_is_busy_but_not_own() -> None:
    cpu = usable_cpus()[0]
    meter = HostLoadMeter((cpu,), pinned=True)
    spin = (
        f"import os, time; os.sched_setaffinity(0, [{cpu}]); end = time.time() + 1.0\nwhile "
        "time.time() < end: pass"
    )
    subprocess.run([sys.executable, "-c", spin], check=True)
    load = meter.read()
    assert load.process_seconds < 0.3
    assert load.busy_seconds >= 0.3
    assert load.busy_seconds <= load.wall_seconds + 0.1


class SlowEvent(FakeEvent):
    """Events 10 ms apart."""

    def elapsed_time(self, other: Any) -> float:
        return 10.0 * super().elapsed_time(other)


def test_phases_by_events_add_up_to_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """The path that a GPU takes, with events of known times: four phases of 10 ms a step."""
    monkeypatch.setattr(torch.cuda, "Event", SlowEvent)
    trainer = Trainer(cells(models="tiny-gpt2", batch_sizes=1, gpu_counts=1)[0], ALONE)
    monkeypatch.setattr(trainer.marks, "clock", CudaEventClock())
    timed = trainer.run_batch(3)
    assert timed.batch.seconds == pytest.approx(0.12)
    for sample in timed.samples:
        assert sample.seconds == pytest.approx(0.04)
        assert [
            sample.data_wait,
            sample.forward,
            sample.backward,
            sample.optimizer,
        ] == pytest.approx([0.01] * 4)


def test_a_cuda_device_has_events_and_the_strict_clock_when_asked() -> None:
    assert isinstance(make_clock(torch.device("cuda", 0), sync_cuda=False), CudaEventClock)
    assert isinstance(make_clock(torch.device("cuda", 0), sync_cuda=True), CudaSyncClock)


def test_the_strict_clock_waits_for_the_device_before_it_looks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: time.sleep(0.02))
    clock = CudaSyncClock()
    clock.mark()
    clock.mark()
    first, second = clock.read()
    assert first == 0.0
    assert second >= 0.02


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.float32, torch.bfloat16])
def test_a_scalar_parameter_has_a_fingerprint(dtype: torch.dtype) -> None:
    module = nn.Module()
    module.register_parameter("one", nn.Parameter(torch.ones((), dtype=dtype), requires_grad=False))
    before = fingerprint_of(module)
    with torch.no_grad():
        module.one.add_(1)  # type: ignore[operator]
    assert list(before) == ["one"]
    assert before != fingerprint_of(module)


def test_the_cores_of_a_launch_are_those_before_a_rank_was_bound() -> None:
    bound = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); "
    asked = (
        "from torchscale.worker.measure.host import launch_cpus, usable_cpus; print(launch_cpus(), "
        "usable_cpus())"
    )
    done = subprocess.run(
        [sys.executable, "-c", bound + asked],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    allowed = tuple(sorted(os.sched_getaffinity(0)))
    assert done.stdout.strip() == f"{allowed} {(allowed[0],)}"


def test_what_loader_processes_take_is_the_ranks_own() -> None:
    busy = "import time\nend = time.process_time() + 30\nwhile time.process_time() < end: pass"
    child = subprocess.Popen([sys.executable, "-c", busy])
    try:
        meter = HostLoadMeter(usable_cpus(), pinned=False)
        before = time.process_time()
        deadline = time.monotonic() + 30
        while psutil.Process(child.pid).cpu_times().user < 0.5 and time.monotonic() < deadline:
            time.sleep(0.05)
        load = meter.read()
        assert load.process_seconds - (time.process_time() - before) > 0.2
    finally:
        child.kill()
        child.wait()
    assert meter.read().process_seconds >= 0  # it is gone, and is not taken off again


def test_time_that_a_hypervisor_took_may_step_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a machine has moved to another host."""
    told = iter([(100.0, 7.0, 2.0), (99.9, 6.5, 1.5)])
    monkeypatch.setattr(host, "_busy_seconds", lambda _: next(told))
    load = HostLoadMeter(usable_cpus(), pinned=False).read()
    assert (load.busy_seconds, load.interrupted_seconds, load.stolen_seconds) == (0, 0, 0)
