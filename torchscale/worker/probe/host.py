"""Facts about the host: names, limits, memory, network devices, disk, Nsight Systems. Does not
import torch."""

from __future__ import annotations

import os
import re
import resource
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from time import perf_counter

import psutil

from torchscale.schema.base import MOST
from torchscale.schema.node.probe import DiskFacts, HostFacts, NsysFacts, RdmaPort
from torchscale.util.control_groups import read_text
from torchscale.util.nsight import importer_problem, installation_of

_WRITE_BYTES = 64 * 2**20
"""Written to measure a disk: a slow one at 10 MB/s takes 6 s. It separates slow from fast disks; it
does not rate fast ones."""
_WRITE_CHUNK = 4 * 2**20
"""Large enough that system calls do not limit a fast disk."""
_NSYS_SECONDS = 20.0
"""`nsys --version` starts a large program, which on a cold network file system takes seconds."""


def host_facts(
    infiniband: Path = Path("/sys/class/infiniband"),
    nodes: Path = Path("/sys/devices/system/node"),
    pci: Path = Path("/sys/bus/pci/devices"),
    shm: Path = Path("/dev/shm"),  # noqa: S108 - only its size is read
) -> HostFacts:
    """Host name and addresses, cores, memory, NUMA nodes, NVIDIA PCI devices, limits, RDMA ports.
    The paths can be replaced for tests."""
    hostname = socket.gethostname()
    return HostFacts(
        hostname=hostname,
        addresses=_addresses(hostname),
        cores=_usable_cores(),
        memory_bytes=int(psutil.virtual_memory().total),
        numa_nodes=len(list(nodes.glob("node[0-9]*"))) or None,
        nvidia_devices=nvidia_devices(pci),
        shm_bytes=min(shutil.disk_usage(shm).total, MOST) if shm.is_dir() else None,
        open_files_limit=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        memory_lock_limit=resource.getrlimit(resource.RLIMIT_MEMLOCK)[0],
        rdma_ports=tuple(rdma_ports(infiniband)),
    )


def rdma_ports(infiniband: Path) -> list[RdmaPort]:
    """Ports of InfiniBand and RoCE devices with state, rate and link layer, as the kernel reports
    them."""
    return [
        RdmaPort(
            device=port.parent.parent.name,
            port=int(port.name),
            state=read_text(port / "state").partition(":")[2].strip() or "unknown",
            rate=read_text(port / "rate") or "unknown",
            link_layer=read_text(port / "link_layer") or "unknown",
        )
        for port in sorted(infiniband.glob("*/ports/[0-9]*"))
    ]


def nvidia_devices(pci: Path) -> int | None:
    """Number of NVIDIA display controllers on the PCI bus, with or without a driver; ``None`` where
    there is no PCI bus."""
    if not pci.is_dir():
        return None
    return sum(
        read_text(device / "vendor") == "0x10de" and read_text(device / "class").startswith("0x03")
        for device in pci.iterdir()
    )


def disk_facts(directory: Path) -> DiskFacts:
    """Free space, and the speed of a 64 MiB write that is forced to the disk, in the nearest
    existing directory."""
    existing = directory.absolute()
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    if not existing.is_dir():
        return DiskFacts(path=str(existing), error="not a directory")
    try:
        free = shutil.disk_usage(existing).free
        rate = _write_speed(existing) if free > 4 * _WRITE_BYTES else None  # do not fill the disk
        return DiskFacts(
            path=str(existing),
            free_bytes=min(free, MOST),
            files_free=_files_free(existing),
            write_bytes_per_second=rate,
        )
    except OSError as error:
        return DiskFacts(path=str(existing), error=error.strerror or str(error))


def nsys_facts() -> NsysFacts:
    """Path and version of nsys, and whether its importer, which writes reports, can run."""
    path = shutil.which("nsys")
    if path is None:
        return NsysFacts()
    try:
        done = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=_NSYS_SECONDS, check=False
        )
        version = re.search(r"\d+\.\d+(\.\d+)*", done.stdout)
    except (OSError, subprocess.TimeoutExpired):
        version = None
    facts = NsysFacts(path=path, version=version[0] if version else None)
    installation = installation_of(Path(path))
    if installation is None:
        return facts
    problem = importer_problem(installation)
    return facts.model_copy(update={"can_export": problem is None, "problem": problem or ""})


def _files_free(directory: Path) -> int | None:
    """Free inodes; ``None`` for file systems that make them as needed, which report no total."""
    system = os.statvfs(directory)
    if system.f_files:
        return min(system.f_favail, MOST)
    return None


def _usable_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _write_speed(directory: Path) -> float:
    chunk = os.urandom(_WRITE_CHUNK)
    with tempfile.NamedTemporaryFile(dir=directory, prefix=".torchscale-disk-") as file:
        started = perf_counter()
        for _ in range(_WRITE_BYTES // _WRITE_CHUNK):
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())
        return _WRITE_BYTES / (perf_counter() - started)


def _addresses(hostname: str) -> tuple[str, ...] | None:
    try:
        entries = socket.getaddrinfo(hostname, None, proto=socket.IPPROTO_TCP)
    except OSError:
        return None
    return tuple(dict.fromkeys(str(entry[4][0]) for entry in entries))
