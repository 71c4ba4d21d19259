"""Health rules for the host, its limits, the disk and tools."""

from __future__ import annotations

import ipaddress

from torchscale.features.validate.health import fixes
from torchscale.features.validate.health.rule import (
    DISK,
    HOST,
    NSYS,
    HealthRules,
    RuleOutcome,
    failed,
    not_applicable,
    passed,
    unknown,
    warned,
)
from torchscale.schema.node.probe import DiskFacts, HostFacts, NodeFacts, NsysFacts
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

HOST_RULES = HealthRules()


@HOST_RULES.rule("processor", "host", "cores and memory", HOST)
def processor(host: HostFacts) -> RuleOutcome:
    """Reports cores, memory and NUMA nodes; never fails."""
    parts = [f"{host.cores} usable CPUs"]
    if host.memory_bytes:
        parts.append(f"{format_bytes(host.memory_bytes)} memory")
    if host.numa_nodes:
        parts.append(f"{host.numa_nodes} NUMA node{'s' * (host.numa_nodes > 1)}")
    return passed(", ".join(parts))


@HOST_RULES.rule("shared_memory", "host", "/dev/shm", HOST)
def shared_memory(host: HostFacts) -> RuleOutcome:
    """/dev/shm is large enough for NCCL's and data loaders' buffers."""
    size = host.shm_bytes
    if size is None:
        return warned(
            "missing",
            "at least 1 GiB",
            "mount a tmpfs at /dev/shm",
            fixes.SHARED_MEMORY_MISSING,
        )
    if size < MIN_SHM_BYTES:
        advice = "containers: --shm-size=8g or --ipc=host"
        return warned(format_bytes(size), "at least 1 GiB", advice, fixes.SHARED_MEMORY)
    return passed(format_bytes(size))


@HOST_RULES.rule("open_files", "host", "ulimit -n (open files)", HOST)
def open_files(host: HostFacts) -> RuleOutcome:
    """Enough file descriptors for many ranks and loaders."""
    limit = host.open_files_limit
    if limit is None:
        return unknown()
    if limit == UNLIMITED:
        return passed("unlimited")
    if limit >= MIN_OPEN_FILES:
        return passed(f"{limit:,}")
    advice = "ulimit -n 65536, or limits.conf"
    return warned(f"{limit:,}", f"at least {MIN_OPEN_FILES:,}", advice, fixes.OPEN_FILES)


@HOST_RULES.rule("locked_memory", "host", "ulimit -l (locked memory)", HOST)
def locked_memory(host: HostFacts) -> RuleOutcome:
    """Unlimited locked memory, which RDMA needs to register buffers."""
    limit = host.memory_lock_limit
    if limit is None:
        return unknown()
    seen = "unlimited" if limit == UNLIMITED else format_bytes(limit)
    if not host.rdma_ports:
        return not_applicable(f"{seen}; only relevant for InfiniBand or RoCE")
    if limit == UNLIMITED:
        return passed(seen)
    advice = "ulimit -l unlimited, or limits.conf; containers: --ulimit memlock=-1"
    return warned(seen, "unlimited", advice, fixes.LOCKED_MEMORY)


@HOST_RULES.rule("hostname", "host", "host name", HOST)
def hostname(host: HostFacts) -> RuleOutcome:
    """The host name resolves. A loopback address is no problem where a single node is measured."""
    if not host.addresses:
        advice = "make the name resolve (/etc/hosts, DNS): some backends look it up"
        return warned(f"{host.hostname} does not resolve", "an address", advice, fixes.HOSTNAME)
    seen = f"{host.hostname} resolves to {', '.join(host.addresses)}"
    if all(_is_loopback(address) for address in host.addresses):
        return passed(f"{seen} (loopback): enough for one node")
    return passed(seen)


@HOST_RULES.rule("disk", "storage", "output directory", DISK)
def disk(output: DiskFacts) -> RuleOutcome:
    """The output directory has enough space and write bandwidth."""
    if output.error is not None:
        seen = f"{output.path}: {output.error}"
        commands = fixes.choose_directory("10 GiB")
        return failed(seen, "a writable directory", "choose another --output-dir", commands)
    free, speed = output.free_bytes, output.write_bytes_per_second
    if free is None:
        return unknown()
    seen = f"{output.path}: {format_bytes(free)} free"
    if speed is not None:
        seen += f", writes {format_bytes(speed)}/s"
    if free < MIN_FREE_BYTES:
        advice = "free space or choose another --output-dir"
        return failed(seen, "at least 1 GiB free", advice, fixes.choose_directory("10 GiB"))
    if output.files_free is not None and output.files_free < MIN_FREE_FILES:
        seen = f"{seen}, room for {output.files_free:,} more files (inodes)"
        advice = "delete files or choose another --output-dir"
        return warned(seen, f"at least {MIN_FREE_FILES:,}", advice, fixes.FILES)
    if free < COMFORTABLE_FREE_BYTES:
        advice = "step logs and traces may fill the disk"
        return warned(seen, "at least 10 GiB free", advice, fixes.choose_directory("10 GiB"))
    if speed is not None and speed < SLOW_WRITE:
        advice = "slow or shared disk: write results to a local one"
        return warned(seen, "at least 50 MiB/s", advice, fixes.choose_directory("10 GiB"))
    return passed(seen)


@HOST_RULES.rule_on_node("nsys", "tools", "Nsight Systems", NSYS)
def nsys(profiler: NsysFacts, facts: NodeFacts) -> RuleOutcome:
    """Nsight Systems is installed, including the exporter."""
    has_gpu = facts.driver is not None and bool(facts.driver.gpus)
    if profiler.path is None:
        if not has_gpu:
            return not_applicable("not installed; only needed for CUDA")
        advice = "install nsight-systems to use it for profiles"
        return warned("not installed", "nsys on PATH", advice, fixes.NSYS)
    seen = f"{profiler.version or 'unknown version'} at {profiler.path}"
    if profiler.can_export is False:
        advice = "install the full nsight-systems package, with the libraries that it needs"
        seen = (
            f"{seen}; it cannot write reports: "
            f"{profiler.problem or 'its importer is not installed'}"
        )
        return warned(seen, "a complete installation", advice, fixes.NSYS)
    if not profiler.can_export:
        seen += "; whether it can write reports is unknown"
    return passed(seen)


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return False
