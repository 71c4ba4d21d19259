"""Facts about GPUs from NVML, the driver's library. What a GPU or driver does not support is
``None``."""

from __future__ import annotations

import functools
import itertools
import os
from pathlib import Path
from typing import Any

import psutil
import pynvml

from torchscale.schema.node.probe import DriverFacts, GpuFacts, GpuPairFacts
from torchscale.util.nvml import Driver, device_address
from torchscale.util.optional import optional

_P2P_READ, _P2P_NVLINK = 0, 2
"""NVML_P2P_CAPS_INDEX_READ, which the Python module defines as a tuple by mistake, and
NVML_P2P_CAPS_INDEX_NVLINK."""
_NO_PERMISSION = 4
"""NVML_ERROR_NO_PERMISSION."""
_NO_DRIVER = (9, 12)
"""NVML_ERROR_DRIVER_NOT_LOADED and NVML_ERROR_LIBRARY_NOT_FOUND; every other error means a broken
driver."""
_LOST = (15, 16)
"""NVML_ERROR_GPU_IS_LOST and NVML_ERROR_RESET_REQUIRED: the driver still counts the GPU, which no
longer answers."""
_COMPUTE_MODES = {0: "default", 2: "prohibited", 3: "exclusive process"}
"""NVML_COMPUTEMODE_*."""
_PROC_GPUS = Path("/proc/driver/nvidia/gpus")
"""The kernel driver's list of GPUs by PCI address; it keeps those that fell off the bus."""
_PATHS = {
    0: "same board",
    10: "one PCIe switch",
    20: "PCIe switches",
    30: "host bridge",
    40: "NUMA node",
    50: "system",
}
"""NVML_TOPOLOGY_*: how far up two GPUs' nearest common ancestor lies."""


def driver_facts(nvml: Any = pynvml, proc_gpus: Path = _PROC_GPUS) -> DriverFacts:
    """Facts on the driver, its GPUs and pairs of them; ``error`` says why there are none. ``nvml``
    is the module, or a substitute with the same functions."""
    visible, order = os.environ.get("CUDA_VISIBLE_DEVICES"), os.environ.get("CUDA_DEVICE_ORDER")
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        missing = _code(error) in _NO_DRIVER
        return DriverFacts(
            error=str(error), missing=missing, visible_devices=visible, device_order=order
        )
    driver = Driver(nvml)
    try:
        handles, unreadable = _handles(driver, proc_gpus)
        cuda = driver.whole("nvmlSystemGetCudaDriverVersion")
        return DriverFacts(
            version=driver.text("nvmlSystemGetDriverVersion"),
            cuda_version=optional(_version_text, cuda),
            unreadable=unreadable,
            gpus=tuple(_gpu(driver, index, handle) for index, handle in handles),
            pairs=tuple(
                _pair(driver, first, second) for first, second in itertools.combinations(handles, 2)
            ),
            visible_devices=visible,
            device_order=order,
        )
    finally:
        nvml.nvmlShutdown()


