from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from torchscale.launch.sampler import GpuReader
from torchscale.launch.telemetry import READINGS, Sampler, read_readings, sampling
from torchscale.schema.launch.telemetry import GpuReading
from torchscale.util.processes.subprocesses import wait_until


class FakeError(Exception):
    """Stands for NVML's."""


class FakeNvml:
    """Answers as the driver of one GPU does; what is in ``refused`` it does not know."""

    NVMLError = FakeError
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED = NVML_VOLATILE_ECC = NVML_TEMPERATURE_GPU = (
        NVML_CLOCK_SM
    ) = 0
    NVML_PCIE_UTIL_TX_BYTES, NVML_PCIE_UTIL_RX_BYTES = 0, 1

    def __init__(self, *refused: str) -> None:
        self._refused = refused
        self._kibibytes = 0

    def __getattr__(self, name: str) -> Any:
        answers: dict[str, Any] = {
            "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=97, memory=40),
            "nvmlDeviceGetMemoryInfo": SimpleNamespace(used=2**30, total=2**37),
            "nvmlDeviceGetComputeRunningProcesses": [
                SimpleNamespace(pid=1),
                SimpleNamespace(pid=2),
            ],
            "nvmlDeviceGetPowerUsage": 612_000,
            "nvmlDeviceGetTotalEnergyConsumption": 5_000_000,
            "nvmlDeviceGetTemperature": 64,
            "nvmlDeviceGetClockInfo": 1980,
            "nvmlDeviceGetCurrentClocksThrottleReasons": 0x40,
            "nvmlDeviceGetTotalEccErrors": 0,
            "nvmlDeviceGetPcieThroughput": 1000,
        }

        def call(*arguments: Any) -> Any:
            if name in self._refused:
                raise FakeError
            if name == "nvmlDeviceGetHandleByUUID":
                if arguments[0] != "GPU-1":
                    raise FakeError
                return "handle"
            if name == "nvmlDeviceGetFieldValues":
                self._kibibytes += 1_000_000
                return [
                    SimpleNamespace(nvmlReturn=0, value=SimpleNamespace(ullVal=self._kibibytes))
                ] * 2
            return answers[name]

        if name.startswith("nvml"):
            return call
        raise AttributeError(name)


def test_a_gpu_is_read_in_si_units() -> None:
    reader = GpuReader(["1"], FakeNvml())
    first = GpuReading.model_validate(reader.read()[0])
    assert (first.busy, first.memory_busy) == (0.97, 0.4)
    assert (first.power_watts, first.energy_joules) == (612.0, 5000.0)
    assert (first.sm_clock_hertz, first.temperature_celsius) == (1.98e9, 64)
    assert first.throttle_reasons == ("hardware thermal slowdown",)
    assert first.pcie_bytes_per_second == 2 * 1000 * 1024
    assert (first.processes, first.ecc_errors) == (2, 0)
    assert first.nvlink_bytes_per_second is None  # a rate needs two readings
    second = GpuReading.model_validate(reader.read()[0])
    assert second.nvlink_bytes_per_second is not None
    assert second.nvlink_bytes_per_second > 0


def test_each_gpu_has_its_own_time_and_the_slow_counters_come_last() -> None:
    nvml = FakeNvml()
    asked: list[str] = []

    class Logging:
        """Notes what is asked of the driver."""

        def __getattr__(self, name: str) -> Any:
            if name.startswith("nvmlDevice"):
                asked.append(name)
            return getattr(nvml, name)

    reader = GpuReader(["1", "GPU-1"], Logging())
    asked.clear()
    began = time.time()
    first, second = reader.read()
    assert began <= first["time"] <= second["time"] <= time.time()
    assert asked[-4:] == ["nvmlDeviceGetPcieThroughput"] * 4
    assert "nvmlDeviceGetPcieThroughput" not in asked[:-4]


