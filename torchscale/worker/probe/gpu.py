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
from torchscale.util.nvml import Driver

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
            cuda_version=None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}",
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
    handle = None if driver is None else driver.handle(uuid)
    return None if driver is None or handle is None else driver.throttle_reasons(handle)


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
            names = (_pci_address(driver, handle), driver.text("nvmlDeviceGetUUID", handle))
            unreadable[index] = f"GPU {index}{_in_brackets(names)}: {lost}"
    answered = {_pci_address(driver, handle) for _, handle in handles}
    silent = [address for address in _proc_addresses(proc_gpus) if address not in answered]
    # Both are in the order of the bus. With another number of addresses there is no telling which
    # is which.
    known = not denied and not unreadable and len(silent) == len(no_handle)
    addresses = silent if known else [None] * len(no_handle)
    for (index, failure), address in zip(no_handle.items(), addresses, strict=True):
        unreadable[index] = f"GPU {index}{_in_brackets((address,))}: {failure}"
    return handles, tuple(unreadable[index] for index in sorted(unreadable))


def _lost(driver: Driver, handle: Any) -> Exception | None:
    """Why a GPU no longer answers; ``None`` for one that does."""
    nvml = driver.nvml
    try:
        nvml.nvmlDeviceGetMemoryInfo(handle)
    except nvml.NVMLError as error:
        return error if _code(error) in _LOST else None
    return None


def _proc_addresses(directory: Path) -> list[str]:
    try:
        return sorted(path.name for path in directory.iterdir())
    except OSError:
        return []


def _pci_address(driver: Driver, handle: Any) -> str | None:
    info = driver.ask("nvmlDeviceGetPciInfo", handle)
    return None if info is None else pci_address(info.domain, info.bus, info.device)


def pci_address(domain: int, bus: int, device: int) -> str:
    """``0000:17:00.0``, as the kernel writes it; NVML's own text has eight digits of domain."""
    return f"{int(domain):04x}:{int(bus):02x}:{int(device):02x}.0"


def _in_brackets(names: tuple[str | None, ...]) -> str:
    known = [name for name in names if name is not None]
    return f" ({', '.join(known)})" if known else ""


def _code(error: Exception) -> int | None:
    value = getattr(error, "value", None)
    return value if isinstance(value, int) else None


def _gpu(driver: Driver, index: int, handle: Any) -> GpuFacts:
    nvml = driver.nvml
    memory = driver.ask("nvmlDeviceGetMemoryInfo", handle)
    ecc = driver.ask("nvmlDeviceGetEccMode", handle)
    errors = ("nvmlDeviceGetTotalEccErrors", handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED)
    remapped = driver.ask(
        "nvmlDeviceGetRemappedRows", handle
    )  # corrected, uncorrected, pending, failed
    persistence = driver.whole("nvmlDeviceGetPersistenceMode", handle)
    mode = driver.whole("nvmlDeviceGetComputeMode", handle)
    return GpuFacts(
        index=index,
        name=driver.text("nvmlDeviceGetName", handle) or "unknown",
        uuid=driver.text("nvmlDeviceGetUUID", handle),
        pci_address=_pci_address(driver, handle),
        slices=_slices(driver, handle),
        persistence=None if persistence is None else bool(persistence),
        compute_mode=None if mode is None else _COMPUTE_MODES.get(mode),
        memory_bytes=None if memory is None else int(memory.total),
        memory_used_bytes=None if memory is None else int(memory.used),
        ecc_enabled=None if ecc is None else bool(ecc[0]),
        ecc_uncorrected=driver.whole(*errors, nvml.NVML_VOLATILE_ECC),
        ecc_uncorrected_ever=driver.whole(*errors, nvml.NVML_AGGREGATE_ECC),
        rows_remapped=None if remapped is None else int(remapped[0]) + int(remapped[1]),
        remapping_pending=None if remapped is None else bool(remapped[2]),
        remapping_failed=None if remapped is None else bool(remapped[3]),
        temperature_celsius=driver.whole(
            "nvmlDeviceGetTemperature", handle, nvml.NVML_TEMPERATURE_GPU
        ),
        throttle_reasons=driver.throttle_reasons(handle),
        foreign_processes=_other_processes(driver, handle),
        pcie_generation=driver.whole("nvmlDeviceGetMaxPcieLinkGeneration", handle),
        pcie_width=driver.whole("nvmlDeviceGetCurrPcieLinkWidth", handle),
        pcie_width_max=driver.whole("nvmlDeviceGetMaxPcieLinkWidth", handle),
        nvlinks_active=_nvlinks(driver, handle),
    )


def _slices(driver: Driver, handle: Any) -> tuple[str, ...] | None:
    """UUIDs of a GPU's MIG slices; ``None`` for a GPU or driver without MIG."""
    count = driver.whole("nvmlDeviceGetMaxMigDeviceCount", handle)
    if count is None:
        return None
    slices = [
        driver.ask("nvmlDeviceGetMigDeviceHandleByIndex", handle, index) for index in range(count)
    ]
    uuids = [driver.text("nvmlDeviceGetUUID", it) for it in slices if it is not None]
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
    return sum(states) if states else None


def _pair(driver: Driver, first: tuple[int, Any], second: tuple[int, Any]) -> GpuPairFacts:
    level = driver.whole("nvmlDeviceGetTopologyCommonAncestor", first[1], second[1])
    return GpuPairFacts(
        first=first[0],
        second=second[0],
        p2p=_peer(driver, first[1], second[1], _P2P_READ),
        nvlink=_peer(driver, first[1], second[1], _P2P_NVLINK),
        path=None if level is None else _PATHS.get(level),
    )


def _peer(driver: Driver, first: Any, second: Any, capability: int) -> bool | None:
    """Whether two GPUs have a capability between them, from either's view."""
    status = driver.whole("nvmlDeviceGetP2PStatus", first, second, capability)
    return None if status is None else status == driver.nvml.NVML_P2P_STATUS_OK


def _process_name(pid: int) -> str:
    try:
        return psutil.Process(pid).name()
    except psutil.Error:
        return "(of another container or user)"
