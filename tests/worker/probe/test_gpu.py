"""The driver as the probe asks it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from torchscale.util.nvml import Driver
from torchscale.worker.probe import gpu as module
from torchscale.worker.probe.gpu import driver_facts, opened_driver, throttle_reasons_of


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
        "NVML_AGGREGATE_ECC": 1,
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
        "nvmlDeviceGetTotalEccErrors": lambda handle, _, counter: only_first(2 * counter)(handle),
        "nvmlDeviceGetRemappedRows": only_first((1, 2, 1, 0)),
        "nvmlDeviceGetTemperature": only_first(33),
        "nvmlDeviceGetEnforcedPowerLimit": only_first(700_000),
        "nvmlDeviceGetCurrentClocksThrottleReasons": only_first(0x1 | 0x40 | 0x80),
        "nvmlDeviceGetComputeRunningProcesses": only_first([SimpleNamespace(pid=2**22 + 1)]),
        "nvmlDeviceGetCurrPcieLinkWidth": only_first(8),
        "nvmlDeviceGetMaxPcieLinkWidth": only_first(16),
        "nvmlDeviceGetNvLinkState": link_state,
        "nvmlDeviceGetTopologyCommonAncestor": lambda *_: 50,
        "nvmlDeviceGetP2PStatus": lambda first, second, capability: 0 if capability == 2 else 1,
    }
    return SimpleNamespace(**{**functions, **changes})


def test_a_driver_that_answers() -> None:
    facts = driver_facts(fake_nvml())
    assert (facts.version, facts.cuda_version, facts.error) == ("570.86.15", "12.8", None)
    first = facts.gpus[0]
    assert first.throttle_reasons == ("hardware thermal slowdown", "power brake")
    assert [gpu.power_limit_watts for gpu in facts.gpus] == [700.0, None]
    assert first.foreign_processes == (f"{2**22 + 1} (of another container or user)",)
    assert (first.nvlinks_active, first.pcie_width, first.memory_used_bytes, first.ecc_enabled) == (
        2,
        8,
        7,
        True,
    )
    assert (first.ecc_uncorrected, first.ecc_uncorrected_ever) == (0, 2)
    assert (first.rows_remapped, first.remapping_pending, first.remapping_failed) == (
        3,
        True,
        False,
    )
    assert (facts.pairs[0].p2p, facts.pairs[0].nvlink, facts.pairs[0].path) == (
        False,
        True,
        "system",
    )


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[SimpleNamespace], None]]:
    """Makes an NVML the one of this machine."""

    def install(nvml: SimpleNamespace) -> None:
        opened_driver.cache_clear()
        monkeypatch.setattr(module, "pynvml", nvml)

    yield install
    opened_driver.cache_clear()


def test_reasons_for_lowered_clocks_by_uuid(installed: Callable[[SimpleNamespace], None]) -> None:
    asked: list[str] = []
    inits: list[None] = []

    def by_uuid(uuid: str) -> int:
        asked.append(uuid)
        return 0

    installed(fake_nvml(nvmlDeviceGetHandleByUUID=by_uuid, nvmlInit=lambda: inits.append(None)))
    assert throttle_reasons_of("1b3f") == ("hardware thermal slowdown", "power brake")
    assert throttle_reasons_of("GPU-1b3f") == ("hardware thermal slowdown", "power brake")
    assert asked == ["GPU-1b3f", "GPU-1b3f"]
    assert len(inits) == 1  # however often it is asked: initializing it stops all GPUs for a while
    installed(fake_nvml(nvmlDeviceGetHandleByUUID=lambda _: 1))
    assert throttle_reasons_of("1b3f") is None

    def fail() -> None:
        raise NVMLError("Driver Not Loaded", 9)

    installed(fake_nvml(nvmlInit=fail))
    assert throttle_reasons_of("1b3f") is None


def test_a_slice_of_a_gpu_is_found_by_the_uuid_that_torch_gives() -> None:
    def by_uuid(uuid: str) -> str:
        if uuid != "MIG-1b3f":
            raise NVMLError("Not Found", 6)
        return uuid

    driver = Driver(fake_nvml(nvmlDeviceGetHandleByUUID=by_uuid))
    assert driver.handle("1b3f") == driver.handle("MIG-1b3f") == "MIG-1b3f"
    assert driver.handle("GPU-1b3f") is None
    assert driver.handle("2c40") is None


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


def test_a_lost_gpu_is_named_by_the_address_that_the_kernel_keeps(tmp_path: Path) -> None:
    for address in ("0000:2a:00.0", "0000:18:00.0", "0000:3a:00.0"):
        (tmp_path / address).mkdir()

    def handle(index: int) -> int:
        if index in lost:
            raise NVMLError("GPU is lost", 15)
        return index

    def pci(handle: int) -> SimpleNamespace:
        return SimpleNamespace(domain=0, bus=(0x18, 0x2A, 0x3A)[handle], device=0)

    calls = {
        "nvmlDeviceGetHandleByIndex": handle,
        "nvmlDeviceGetCount": lambda: 3,
        "nvmlDeviceGetPciInfo": pci,
    }
    lost = {1}
    assert driver_facts(fake_nvml(**calls), tmp_path).unreadable == (
        "GPU 1 (0000:2a:00.0): GPU is lost",
    )
    lost = {0, 2}
    assert driver_facts(fake_nvml(**calls), tmp_path).unreadable == (
        "GPU 0 (0000:18:00.0): GPU is lost",
        "GPU 2 (0000:3a:00.0): GPU is lost",
    )
    (
        tmp_path / "0000:db:00.0"
    ).mkdir()  # one more than the library counts: which is which is not known
    assert driver_facts(fake_nvml(**calls), tmp_path).unreadable[0] == "GPU 0: GPU is lost"


def test_gpus_of_other_containers_are_not_broken() -> None:
    def handle(index: int) -> int:
        if index == 1:
            raise NVMLError("Insufficient Permissions", 4)
        return index

    facts = driver_facts(fake_nvml(nvmlDeviceGetHandleByIndex=handle))
    assert facts.unreadable == ()
    assert [gpu.index for gpu in facts.gpus] == [0]
