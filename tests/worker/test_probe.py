from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from torchscale.schema.probe import NodeFacts
from torchscale.worker.probe_gpu import driver_facts, throttle_reasons_of
from torchscale.worker.probe_host import disk_facts, has_importer, host_facts, nvidia_devices, rdma_ports


class NVMLError(Exception):
    """What the driver's library raises."""

    def __init__(self, message: str, value: int = 3) -> None:
        super().__init__(message)
        self.value = value


def fake_nvml(**changes: Any) -> SimpleNamespace:
    """NVML of two GPUs: the first answers everything, the second nothing but its name."""

    def only_first(answer: Any) -> Any:
        def function(handle: int, *_: Any) -> Any:
            if handle != 0:
                raise NVMLError("Not Supported")
            return answer

        return function

    def link_state(handle: int, link: int) -> int:
        if handle != 0 or link > 3:
            raise NVMLError("Not Supported")
        return int(link < 2)

    functions: dict[str, Any] = {
        "NVMLError": NVMLError,
        "NVML_TEMPERATURE_GPU": 0,
        "NVML_MEMORY_ERROR_TYPE_UNCORRECTED": 1,
        "NVML_VOLATILE_ECC": 0,
        "NVML_NVLINK_MAX_LINKS": 18,
        "NVML_P2P_STATUS_OK": 0,
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlSystemGetDriverVersion": lambda: b"570.86.15",
        "nvmlSystemGetCudaDriverVersion": lambda: 12080,
        "nvmlDeviceGetName": lambda _: "NVIDIA H200",
        "nvmlDeviceGetUUID": only_first("GPU-1"),
        "nvmlDeviceGetMemoryInfo": only_first(SimpleNamespace(total=100, used=7)),
        "nvmlDeviceGetEccMode": only_first([1, 1]),
        "nvmlDeviceGetTotalEccErrors": only_first(0),
        "nvmlDeviceGetTemperature": only_first(33),
        "nvmlDeviceGetCurrentClocksThrottleReasons": only_first(0x1 | 0x40 | 0x80),
        "nvmlDeviceGetComputeRunningProcesses": only_first([SimpleNamespace(pid=2**22 + 1)]),
        "nvmlDeviceGetCurrPcieLinkWidth": only_first(8),
        "nvmlDeviceGetMaxPcieLinkWidth": only_first(16),
        "nvmlDeviceGetNvLinkState": link_state,
        "nvmlDeviceGetTopologyCommonAncestor": lambda *_: 50,
        "nvmlDeviceGetP2PStatus": lambda *_: 1,
    }
    return SimpleNamespace(**{**functions, **changes})


def test_a_driver_that_answers() -> None:
    facts = driver_facts(fake_nvml())
    assert (facts.version, facts.cuda_version, facts.error) == ("570.86.15", "12.8", None)
    first = facts.gpus[0]
    assert first.throttle_reasons == ("hardware thermal slowdown", "power brake")
    assert first.foreign_processes == (f"{2**22 + 1} (of another container or user)",)
    assert (first.nvlinks_active, first.pcie_width, first.memory_used_bytes, first.ecc_enabled) == (2, 8, 7, True)
    assert (facts.pairs[0].p2p, facts.pairs[0].path) == (False, "system")


def test_reasons_for_lowered_clocks_by_uuid() -> None:
    asked: list[str] = []

    def by_uuid(uuid: str) -> int:
        asked.append(uuid)
        return 0

    nvml = fake_nvml(nvmlDeviceGetHandleByUUID=by_uuid)
    assert throttle_reasons_of("1b3f", nvml) == ("hardware thermal slowdown", "power brake")
    assert throttle_reasons_of("GPU-1b3f", nvml) == ("hardware thermal slowdown", "power brake")
    assert asked == ["GPU-1b3f", "GPU-1b3f"]
    assert throttle_reasons_of("1b3f", fake_nvml(nvmlDeviceGetHandleByUUID=lambda _: 1)) is None

    def fail() -> None:
        raise NVMLError("Driver Not Loaded", 9)

    assert throttle_reasons_of("1b3f", fake_nvml(nvmlInit=fail)) is None


def test_what_a_gpu_does_not_answer_is_absent() -> None:
    second = driver_facts(fake_nvml()).gpus[1].model_dump()
    assert {key for key, value in second.items() if value is not None} == {"index", "name"}


def test_no_driver_is_a_fact() -> None:
    def fail() -> None:
        raise NVMLError("NVML Shared Library Not Found", 12)

    facts = driver_facts(fake_nvml(nvmlInit=fail))
    assert (facts.error, facts.missing) == ("NVML Shared Library Not Found", True)
    assert facts.gpus == ()


def test_a_driver_that_is_there_and_broken_is_not_missing() -> None:
    def fail() -> None:
        raise NVMLError("RM has detected an NVML/RM version mismatch.", 18)

    facts = driver_facts(fake_nvml(nvmlInit=fail))
    assert (facts.error, facts.missing) == ("RM has detected an NVML/RM version mismatch.", False)


