"""All-reduces of two nodes at a time: real processes on the loopback address."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.distributed import HashStore  # type: ignore[attr-defined]

from torchscale.features.cluster.nodes.network import free_port
from torchscale.schema.node.fleet import PairTask, PairTimes
from torchscale.util.files import atomic_write_model
from torchscale.worker.machine import pairs as module
from torchscale.worker.machine.pairs import (
    connect,
    device_of,
    leave,
    leave_group,
    measure_pair,
    meet,
    time_all_reduces,
)

pytestmark = pytest.mark.slow

END_SECONDS = 120


def task(
    place: int, nodes: int, port: int, partners: tuple[int | None, ...], seconds: float = 60.0
) -> PairTask:
    """Small messages on the CPU."""
    return PairTask(
        place=place,
        nodes=nodes,
        master_address="127.0.0.1",
        master_port=port,
        partners=partners,
        backend="gloo",
        message_bytes=4096,
        repeats=3,
        timeout_seconds=seconds,
    )


@pytest.mark.campaign
def test_three_nodes_measure_each_pair_once(tmp_path: Path) -> None:
    port = free_port("127.0.0.1")
    partners: list[tuple[int | None, ...]] = [(1, 2, None), (0, None, 2), (None, 0, 1)]
    processes = []
    for place in range(3):
        atomic_write_model(tmp_path / f"task-{place}.json", task(place, 3, port, partners[place]))
        files = [str(tmp_path / f"{name}-{place}.json") for name in ("task", "out")]
        command = [sys.executable, "-m", "torchscale.worker.machine.pairs", *files]
        env = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
        processes.append(subprocess.Popen(command, env=env))
    try:
        assert [process.wait(END_SECONDS) for process in processes] == [0, 0, 0]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    measured = {}
    for place in range(3):
        times = PairTimes.model_validate_json((tmp_path / f"out-{place}.json").read_bytes())
        measured.update({(place, entry.partner): entry for entry in times.partners})
    assert sorted(measured) == [(0, 1), (0, 2), (1, 2)]
    assert all(len(entry.seconds) == 3 and not entry.error for entry in measured.values())


def test_nodes_wait_for_each_other_and_the_store_outlives_its_users() -> None:
    store = HashStore()
    done: list[str] = []

    def last() -> None:
        meet(store, "start", 2)
        done.append("met")
        leave(store, task(1, 2, 1, ()))

    thread = threading.Thread(target=last)
    thread.start()
    meet(store, "start", 2)
    leave(store, task(0, 2, 1, ()))
    thread.join(END_SECONDS)
    assert done == ["met"]


def test_each_rail_has_its_own_gpu() -> None:
    over_nccl = task(0, 2, 1, ()).model_copy(update={"backend": "nccl", "gpu": 3})
    assert device_of(over_nccl) == torch.device("cuda", 3)
    assert device_of(task(0, 2, 1, ())) == torch.device("cpu")


class Group:
    """A process group in torch's place: how it was left, and whether that ends."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, backend: str, hangs: bool) -> None:
        self.left: list[str] = []
        self.never = threading.Event()
        self.is_open = True
        self._hangs = hangs
        monkeypatch.setattr(dist, "is_initialized", lambda: self.is_open)
        monkeypatch.setattr(dist, "get_backend", lambda: backend)
        monkeypatch.setattr(dist, "destroy_process_group", lambda: self.leave("destroyed"))
        monkeypatch.setattr(
            dist.distributed_c10d, "_abort_process_group", lambda: self.leave("aborted")
        )

    def leave(self, how: str) -> None:
        self.left.append(how)
        if self._hangs:
            self.never.wait(END_SECONDS)
        self.is_open = False


@pytest.mark.parametrize(
    ("backend", "failed", "how"),
    [
        ("nccl", False, "destroyed"),
        ("nccl", True, "aborted"),
        ("gloo", False, "destroyed"),
        ("gloo", True, "destroyed"),
    ],
)
def test_a_communicator_whose_pair_failed_is_aborted(
    backend: str, failed: bool, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = Group(monkeypatch, backend, hangs=False)
    leave_group(failed=failed, seconds=END_SECONDS)
    assert group.left == [how]
    assert not group.is_open
    leave_group(failed=failed, seconds=END_SECONDS)
    assert group.left == [how]


def test_nothing_waits_without_a_bound_for_a_communicator_to_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    group = Group(monkeypatch, "nccl", hangs=True)
    started = time.monotonic()
    leave_group(failed=True, seconds=0.05)
    assert time.monotonic() - started < END_SECONDS / 2
    times = measure_pair(task(0, 2, 1, (1,)), 0, 1, HashStore(), torch.device("cpu"))
    group.never.set()
    assert times.seconds == ()
    assert times.error == "the communicator of an earlier pair of this node did not end"


def test_a_pair_that_fails_leaves_no_group(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> tuple[float, ...]:
        raise RuntimeError("timed out\nat a line of C++")

    def alone(*_: object, **__: object) -> None:
        real("gloo", store=HashStore(), rank=0, world_size=1)

    real = dist.init_process_group
    monkeypatch.setattr(dist, "init_process_group", alone)
    monkeypatch.setattr(module, "time_all_reduces", fails)
    times = measure_pair(task(0, 2, 1, (1,)), 0, 1, HashStore(), torch.device("cpu"))
    assert times.error == "timed out"
    assert not dist.is_initialized()


def test_times_are_of_counted_all_reduces_alone() -> None:
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    try:
        seconds = time_all_reduces(1024, 4, torch.device("cpu"))
    finally:
        dist.destroy_process_group()
    assert len(seconds) == 4
    assert min(seconds) > 0


def test_two_nodes_that_reach_each_other_are_connected() -> None:
    store = HashStore()
    with ThreadPoolExecutor(1) as pool:
        listening = pool.submit(connect, store, "127.0.0.1", listens=True)
        connect(store, "127.0.0.1", listens=False)
        listening.result(END_SECONDS)


def test_two_nodes_without_a_way_between_them_are_told_apart_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_CONNECT_SECONDS", 0.2)
    with pytest.raises(OSError, match="timed out"):
        connect(HashStore(), "127.0.0.1", listens=True)
    store = HashStore()
    store.set("address", f"127.0.0.1:{free_port('127.0.0.1')}")
    with pytest.raises(OSError, match=r"no connection to 127\.0\.0\.1: "):
        connect(store, "127.0.0.1", listens=False)
