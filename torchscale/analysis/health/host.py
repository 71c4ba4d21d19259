"""Health rules for the host, its limits, the disk and tools."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable

from torchscale.analysis.health import fixes
from torchscale.analysis.health.rule import failed, not_applicable, passed, unknown, warned
from torchscale.schema.node.check import Check
from torchscale.schema.node.probe import NodeFacts
from torchscale.util.units import format_bytes

GIB = 2**30
MIN_SHM_BYTES = GIB
"""NCCL's shared-memory transport takes tens of MB per pair of ranks, loader workers a batch each in
flight; Docker's default of 64 MiB is too small for either."""
MIN_OPEN_FILES = 4096
"""The soft limit of 1024 on many systems is reached by 8 ranks with loader workers, each with pipes
and sockets."""
MIN_FREE_BYTES = GIB
"""The records and step logs of a sweep need less than this; without it a run may fail half-way."""
COMFORTABLE_FREE_BYTES = 10 * GIB
"""A trace of 8 ranks takes hundreds of MB; this holds a sweep with profiles."""
MIN_FREE_FILES = 10_000
"""A launch of 8 ranks leaves about 30 files; this holds a sweep of some hundred launches."""
SLOW_WRITE = 50 * 2**20
"""Bytes per second. A local disk writes above 100 MB/s; below this, step logs and traces delay the
ranks."""
UNLIMITED = -1
"""The kernel's RLIM_INFINITY as Python reports it."""


def processor(facts: NodeFacts) -> Check:
    """Reports cores, memory and NUMA nodes; never fails."""
    rule = ("processor", "host", "cores and memory")
    host = facts.host
    if host is None:
        return unknown(rule, facts.unknown.get("host"))
    parts = [f"{host.cores} usable CPUs"]
    if host.memory_bytes:
        parts.append(f"{format_bytes(host.memory_bytes)} memory")
    if host.numa_nodes:
        parts.append(f"{host.numa_nodes} NUMA node{'s' * (host.numa_nodes > 1)}")
    return passed(rule, ", ".join(parts))


def shared_memory(facts: NodeFacts) -> Check:
    """/dev/shm is large enough for NCCL's and data loaders' buffers."""
    rule = ("shared_memory", "host", "/dev/shm")
    if facts.host is None:
        return unknown(rule, facts.unknown.get("host"))
    size = facts.host.shm_bytes
    if size is None:
        return warned(
            rule,
            "missing",
            "at least 1 GiB",
            "mount a tmpfs at /dev/shm",
            fixes.SHARED_MEMORY_MISSING,
        )
    if size < MIN_SHM_BYTES:
        advice = "containers: --shm-size=8g or --ipc=host"
        return warned(rule, format_bytes(size), "at least 1 GiB", advice, fixes.SHARED_MEMORY)
    return passed(rule, format_bytes(size))


def open_files(facts: NodeFacts) -> Check:
    """Enough file descriptors for many ranks and loaders."""
    rule = ("open_files", "host", "ulimit -n (open files)")
    if facts.host is None:
        return unknown(rule, facts.unknown.get("host"))
    limit = facts.host.open_files_limit
    if limit is None:
        return unknown(rule, None)
    if limit == UNLIMITED:
        return passed(rule, "unlimited")
    if limit >= MIN_OPEN_FILES:
        return passed(rule, f"{limit:,}")
    advice = "ulimit -n 65536, or limits.conf"
    return warned(rule, f"{limit:,}", f"at least {MIN_OPEN_FILES:,}", advice, fixes.OPEN_FILES)


def locked_memory(facts: NodeFacts) -> Check:
    """Unlimited locked memory, which RDMA needs to register buffers."""
    rule = ("locked_memory", "host", "ulimit -l (locked memory)")
    if facts.host is None:
        return unknown(rule, facts.unknown.get("host"))
    limit = facts.host.memory_lock_limit
    if limit is None:
        return unknown(rule, None)
    seen = "unlimited" if limit == UNLIMITED else format_bytes(limit)
    if not facts.host.rdma_ports:
        return not_applicable(rule, f"{seen}; only relevant for InfiniBand or RoCE")
    if limit == UNLIMITED:
        return passed(rule, seen)
    advice = "ulimit -l unlimited, or limits.conf; containers: --ulimit memlock=-1"
    return warned(rule, seen, "unlimited", advice, fixes.LOCKED_MEMORY)