def test_a_lost_gpu_does_not_hide_the_others() -> None:
    def handle(index: int) -> int:
        if index == 0:
            raise NVMLError("GPU is lost", 15)
        return index

    facts = driver_facts(fake_nvml(nvmlDeviceGetHandleByIndex=handle, nvmlDeviceGetCount=lambda: 3))
    assert facts.unreadable == ("GPU 0: GPU is lost",)
    assert [gpu.index for gpu in facts.gpus] == [1, 2]
    assert [(pair.first, pair.second) for pair in facts.pairs] == [(1, 2)]


def test_gpus_of_other_containers_are_not_broken() -> None:
    def handle(index: int) -> int:
        if index == 1:
            raise NVMLError("Insufficient Permissions", 4)
        return index

    facts = driver_facts(fake_nvml(nvmlDeviceGetHandleByIndex=handle))
    assert facts.unreadable == ()
    assert [gpu.index for gpu in facts.gpus] == [0]


def test_nvidia_controllers_on_the_bus_are_counted(tmp_path: Path) -> None:
    for name, vendor, kind in (
        ("0000:01:00.0", "0x10de", "0x030200"),  # a GPU
        ("0000:01:00.1", "0x10de", "0x040300"),  # its audio
        ("0000:02:00.0", "0x1a03", "0x030000"),  # a board's own graphics
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "vendor").write_text(f"{vendor}\n")
        (tmp_path / name / "class").write_text(f"{kind}\n")
    assert nvidia_devices(tmp_path) == 1
    assert nvidia_devices(tmp_path / "none") is None


def test_infiniband_ports_from_the_kernels_tree(tmp_path: Path) -> None:
    port = tmp_path / "mlx5_0" / "ports" / "1"
    port.mkdir(parents=True)
    (port / "state").write_text("4: ACTIVE\n")
    (port / "rate").write_text("400 Gb/sec (4X NDR)\n")
    (port / "link_layer").write_text("InfiniBand\n")
    (found,) = rdma_ports(tmp_path)
    assert (found.device, found.port, found.state, found.rate) == ("mlx5_0", 1, "ACTIVE", "400 Gb/sec (4X NDR)")
    assert rdma_ports(tmp_path / "none") == []


def test_the_host(tmp_path: Path) -> None:
    facts = host_facts(infiniband=tmp_path, nodes=tmp_path, shm=tmp_path)
    assert facts.numa_nodes is None
    assert facts.shm_bytes
    assert facts.cores >= 1
    assert facts.open_files_limit


def test_the_disk_is_written_to_and_left_clean(tmp_path: Path) -> None:
    facts = disk_facts(tmp_path / "not" / "yet" / "there")
    assert facts.path == str(tmp_path)
    assert facts.error is None
    assert facts.write_bytes_per_second is not None
    assert facts.write_bytes_per_second > 1e5
    assert list(tmp_path.iterdir()) == []


def test_an_output_directory_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "results").write_text("")
    assert disk_facts(tmp_path / "results").error == "not a directory"
    assert disk_facts(tmp_path / "results" / "run").error == "not a directory"


def test_a_partial_nsys_has_no_importer(tmp_path: Path) -> None:
    nsys = tmp_path / "nsight-systems" / "2026.1" / "target-linux-x64" / "nsys"
    nsys.parent.mkdir(parents=True)
    nsys.write_text("")
    assert has_importer(nsys) is False
    importer = tmp_path / "nsight-systems" / "2026.1" / "host-linux-x64" / "QdstrmImporter"
    importer.parent.mkdir()
    importer.write_text("")
    assert has_importer(nsys) is True
    assert has_importer(nsys.parents[1] / "bin" / "nsys") is True
    assert has_importer(tmp_path / "bin" / "nsys") is None


def test_a_broken_torch_is_a_fact_and_not_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise OSError('libcudart.so.12: cannot open shared object file')")
    done = subprocess.run(
        [sys.executable, "-m", "torchscale.worker.probe", str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        cwd=tmp_path,
    )
    facts = NodeFacts.model_validate(json.loads(done.stdout.splitlines()[-1]))
    assert facts.software is not None
    assert facts.software.torch is None
    assert facts.software.torch_error == "OSError: libcudart.so.12: cannot open shared object file"
    assert facts.host is not None


@pytest.mark.integration
def test_two_real_ranks_and_a_corrupted_one(tmp_path: Path) -> None:
    from torchscale.launch.probe import check_collective, probe_node

    facts = probe_node(tmp_path)
    found = check_collective(facts, timeout_seconds=120)
    assert found.error is None
    assert (found.backend, found.world_size, found.wrong_elements) == ("gloo", 2, 0)
    assert found.elements == 3 * (1 + 1000 + 262_144)
    assert found.seconds is not None
    assert found.seconds > 0


def test_a_wrong_element_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch
    import torch.distributed as dist

    from torchscale.worker.collective_check import check_all_reduce

    def corrupted(values: torch.Tensor) -> None:
        values += values + 1  # what a sum over ranks 0 and 1 gives: base + (base + 1)
        if values.numel() > 500:
            values[3] += 1

    monkeypatch.setattr(dist, "all_reduce", corrupted)
    assert check_all_reduce(0, 2, torch.device("cpu")) == (3 * 263_145, 6)