def test_what_the_driver_does_not_answer_is_absent_and_unknown_gpus_are_left_out() -> None:
    silent = FakeNvml(
        "nvmlDeviceGetPowerUsage", "nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetPcieThroughput",
        "nvmlDeviceGetFieldValues", "nvmlDeviceGetComputeRunningProcesses",
        "nvmlDeviceGetCurrentClocksThrottleReasons", "nvmlDeviceGetUtilizationRates",
    )  # fmt: skip
    reading = GpuReading.model_validate(GpuReader(["GPU-1"], silent).read()[0])
    known = {name for name, value in reading.model_dump().items() if value is not None}
    assert known == {
        "uuid",
        "time",
        "memory_used_bytes",
        "temperature_celsius",
        "sm_clock_hertz",
        "ecc_errors",
    }
    assert GpuReader(["another"], FakeNvml()).read() == []
    assert GpuReader(["GPU-1"], None).read() == []


@pytest.mark.slow
@pytest.mark.real
def test_the_sampler_reads_while_it_lasts_and_leaves_no_process(tmp_path: Path) -> None:
    began = time.time()
    with sampling(tmp_path, 0.1, ()):
        assert wait_until(
            lambda: len(read_readings(tmp_path / READINGS)[0]) >= 3, timeout_seconds=30
        )
        mine = [
            child
            for child in psutil.Process().children()
            if "torchscale.launch.sampler" in child.cmdline()
        ]
        assert len(mine) == 1
    assert not mine[0].is_running()
    readings, used = read_readings(tmp_path / READINGS)
    assert all(began <= reading.time <= time.time() for reading in readings)
    assert [reading.time for reading in readings] == sorted(reading.time for reading in readings)
    assert all(reading.memory_used_bytes > 0 for reading in readings)
    assert used is not None
    assert 0 < used < 10
    assert not (tmp_path / "telemetry.log").exists()  # it had nothing to say


def test_none_is_started_where_none_is_wanted(tmp_path: Path) -> None:
    with sampling(tmp_path, None, ()):
        pass
    assert list(tmp_path.iterdir()) == []
    assert read_readings(tmp_path / READINGS) == ([], None)


@pytest.mark.parametrize("damage", ["{", '{"time": 1}', "\x00"])
def test_damaged_lines_are_left_out(tmp_path: Path, damage: str) -> None:
    good = '{"time": 1.0, "memory_used_bytes": 5, "gpus": []}'
    (tmp_path / READINGS).write_text(f"{good}\n{damage}\n{good}\n")
    assert len(read_readings(tmp_path / READINGS)[0]) == 2


@pytest.mark.parametrize("time_used", ["abc", "NaN", "1e999", "-1", "", "[" * 1000])
def test_a_time_of_the_sampler_that_is_none_is_left_out(tmp_path: Path, time_used: str) -> None:
    """The file can come from another node."""
    (tmp_path / READINGS).write_text(f'{{"sampler_cpu_seconds": {time_used}}}\n')
    assert read_readings(tmp_path / READINGS) == ([], None)


def test_launches_that_share_a_sampler_get_the_readings_of_their_own_time(tmp_path: Path) -> None:
    shared, first, second = (tmp_path / name for name in ("shared", "first", "second"))
    for directory in (shared, first, second):
        directory.mkdir()
    sampler = Sampler(shared, None, ())  # without a process: the readings are written here
    lines = [f'{{"time": {time}, "memory_used_bytes": {time}}}\n' for time in range(5)]
    (shared / READINGS).write_text("".join(lines[:3]) + lines[3][:9])
    sampler.copy_new(1.0, first)
    (shared / READINGS).write_text("".join(lines) + '{"sampler_cpu_seconds": 0.5}\n')
    sampler.copy_new(4.0, second)
    sampler.copy_new(0.0, tmp_path / "absent")
    sampler.close()
    assert [reading.time for reading in read_readings(first / READINGS)[0]] == [1.0, 2.0]
    assert [reading.time for reading in read_readings(second / READINGS)[0]] == [4.0], (
        "the launch began after the fourth"
    )


def test_without_a_place_to_write_there_is_no_telemetry_and_no_error(tmp_path: Path) -> None:
    """As on a full disk: telemetry must not stop a launch."""
    sampler = Sampler(tmp_path / "absent", 1.0, ())
    sampler.close()
    (tmp_path / READINGS).write_text('{"time": 5, "memory_used_bytes": 1}\n')
    Sampler(tmp_path, None, ()).copy_new(0.0, tmp_path / "absent")
