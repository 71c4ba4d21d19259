"""``python -m torchscale.worker.environment`` prints, as one JSON line, the machine as torch sees it."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import psutil
import torch

from torchscale.schema.node.environment import DeviceInfo, Environment, Versions, relevant_variables
from torchscale.version import __version__

_GIT_SECONDS = 5.0
"""`git describe` takes milliseconds, but can hang on a network file system; the commit is optional."""


def collect_environment() -> Environment:
    """Host, devices and versions. The launcher replaces ``cores`` (here all physical ones) and sets ``command``."""
    return Environment(
        hostname=platform.node(),
        system=f"{platform.system()} {platform.release()}",
        cpu=cpu_name(),
        cores=psutil.cpu_count(logical=False) or os.cpu_count() or 1,
        memory_bytes=int(psutil.virtual_memory().total),
        versions=collect_versions(),
        devices=collect_devices(),
        cuda_available=torch.cuda.is_available(),
        env=relevant_variables(os.environ),
        git_commit=_git_commit(),
    )


def collect_versions() -> Versions:
    """Versions of everything that can change a figure; CUDA's only where torch can use it."""
    cuda = torch.cuda.is_available()
    cudnn = torch.backends.cudnn.version() if cuda else None  # type: ignore[no-untyped-call]
    return Versions(
        torchscale=__version__,
        python=platform.python_version(),
        torch=str(torch.__version__),
        cuda=torch.version.cuda if cuda else None,
        cudnn=str(cudnn) if cudnn is not None else None,
        nccl=nccl_version() if cuda else None,
        driver=_driver_version() if cuda else None,
        transformers=_installed_version("transformers"),
    )


def collect_devices() -> tuple[DeviceInfo, ...]:
    """Every CUDA device that torch can use, in its order (after CUDA_VISIBLE_DEVICES); without CUDA, those of Apple or
    Intel."""
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
    """Name, UUID, memory, compute capability and NUMA node of the CUDA device with torch's index ``index``."""
    properties = torch.cuda.get_device_properties(index)
    return DeviceInfo(
        kind="cuda",
        index=index,
        name=properties.name,
        uuid=str(properties.uuid) if hasattr(properties, "uuid") else None,
        memory_bytes=int(properties.total_memory),
        compute_capability=f"{properties.major}.{properties.minor}",
        numa_node=_numa_node(properties),
    )


def _numa_node(properties: object) -> int | None:
    """NUMA node of a GPU's PCI slot; ``None`` where the kernel does not report one (it gives -1 on machines of one
    node)."""
    parts = [getattr(properties, f"pci_{part}_id", None) for part in ("domain", "bus", "device")]
    numbers = [part for part in parts if isinstance(part, int)]
    if len(numbers) < len(parts):
        return None  # an older torch
    domain, bus, device = numbers
    try:
        node = int(Path(f"/sys/bus/pci/devices/{domain:04x}:{bus:02x}:{device:02x}.0/numa_node").read_text())
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None


def cpu_name() -> str:
    """Model name of the processor as in ``/proc/cpuinfo``, else as :mod:`platform` reports it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def nccl_version() -> str | None:
    """Version of the NCCL that torch uses; ``None`` for a torch without NCCL."""
    if not torch.distributed.is_nccl_available():
        return None
    version = torch.cuda.nccl.version()  # type: ignore[no-untyped-call]
    return ".".join(map(str, version)) if isinstance(version, tuple) else str(version)


def _driver_version() -> str | None:
    import pynvml  # noqa: PLC0415 - only where there is CUDA

    try:
        pynvml.nvmlInit()
        try:
            return str(pynvml.nvmlSystemGetDriverVersion())
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError:
        return None


def _installed_version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _git_commit() -> str | None:
    """Commit of the working directory, marked ``-dirty`` when files differ from it."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--match="]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_GIT_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None


if __name__ == "__main__":
    sys.stdout.write(collect_environment().model_dump_json() + "\n")
