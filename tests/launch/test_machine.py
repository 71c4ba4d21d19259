from __future__ import annotations

import os
import sys
from importlib import metadata
from pathlib import Path

import psutil
import pytest

from torchscale.errors import MachineError
from torchscale.launch.machine import MachineDetection, detect_machine, node_cores, usable_cores
from torchscale.launch.oom import OomKills
from torchscale.util.secret_names import REDACTED


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
@pytest.mark.parametrize(
    ("quota", "cores"), [("250000 100000", 2), ("50000 100000", 1), ("max 100000", 4), ("", 4)]
)
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


@pytest.mark.usefixtures("four_cpus")
def test_a_core_is_found_by_the_thread_that_is_allowed(tmp_path: Path) -> None:
    """Affinity leaves 0-3; the siblings 4-7 of these cores are not ours, and a core is not lost for
    it."""
    cpus = topology(tmp_path / "cpu", {0: "0,4", 1: "1,5", 2: "2,3", 3: "2,3"})
    assert usable_cores(cpus, tmp_path / "none") == (0, 1, 2)


@pytest.mark.slow
def test_the_machine_as_a_worker_sees_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        sys, "argv", ["/bin/torchscale", "benchmark", "--launch.env.HF_TOKEN=s3cret-value"]
    )
    monkeypatch.setenv("NCCL_SECRET_THING", "s3cret-value")
    monkeypatch.setenv("NCCL_DEBUG", "WARN")
    machine = detect_machine()
    environment = machine.environment
    assert environment.versions.torch == metadata.version("torch")
    assert environment.cores == len(machine.cores) >= 1
    assert environment.cuda_available == bool(environment.devices)
    assert environment.command == ("torchscale", "benchmark", f"--launch.env.HF_TOKEN={REDACTED}")
    assert environment.env["NCCL_DEBUG"] == "WARN"
    assert "s3cret-value" not in environment.model_dump_json()


@pytest.mark.slow
def test_a_detection_whose_result_nobody_wants_ends_with_its_context() -> None:
    with MachineDetection() as detection:
        process = psutil.Process(detection._process._process.pid)
    assert not process.is_running()


@pytest.mark.slow
def test_a_torch_that_cannot_be_imported_is_an_error_with_its_last_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('libcudart.so.99: no such file')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(
        MachineError, match=r"PyTorch cannot be used here: ImportError: libcudart\.so\.99"
    ) as caught:
        detect_machine()
    assert caught.value.hint is not None
    assert "torchscale validate" in caught.value.hint


def test_cores_of_each_numa_node_that_may_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for node, cpus in {
        "node0": "0-2,8\n",
        "node1": "3-5\n",
        "node2": "\n",
        "node10": "6\n",
    }.items():
        (tmp_path / node).mkdir()
        (tmp_path / node / "cpulist").write_text(cpus)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 2, 3, 6, 8})
    assert node_cores(tmp_path) == {0: (0, 2, 8), 1: (3,), 10: (6,)}
    assert node_cores(tmp_path / "none") == {}