@functools.cache
def opened_driver() -> Driver | None:
    """The driver's library, initialized once in a process and left so: it takes tens to hundreds of
    milliseconds on a node of eight GPUs, in which they would stand idle. ``None`` without a working
    driver."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return Driver(pynvml)


def throttle_reasons_of(uuid: str) -> tuple[str, ...] | None:
    """Why the GPU with this UUID runs at lower clocks now; ``None`` where the driver does not
    report it."""
    driver = opened_driver()
    if driver is None:
        return None
    handle = driver.handle(uuid)
    if handle is None:
        return None
    return driver.throttle_reasons(handle)


def _handles(driver: Driver, proc_gpus: Path) -> tuple[list[tuple[int, Any]], tuple[str, ...]]:
    """Handles of the GPUs that answer, by index, and errors of the others (one that fell off the
    bus, say). One may be lost after its handle was opened: then the driver still gives the handle,
    and every question fails."""
    nvml = driver.nvml
    handles, no_handle, unreadable = [], {}, {}
    denied = False
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
        except nvml.NVMLError as error:
            denied |= (
                _code(error) == _NO_PERMISSION
            )  # counted, but not accessible to this container or user: not broken
            if _code(error) != _NO_PERMISSION:
                no_handle[index] = error
            continue
        lost = _lost(driver, handle)
        if lost is None:
            handles.append((index, handle))
        else:
            names = (device_address(driver, handle), driver.text("nvmlDeviceGetUUID", handle))
            unreadable[index] = f"GPU {index}{_in_brackets(names)}: {lost}"
    answered = {device_address(driver, handle) for _, handle in handles}
    silent = [address for address in _proc_addresses(proc_gpus) if address not in answered]
    # Both are in the order of the bus. With another number of addresses there is no telling which
    # is which.
    known = not denied and not unreadable and len(silent) == len(no_handle)
    addresses = silent if known else [None] * len(no_handle)
    for (index, failure), address in zip(no_handle.items(), addresses, strict=True):
        unreadable[index] = f"GPU {index}{_in_brackets((address,))}: {failure}"
    return handles, tuple(unreadable[index] for index in sorted(unreadable))


def _lost(driver: Driver, handle: Any) -> str | None:
    """Why a GPU no longer answers; ``None`` for one that does."""
    nvml = driver.nvml
    try:
        nvml.nvmlDeviceGetMemoryInfo(handle)
    except nvml.NVMLError as error:
        if _code(error) in _LOST:
            return str(error)
        return None
    return None


def _proc_addresses(directory: Path) -> list[str]:
    try:
        return sorted(path.name for path in directory.iterdir())
    except OSError:
        return []


def _version_text(number: int) -> str:
    """``12.4`` for 12040."""
    return f"{number // 1000}.{number % 1000 // 10}"


def _in_brackets(names: tuple[str | None, ...]) -> str:
    known = [name for name in names if name is not None]
    if known:
        return f" ({', '.join(known)})"
    return ""


def _code(error: Exception) -> int | None:
    value = getattr(error, "value", None)
    if isinstance(value, int):
        return value
    return None


def _gpu(driver: Driver, index: int, handle: Any) -> GpuFacts:
    nvml = driver.nvml
    ecc = driver.ask("nvmlDeviceGetEccMode", handle)
    errors = ("nvmlDeviceGetTotalEccErrors", handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED)
    persistence = driver.whole("nvmlDeviceGetPersistenceMode", handle)
    mode = driver.whole("nvmlDeviceGetComputeMode", handle)
    return GpuFacts(
        index=index,
        name=driver.text("nvmlDeviceGetName", handle) or "unknown",
        uuid=driver.text("nvmlDeviceGetUUID", handle),
        pci_address=device_address(driver, handle),
        slices=_slices(driver, handle),
        persistence=optional(bool, persistence),
        compute_mode=optional(_COMPUTE_MODES.get, mode),
        **_memory(driver, handle),
        ecc_enabled=optional(_current_mode, ecc),
        ecc_uncorrected=driver.whole(*errors, nvml.NVML_VOLATILE_ECC),
        ecc_uncorrected_ever=driver.whole(*errors, nvml.NVML_AGGREGATE_ECC),
        **_remapped_rows(driver, handle),
        temperature_celsius=driver.whole(
            "nvmlDeviceGetTemperature", handle, nvml.NVML_TEMPERATURE_GPU
        ),
        power_limit_watts=optional(_watts, driver.whole("nvmlDeviceGetEnforcedPowerLimit", handle)),
        throttle_reasons=driver.throttle_reasons(handle),
        foreign_processes=_other_processes(driver, handle),
        pcie_generation=driver.whole("nvmlDeviceGetMaxPcieLinkGeneration", handle),
        pcie_width=driver.whole("nvmlDeviceGetCurrPcieLinkWidth", handle),
        pcie_width_max=driver.whole("nvmlDeviceGetMaxPcieLinkWidth", handle),
        nvlinks_active=_nvlinks(driver, handle),
    )


def _watts(milliwatts: int) -> float:
    return milliwatts / 1000


def _memory(driver: Driver, handle: Any) -> dict[str, Any]:
    """Fields on the GPU's memory; none where the driver does not tell."""
    memory = driver.ask("nvmlDeviceGetMemoryInfo", handle)
    if memory is None:
        return {}
    return {"memory_bytes": int(memory.total), "memory_used_bytes": int(memory.used)}


def _current_mode(modes: tuple[int, int]) -> bool:
    """The current one of a current and a pending mode."""
    return bool(modes[0])


def _remapped_rows(driver: Driver, handle: Any) -> dict[str, Any]:
    """Fields on replaced rows of memory; none where the driver does not tell."""
    rows = driver.ask("nvmlDeviceGetRemappedRows", handle)
    if rows is None:
        return {}
    corrected, uncorrected, pending, failed = rows
    return {
        "rows_remapped": int(corrected) + int(uncorrected),
        "remapping_pending": bool(pending),
        "remapping_failed": bool(failed),
    }


def _slices(driver: Driver, handle: Any) -> tuple[str, ...] | None:
    """UUIDs of a GPU's MIG slices; ``None`` for a GPU or driver without MIG."""
    count = driver.whole("nvmlDeviceGetMaxMigDeviceCount", handle)
    if count is None:
        return None
    slices = [
        driver.ask("nvmlDeviceGetMigDeviceHandleByIndex", handle, index) for index in range(count)
    ]
    uuids = [driver.text("nvmlDeviceGetUUID", part) for part in slices if part is not None]
    return tuple(uuid for uuid in uuids if uuid is not None)


def _other_processes(driver: Driver, handle: Any) -> tuple[str, ...] | None:
    processes = driver.ask("nvmlDeviceGetComputeRunningProcesses", handle)
    if processes is None:
        return None
    return tuple(
        f"{process.pid} {_process_name(process.pid)}"
        for process in processes
        if process.pid != os.getpid()
    )


def _nvlinks(driver: Driver, handle: Any) -> int | None:
    """Number of active NVLinks; ``None`` for a GPU without NVLink."""
    links = range(int(driver.nvml.NVML_NVLINK_MAX_LINKS))
    states = [
        state
        for link in links
        if (state := driver.whole("nvmlDeviceGetNvLinkState", handle, link)) is not None
    ]
    if states:
        return sum(states)
    return None


def _pair(driver: Driver, first: tuple[int, Any], second: tuple[int, Any]) -> GpuPairFacts:
    level = driver.whole("nvmlDeviceGetTopologyCommonAncestor", first[1], second[1])
    return GpuPairFacts(
        first=first[0],
        second=second[0],
        p2p=_peer(driver, first[1], second[1], _P2P_READ),
        nvlink=_peer(driver, first[1], second[1], _P2P_NVLINK),
        path=optional(_PATHS.get, level),
    )


def _peer(driver: Driver, first: Any, second: Any, capability: int) -> bool | None:
    """Whether two GPUs have a capability between them, from either's view."""
    status = driver.whole("nvmlDeviceGetP2PStatus", first, second, capability)
    if status is None:
        return None
    return bool(status == driver.nvml.NVML_P2P_STATUS_OK)


def _process_name(pid: int) -> str:
    try:
        return psutil.Process(pid).name()
    except psutil.Error:
        return "(of another container or user)"