def hostname(facts: NodeFacts) -> Check:
    """The host name resolves. A loopback address is no problem where a single node is measured."""
    rule = ("hostname", "host", "host name")
    host = facts.host
    if host is None:
        return unknown(rule, facts.unknown.get("host"))
    if not host.addresses:
        advice = "make the name resolve (/etc/hosts, DNS): some backends look it up"
        return warned(
            rule, f"{host.hostname} does not resolve", "an address", advice, fixes.HOSTNAME
        )
    seen = f"{host.hostname} resolves to {', '.join(host.addresses)}"
    if all(_is_loopback(address) for address in host.addresses):
        return passed(rule, f"{seen} (loopback): enough for one node")
    return passed(rule, seen)


def disk(facts: NodeFacts) -> Check:
    """The output directory has enough space and write bandwidth."""
    rule = ("disk", "storage", "output directory")
    output = facts.disk
    if output is None:
        return unknown(rule, facts.unknown.get("disk"))
    if output.error is not None:
        seen = f"{output.path}: {output.error}"
        commands = fixes.choose_directory("10 GiB")
        return failed(rule, seen, "a writable directory", "choose another --output-dir", commands)
    free, speed = output.free_bytes, output.write_bytes_per_second
    if free is None:
        return unknown(rule, None)
    seen = f"{output.path}: {format_bytes(free)} free"
    if speed is not None:
        seen += f", writes {format_bytes(speed)}/s"
    if free < MIN_FREE_BYTES:
        advice = "free space or choose another --output-dir"
        return failed(rule, seen, "at least 1 GiB free", advice, fixes.choose_directory("10 GiB"))
    if output.files_free is not None and output.files_free < MIN_FREE_FILES:
        seen = f"{seen}, room for {output.files_free:,} more files (inodes)"
        advice = "delete files or choose another --output-dir"
        return warned(rule, seen, f"at least {MIN_FREE_FILES:,}", advice, fixes.FILES)
    if free < COMFORTABLE_FREE_BYTES:
        advice = "step logs and traces may fill the disk"
        return warned(rule, seen, "at least 10 GiB free", advice, fixes.choose_directory("10 GiB"))
    if speed is not None and speed < SLOW_WRITE:
        advice = "slow or shared disk: write results to a local one"
        return warned(rule, seen, "at least 50 MiB/s", advice, fixes.choose_directory("10 GiB"))
    return passed(rule, seen)


def nsys(facts: NodeFacts) -> Check:
    """Nsight Systems is installed, including the exporter."""
    rule = ("nsys", "tools", "Nsight Systems")
    profiler = facts.nsys
    if profiler is None:
        return unknown(rule, facts.unknown.get("nsys"))
    has_gpu = facts.driver is not None and bool(facts.driver.gpus)
    if profiler.path is None:
        if not has_gpu:
            return not_applicable(rule, "not installed; only needed for CUDA")
        advice = "install nsight-systems to use it for profiles"
        return warned(rule, "not installed", "nsys on PATH", advice, fixes.NSYS)
    seen = f"{profiler.version or 'unknown version'} at {profiler.path}"
    if profiler.can_export is False:
        advice = "install the full nsight-systems package, with the libraries that it needs"
        seen = (
            f"{seen}; it cannot write reports: "
            f"{profiler.problem or 'its importer is not installed'}"
        )
        return warned(rule, seen, "a complete installation", advice, fixes.NSYS)
    if not profiler.can_export:
        seen += "; whether it can write reports is unknown"
    return passed(rule, seen)


HOST_RULES: tuple[Callable[[NodeFacts], Check], ...] = (
    processor,
    shared_memory,
    open_files,
    locked_memory,
    hostname,
    disk,
    nsys,
)


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return False
