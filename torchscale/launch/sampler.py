"""``python -m torchscale.launch.sampler FILE INTERVAL [GPU-UUID …]``: reads the machine every
INTERVAL seconds until TERM, a line of JSON each time
(:class:`torchscale.schema.launch.telemetry.Reading`).

It runs as a separate process, so that it shares no interpreter with what is measured, and stays
light: it imports neither torch nor pydantic. It ends with its parent.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil

from torchscale.util.nvml import Driver
from torchscale.util.optional import optional

_PR_SET_PDEATHSIG = 1
_KILOBYTE = 1024
_MILLI = 1e-3
_MEGAHERTZ = 1e6
_NVLINK_FIELDS = (138, 139)
"""NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX and _RX: kibibytes since the driver was loaded, over all
links."""
_ALL_LINKS = 0xFFFFFFFF


def main() -> None:
    """Append readings to the file until TERM arrives."""
    path, interval, uuids = Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is handled by the launcher
    gpus = GpuReader(uuids, _nvml()) if uuids else None
    psutil.cpu_percent()  # its values are since the previous call
    first = True
    least = interval / 2  # also where reading takes longer than the interval
    with path.open("a", encoding="utf-8") as file:
        while True:
            began = time.monotonic()
            host = read_host()
            if first:
                host["cpu_busy"], first = None, False  # there is no interval yet
            file.write(json.dumps({**host, "gpus": [] if gpus is None else gpus.read()}) + "\n")
            file.flush()
            if stopped.wait(max(least, interval - (time.monotonic() - began))):
                break
        used = os.times()
        file.write(json.dumps({"sampler_cpu_seconds": used.user + used.system}) + "\n")


def read_host() -> dict[str, Any]:
    """CPU use (0 to 1) since the last reading; memory and network counters in bytes, now."""
    sent = received = None
    if (network := psutil.net_io_counters()) is not None:
        sent, received = network.bytes_sent, network.bytes_recv
    memory = psutil.virtual_memory()
    return {
        "time": time.time(),
        "cpu_busy": psutil.cpu_percent() / 100,
        "memory_used_bytes": int(memory.total - memory.available),
        "sent_bytes": sent,
        "received_bytes": received,
    }


class GpuReader:
    """Reads the GPUs with these UUIDs; none without a working driver."""

    def __init__(self, uuids: list[str], nvml: Any) -> None:
        self._driver = optional(Driver, nvml)
        self._handles: list[tuple[str, Any]] = []
        if self._driver is not None:
            handles = [(uuid, self._driver.handle(uuid)) for uuid in uuids]
            self._handles = [(uuid, handle) for uuid, handle in handles if handle is not None]
        self._links: dict[str, tuple[float, float]] = {}

    def read(self) -> list[dict[str, Any]]:
        """One reading per GPU, each with its own time. PCIe counters block for 20 ms each and are
        asked last."""
        readings = [self._gpu(uuid, handle) for uuid, handle in self._handles]
        for reading, (_, handle) in zip(readings, self._handles, strict=True):
            reading["pcie_bytes_per_second"] = self._pcie(handle)
        return readings

    def _gpu(self, uuid: str, handle: Any) -> dict[str, Any]:
        driver = self._driver
        assert driver is not None  # noqa: S101 - without a driver there are no handles
        nvml = driver.nvml
        busy = memory_busy = None
        if (use := driver.ask("nvmlDeviceGetUtilizationRates", handle)) is not None:
            busy, memory_busy = use.gpu / 100, use.memory / 100
        memory = driver.ask("nvmlDeviceGetMemoryInfo", handle)
        processes = driver.ask("nvmlDeviceGetComputeRunningProcesses", handle)
        errors = (
            "nvmlDeviceGetTotalEccErrors",
            handle,
            nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
            nvml.NVML_VOLATILE_ECC,
        )
        return {
            "uuid": uuid,
            "time": time.time(),
            "busy": busy,
            "memory_busy": memory_busy,
            "memory_used_bytes": None if memory is None else int(memory.used),
            "power_watts": _scaled(driver.whole("nvmlDeviceGetPowerUsage", handle), _MILLI),
            "energy_joules": _scaled(
                driver.whole("nvmlDeviceGetTotalEnergyConsumption", handle), _MILLI
            ),
            "temperature_celsius": driver.whole(
                "nvmlDeviceGetTemperature", handle, nvml.NVML_TEMPERATURE_GPU
            ),
            "sm_clock_hertz": _scaled(
                driver.whole("nvmlDeviceGetClockInfo", handle, nvml.NVML_CLOCK_SM), _MEGAHERTZ
            ),
            "throttle_reasons": driver.throttle_reasons(handle),
            "ecc_errors": driver.whole(*errors),
            "nvlink_bytes_per_second": self._nvlink(uuid, handle),
            "processes": optional(len, processes),
        }

    def _pcie(self, handle: Any) -> float | None:
        """Bytes per second in both directions over the last 20 ms."""
        driver = self._driver
        assert driver is not None  # noqa: S101 - see above
        counters = (driver.nvml.NVML_PCIE_UTIL_TX_BYTES, driver.nvml.NVML_PCIE_UTIL_RX_BYTES)
        values = [
            driver.whole("nvmlDeviceGetPcieThroughput", handle, counter) for counter in counters
        ]
        if None in values:
            return None
        return float(sum(value or 0 for value in values) * _KILOBYTE)

    def _nvlink(self, uuid: str, handle: Any) -> float | None:
        """Bytes per second in both directions since the last reading; ``None`` at the first one."""
        driver = self._driver
        assert driver is not None  # noqa: S101 - see above
        values = driver.ask(
            "nvmlDeviceGetFieldValues", handle, [(field, _ALL_LINKS) for field in _NVLINK_FIELDS]
        )
        if values is None or any(value.nvmlReturn != 0 for value in values):
            return None
        now, total = (
            time.monotonic(),
            float(sum(value.value.ullVal for value in values) * _KILOBYTE),
        )
        before = self._links.get(uuid)
        self._links[uuid] = now, total
        if before is None or now <= before[0]:
            return None
        return (total - before[1]) / (now - before[0])


def _scaled(value: int | None, factor: float) -> float | None:
    if value is None:
        return None
    return value * factor


def _nvml() -> Any:
    """The initialized module ``pynvml``; ``None`` without a driver."""
    import pynvml  # noqa: PLC0415 - only where there are GPUs

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return pynvml


if __name__ == "__main__":
    main()
