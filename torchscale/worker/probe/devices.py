"""The devices that torch can use, and the versions of what drives them."""

from __future__ import annotations

from pathlib import Path

import torch

from torchscale.schema.node.environment import DeviceInfo
from torchscale.util.cpu import cpu_name
from torchscale.util.nvml import device_address, pci_address
from torchscale.util.optional import optional
from torchscale.worker.probe.gpu import opened_driver

_PCI_DEVICES = Path("/sys/bus/pci/devices")


def cuda_versions() -> dict[str, str | None]:
    """CUDA or ROCm, cuDNN, NCCL and driver, by the names of :class:`Versions`; empty where torch
    cannot use CUDA."""
    if not torch.cuda.is_available():
        return {}
    cudnn = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]
    return {
        "cuda": torch.version.cuda,
        "rocm": torch.version.hip,
        "cudnn": optional(str, cudnn),
        "nccl": nccl_version(),
        "driver": _driver_version(),
    }


def collect_devices() -> tuple[DeviceInfo, ...]:
    """Every CUDA device that torch can use, in its order (after CUDA_VISIBLE_DEVICES); without
    CUDA, those of Apple or Intel."""
    if torch.cuda.is_available():
        return tuple(cuda_device(index) for index in range(torch.cuda.device_count()))
    if torch.xpu.is_available():
        return tuple(
            DeviceInfo(kind="xpu", index=index, name=torch.xpu.get_device_name(index))
            for index in range(torch.xpu.device_count())
        )
    if torch.backends.mps.is_available():
        return (DeviceInfo(kind="mps", index=0, name=f"{cpu_name()} GPU"),)
    return ()


def cuda_device(index: int) -> DeviceInfo:
    """Name, UUID, memory, compute capability and NUMA node of the CUDA device with torch's index
    ``index``."""
    properties = torch.cuda.get_device_properties(index)
    return DeviceInfo(
        kind="cuda",
        index=index,
        name=properties.name,
        uuid=optional(str, getattr(properties, "uuid", None)),
        memory_bytes=int(properties.total_memory),
        compute_capability=f"{properties.major}.{properties.minor}",
        numa_node=_numa_node(properties),
    )


def _numa_node(properties: object) -> int | None:
    """NUMA node of a GPU's PCI slot; ``None`` where the kernel does not report one (it gives -1 on
    machines of one node)."""
    slot = _pci_slot(properties)
    if slot is None:
        return None
    try:
        node = int((_PCI_DEVICES / slot / "numa_node").read_text())
    except (OSError, ValueError):
        return None
    if node >= 0:
        return node
    return None


def _pci_slot(properties: object) -> str | None:
    """``0000:17:00.0``: from torch, or from the driver by UUID where an older torch does not
    tell."""
    parts = [getattr(properties, f"pci_{part}_id", None) for part in ("domain", "bus", "device")]
    numbers = [part for part in parts if isinstance(part, int)]
    if len(numbers) == len(parts):
        domain, bus, device = numbers
        return pci_address(domain, bus, device)
    driver, uuid = opened_driver(), getattr(properties, "uuid", None)
    if driver is None or uuid is None:
        return None
    handle = driver.handle(str(uuid))
    if handle is None:
        return None
    return device_address(driver, handle)


def nccl_version() -> str | None:
    """Version of the NCCL that torch uses; ``None`` for a torch without NCCL."""
    if not torch.distributed.is_nccl_available():
        return None
    version = torch.cuda.nccl.version()  # type: ignore[no-untyped-call]
    if isinstance(version, tuple):
        return ".".join(map(str, version))
    return str(version)


def _driver_version() -> str | None:
    driver = opened_driver()
    if driver is None:
        return None
    return driver.text("nvmlSystemGetDriverVersion")
