from __future__ import annotations

import os
from pathlib import Path

import pytest

from torchscale.launch.machine import usable_cores
from torchscale.launch.oom import OomKills


def topology(root: Path, siblings: dict[int, str]) -> Path:
    for cpu, text in siblings.items():
        (root / f"cpu{cpu}" / "topology").mkdir(parents=True)
        (root / f"cpu{cpu}" / "topology" / "thread_siblings_list").write_text(f"{text}\n")
    return root


@pytest.fixture
def four_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})


@pytest.mark.usefixtures("four_cpus")
def test_two_threads_of_a_core_are_one_device(tmp_path: Path) -> None:
    cpus = topology(tmp_path / "cpu", {0: "0,2", 2: "0,2", 1: "1,3", 3: "1,3"})
    assert usable_cores(cpus, tmp_path / "none") == (0, 1)


@pytest.mark.usefixtures("four_cpus")
def test_without_a_topology_every_cpu_is_a_core(tmp_path: Path) -> None:
    assert usable_cores(tmp_path, tmp_path / "none") == (0, 1, 2, 3)


@pytest.mark.usefixtures("four_cpus")
@pytest.mark.parametrize(("quota", "cores"), [("250000 100000", 2), ("50000 100000", 1), ("max 100000", 4), ("", 4)])
def test_a_containers_quota_limits_the_cores(tmp_path: Path, quota: str, cores: int) -> None:
    (tmp_path / "cpu.max").write_text(quota)
    assert len(usable_cores(tmp_path / "none", tmp_path / "cpu.max")) == cores


def test_kernel_kills_are_counted_from_the_start(tmp_path: Path) -> None:
    host, group = tmp_path / "vmstat", tmp_path / "memory.events"
    host.write_text("nr_free 3\noom_kill 5\n")
    kills = OomKills(host, group)
    assert kills.since_start() == 0
    host.write_text("oom_kill 6\n")
    assert kills.since_start() == 1
    group.write_text("oom 9\noom_kill 4\n")
    assert kills.since_start() == 4
