"""Facts about the host: names, limits, memory, network devices, the disk, Nsight Systems. Knows no torch."""

from __future__ import annotations

import os
import re
import resource
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import psutil

from torchscale.schema.probe import DiskFacts, HostFacts, NsysFacts, RdmaPort

_WRITE_BYTES = 64 * 2**20
_WRITE_CHUNK = 4 * 2**20
_NSYS_SECONDS = 20.0


def host_facts(
    infiniband: Path = Path("/sys/class/infiniband"),
    nodes: Path = Path("/sys/devices/system/node"),
    pci: Path = Path("/sys/bus/pci/devices"),
    shm: Path = Path("/dev/shm"),  # noqa: S108 - its size is what is asked
) -> HostFacts:
    """The machine around the GPUs."""
    hostname = socket.gethostname()
    return HostFacts(
        hostname=hostname,
        addresses=_addresses(hostname),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        memory_bytes=int(psutil.virtual_memory().total),
        numa_nodes=len(list(nodes.glob("node[0-9]*"))) or None,
        nvidia_devices=nvidia_devices(pci),
        shm_bytes=shutil.disk_usage(shm).total if shm.is_dir() else None,
        open_files_limit=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        memory_lock_limit=resource.getrlimit(resource.RLIMIT_MEMLOCK)[0],
        rdma_ports=tuple(rdma_ports(infiniband)),
    )


def rdma_ports(infiniband: Path) -> list[RdmaPort]:
    """Ports of InfiniBand and RoCE devices, as the kernel lists them."""
    return [
        RdmaPort(
            device=port.parent.parent.name,
            port=int(port.name),
            state=_read(port / "state").partition(":")[2].strip() or "unknown",
            rate=_read(port / "rate") or "unknown",
            link_layer=_read(port / "link_layer") or "unknown",
        )
        for port in sorted(infiniband.glob("*/ports/[0-9]*"))
    ]


def nvidia_devices(pci: Path) -> int | None:
    """NVIDIA display controllers on the PCI bus, driver or not; ``None`` where the kernel lists no bus."""
    if not pci.is_dir():
        return None
    return sum(_read(it / "vendor") == "0x10de" and _read(it / "class").startswith("0x03") for it in pci.iterdir())


def disk_facts(directory: Path) -> DiskFacts:
    """Free space, and the speed of a 64 MiB write that is forced to the disk, in the nearest existing directory."""
    place = directory.absolute()
    while not place.exists() and place != place.parent:
        place = place.parent
    if not place.is_dir():
        return DiskFacts(path=str(place), error="not a directory")
    try:
        free = shutil.disk_usage(place).free
        rate = _write_speed(place) if free > 4 * _WRITE_BYTES else None
        return DiskFacts(path=str(place), free_bytes=free, write_bytes_per_second=rate)
    except OSError as error:
        return DiskFacts(path=str(place), error=error.strerror or str(error))


def nsys_facts() -> NsysFacts:
    """Where nsys is, its version, and whether the part that turns recordings into reports came with it."""
    path = shutil.which("nsys")
    if path is None:
        return NsysFacts()
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=_NSYS_SECONDS, check=False)
        found = re.search(r"\d+\.\d+(\.\d+)*", done.stdout)
    except (OSError, subprocess.TimeoutExpired):
        found = None
    return NsysFacts(path=path, version=found[0] if found else None, can_export=has_importer(Path(path).resolve()))


def has_importer(nsys: Path) -> bool | None:
    """Whether the importer lies beside an nsys executable; ``None`` where the layout is not the one that is known.

    Installations hold ``target-linux-x64/nsys``, often ``bin/nsys`` too, and ``host-linux-x64/QdstrmImporter``; partial
    ones lack the latter.
    """
    roots = [parent for parent in nsys.parents[1:3] if any(parent.glob("target-linux*"))]
    return any(roots[0].glob("host-linux*/QdstrmImporter")) if roots else None


def _write_speed(directory: Path) -> float:
    chunk = os.urandom(_WRITE_CHUNK)
    with tempfile.NamedTemporaryFile(dir=directory, prefix=".torchscale-disk-") as file:
        started = time.perf_counter()
        for _ in range(_WRITE_BYTES // _WRITE_CHUNK):
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())
        return _WRITE_BYTES / (time.perf_counter() - started)


def _addresses(hostname: str) -> tuple[str, ...] | None:
    try:
        found = socket.getaddrinfo(hostname, None, proto=socket.IPPROTO_TCP)
    except OSError:
        return None
    return tuple(dict.fromkeys(str(entry[4][0]) for entry in found))


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
