"""Where something ran: host, devices, versions. Variables that may carry secrets are redacted
before they get here."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from torchscale.config.choices import DeviceKind
from torchscale.schema.base import (
    Count,
    Frozen,
    Integer,
    Name,
)


class DeviceInfo(Frozen):
    """One device as a rank sees it. ``index`` is the GPU's index, or the first core of a CPU rank;
    ``numa_node`` is ``None`` where the system does not say."""

    kind: DeviceKind
    index: Count
    name: str
    uuid: Name | None = None
    memory_bytes: Count | None = None
    compute_capability: str | None = None
    numa_node: Integer | None = None


def bare_uuid(uuid: str) -> str:
    """A GPU's UUID without NVML's prefix: torch gives it without."""
    return uuid.removeprefix("GPU-")


class Versions(Frozen):
    """Versions of everything that can change a figure; ``None`` for what is not there."""

    torchscale: str
    python: Name
    torch: Name
    cuda: str | None = None
    rocm: str | None = None
    cudnn: str | None = None
    nccl: str | None = None
    driver: str | None = None
    transformers: str | None = None
    torchao: str | None = None


class HostAllocator(Frozen):
    """What serves the host's memory in a rank.

    Attributes:
        name: ``glibc 2.36``, or the file name of the library that took its place.
        setting: Setting of glibc. ``keep``: torchscale made it keep freed memory; ``system``: its
            defaults; ``environment``: as variables say (MALLOC_*, GLIBC_TUNABLES). ``None`` for
            other allocators.
    """

    name: str
    setting: Literal["keep", "system", "environment"] | None = None


class RankSocket(Frozen):
    """Connections of a rank to others, of one interface and family of addresses. ``interface`` is
    ``None`` where no interface has the address; ``within_host``: the other end is on the same
    machine."""

    interface: Name | None
    family: Literal["IPv4", "IPv6"]
    within_host: bool


class RankIdentity(Frozen):
    """Who a rank is and where it ran: the head of every rank's record. ``node_rank`` is the node's
    place in the launch, from 0. ``allocator`` is ``None`` in records of versions that did not note
    it. ``sockets`` are those of gloo, where it moves the data."""

    rank: Count
    local_rank: Count
    node_rank: Count = 0
    world_size: Count
    pid: Count
    hostname: Name
    device: DeviceInfo
    backend: str | None
    threads: Count
    cpus: tuple[Count, ...]
    versions: Versions
    allocator: HostAllocator | None = None
    sockets: tuple[RankSocket, ...] = ()


class Environment(Frozen):
    """The machine of a sweep.

    Attributes:
        hostname: Hostname of the machine.
        system: Kernel name and release.
        cpu: Processor name.
        cores: Usable physical cores.
        memory_bytes: Memory of the host.
        versions: Software.
        devices: What torch can use besides the CPU.
        cuda_available: Whether torch can compute on CUDA here.
        env: Variables that matter (NCCL_*, CUDA_*, OMP_*, TORCH_*, GLOO_* …), secrets redacted.
        git_commit: Commit of the directory the command was started in; ``None`` outside a checkout.
        git_branch: The branch that is checked out there; of a commit checked out by CI, the branch
            that CI names; ``None`` where neither is known.
        command: The full command line, secrets redacted.
    """

    hostname: Name
    system: str
    cpu: str
    cores: Count
    memory_bytes: Count | None = None
    versions: Versions
    devices: tuple[DeviceInfo, ...] = ()
    cuda_available: bool = False
    env: dict[str, str] = Field(default_factory=dict)
    git_commit: str | None = None
    git_branch: str | None = None
    command: tuple[str, ...] = ()
