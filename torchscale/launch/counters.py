"""Error counters of links: PCI Express and NVLink by the driver, network interfaces by the kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torchscale.util.control_groups import read_text
from torchscale.util.nvml import Driver

_NETWORKS = Path("/sys/class/net")
_OF_INTERFACES = ("rx_errors", "tx_errors", "rx_crc_errors", "rx_missed_errors")
"""What a bad cable, port or overrun shows as; dropped packets have causes that are no fault."""
_OF_NVLINKS = {
    38: "NVLink CRC errors (flits)",
    45: "NVLink CRC errors (data)",
    52: "NVLink replays",
    59: "NVLink recoveries",
}
"""NVML_FI_DEV_NVLINK_…_COUNT_TOTAL: over all links of a GPU, since the driver was loaded."""


@dataclass(frozen=True)
class CounterReading:
    """One counter now. ``uuid``: of a GPU."""

    part: str
    counter: str
    value: int
    uuid: str | None = None


def network_counters(networks: Path = _NETWORKS) -> list[CounterReading]:
    """Error counters of all network interfaces but the loopback; none where the kernel has none.
    ``networks`` can be replaced for tests."""
    found = []
    for interface in sorted(networks.glob("*")):
        if interface.name == "lo":
            continue
        for name in _OF_INTERFACES:
            text = read_text(interface / "statistics" / name)
            if text.isdigit():
                found.append(CounterReading(interface.name, name, int(text)))
    return found


def gpu_counters(numbers: Mapping[str, int]) -> list[CounterReading]:
    """Error counters of the GPUs with these UUIDs; none without a driver.

    Args:
        numbers: Number of each GPU as ``nvidia-smi`` shows it, by UUID with or without NVML's
            prefix.
    """
    if not numbers:
        return []
    import pynvml  # noqa: PLC0415 - only where there are GPUs

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        driver = Driver(pynvml)
        found = []
        for uuid, number in numbers.items():
            handle = driver.handle(uuid)
            if handle is not None:
                found += _of_gpu(driver, handle, f"GPU {number}", uuid)
        return found
    finally:
        pynvml.nvmlShutdown()


def _of_gpu(driver: Driver, handle: object, name: str, uuid: str) -> list[CounterReading]:
    """What the driver has of one GPU: consumer cards have no NVLinks, old drivers no counters."""
    found = []
    replays = driver.whole("nvmlDeviceGetPcieReplayCounter", handle)
    if replays is not None:
        found.append(CounterReading(name, "PCIe replays", replays, uuid))
    answers = driver.ask("nvmlDeviceGetFieldValues", handle, list(_OF_NVLINKS)) or ()
    for counter, answer in zip(_OF_NVLINKS.values(), answers, strict=False):
        if answer.nvmlReturn == 0:
            found.append(CounterReading(name, counter, int(answer.value.ullVal), uuid))
    return found
