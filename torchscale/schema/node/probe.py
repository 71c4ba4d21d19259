"""Facts about a node, as the probe finds them. ``None`` means not learnt; ``unknown`` says why, by
group."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from torchscale.schema.base import (
    Count,
    EpochSeconds,
    Frozen,
    Integer,
    Name,
    Real,
)

PROBE_GROUPS = ("host", "system", "kernel", "nsys", "disk", "driver", "software")
"""The order in which the probe looks: what may hang or crash comes last."""


class SoftwareFacts(Frozen):
    """Interpreter and torch; ``torch_error`` where the import fails, ``cuda_error`` where CUDA
    cannot be used.

    ``cuda_devices`` is what torch may use: ``CUDA_VISIBLE_DEVICES`` can hide GPUs that the driver
    lists. ``cuda_uuids`` are theirs, in torch's order, which is the one of ``launch.devices``. With
    ROCm, which torch offers under CUDA's names, ``rocm_built`` is its version, ``cuda_built`` is
    ``None``, and ``nccl`` is RCCL's version. ``namesakes`` are installed distributions of others
    that hold a package ``torchscale``, and ``namesake_fixes`` the commands that leave ours alone in
    its place; ``torch_command`` installs a torch that is missing.
    """

    python: Name
    namesakes: tuple[str, ...] | None = None
    namesake_fixes: tuple[str, ...] = ()
    torch_command: str | None = None
    torch: Name | None = None
    torch_error: str | None = None
    cuda_built: str | None = None
    rocm_built: str | None = None
    cuda_available: bool | None = None
    cuda_devices: Count | None = None
    cuda_error: str | None = None
    cuda_uuids: tuple[str, ...] = ()
    nccl: str | None = None


class GpuFacts(Frozen):
    """One GPU as the driver describes it. Bytes, degrees Celsius.

    Attributes:
        index: NVML's, as ``nvidia-smi`` shows it.
        cuda_index: torch's, for ``launch.devices``; ``None`` where torch may not use the GPU or its
            UUID is not known.
        pci_address: ``0000:9b:00.0``, as the kernel's log and ``lspci -D`` write it.
        slices: UUIDs of its MIG slices.
        persistence: Whether the driver stays loaded while nobody uses the GPU.
        compute_mode: ``default``, ``exclusive process`` or ``prohibited``.
        power_limit_watts: What the driver holds the GPU's power below now.
        ecc_uncorrected: Since the driver was loaded.
        ecc_uncorrected_ever: Over the life of the GPU.
        rows_remapped: Rows of memory replaced after uncorrected errors.
        remapping_pending: Rows are replaced at the next reset; until then errors may occur.
        remapping_failed: No spare row was left.
    """

    index: Count
    cuda_index: Count | None = None
    name: str
    uuid: Name | None = None
    pci_address: str | None = None
    slices: tuple[str, ...] | None = None
    persistence: bool | None = None
    compute_mode: str | None = None
    memory_bytes: Count | None = None
    memory_used_bytes: Count | None = None
    ecc_enabled: bool | None = None
    ecc_uncorrected: Count | None = None
    ecc_uncorrected_ever: Count | None = None
    rows_remapped: Count | None = None
    remapping_pending: bool | None = None
    remapping_failed: bool | None = None
    temperature_celsius: Integer | None = None
    power_limit_watts: Real | None = None
    throttle_reasons: tuple[str, ...] | None = None
    foreign_processes: tuple[str, ...] | None = None
    pcie_generation: Count | None = None
    pcie_width: Count | None = None
    pcie_width_max: Count | None = None
    nvlinks_active: Count | None = None


class GpuPairFacts(Frozen):
    """What lies between two GPUs: whether they read each other's memory, whether NVLink joins them
    (through a switch as well), and their nearest common ancestor on PCI Express."""

    first: Count
    second: Count
    p2p: bool | None = None
    nvlink: bool | None = None
    path: str | None = None


class DriverFacts(Frozen):
    """The NVIDIA driver and its GPUs.

    ``error`` where the driver cannot be asked, ``missing`` if that is because there is none;
    ``unreadable`` are GPUs that the driver counts and cannot reach. ``visible_devices`` and
    ``device_order`` are CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER; ``None`` where they are not
    set.
    """

    version: str | None = None
    cuda_version: str | None = None
    error: str | None = None
    missing: bool = False
    unreadable: tuple[str, ...] = ()
    gpus: tuple[GpuFacts, ...] = ()
    pairs: tuple[GpuPairFacts, ...] = ()
    visible_devices: str | None = None
    device_order: str | None = None


class DriverMessage(Frozen):
    """An error of one GPU (``xid``) or NVSwitch (``sxid``) in the kernel's log, as often as it
    came.

    Attributes:
        code: NVIDIA's number of the error.
        pci_address: As the driver writes it: ``0000:65:00``, of switches with the function.
        text: The newest message behind the number.
        first_seconds_ago, last_seconds_ago: When the first and the newest came, before the probe.
    """

    kind: Literal["xid", "sxid"]
    code: Count
    pci_address: str
    text: str
    times: Count
    first_seconds_ago: Real
    last_seconds_ago: Real


class KernelLogFacts(Frozen):
    """Errors of NVIDIA's driver in the kernel's log; ``error`` where it cannot be read.
    ``covered_seconds``: how far back the log reaches."""

    error: str | None = None
    covered_seconds: Real | None = None
    messages: tuple[DriverMessage, ...] = ()


class RdmaPort(Frozen):
    """One port of an InfiniBand or RoCE device."""

    device: Name
    port: Count
    state: str
    rate: str
    link_layer: str


class HostFacts(Frozen):
    """The machine around the GPUs. Limits of −1 are unlimited; memory lock in bytes.

    ``nvidia_devices`` counts NVIDIA display controllers on the PCI bus, whether or not a driver
    serves them.
    """

    hostname: Name
    addresses: tuple[str, ...] | None = None
    cores: Count
    memory_bytes: Count | None = None
    numa_nodes: Count | None = None
    nvidia_devices: Count | None = None
    shm_bytes: Count | None = None
    open_files_limit: Integer | None = None
    memory_lock_limit: Integer | None = None
    rdma_ports: tuple[RdmaPort, ...] = ()


class SystemFacts(Frozen):
    """Limits of the container, and settings of the kernel and of this user.

    Attributes:
        memory_available_bytes: Available memory, without swapping, within the container's limit.
        memory_limit_bytes: Limit of the container or job; ``None`` without one.
        cpu_limit: CPUs that the container or job may use; ``None`` without a limit.
        tasks_limit: Processes and threads, of the user or container; −1 is unlimited.
        load: Processes that ran or waited for a CPU, mean of the last minute.
        temporary: The directory for temporary files; ``temporary_error`` where it cannot be
            written.
        home_error: Why the home directory cannot be written.
        locale_error: Why the locale that the environment names cannot be used.
        time: Seconds since the epoch.
        clock_synchronized: Whether the kernel's clock follows a reference, such as NTP.
        local_ports: Ports for outgoing connections.
        governors: Governors of the CPUs' frequency, with the preference of drivers that have one.
        huge_page_defrag: Whether an allocation waits until huge pages are made: the kernel's word.
        numa_balancing: Whether the kernel moves pages to the node that uses them.
    """

    memory_available_bytes: Count | None = None
    memory_limit_bytes: Count | None = None
    cpu_limit: Real | None = None
    tasks_limit: Integer | None = None
    load: Real | None = None
    temporary: str | None = None
    temporary_free_bytes: Count | None = None
    temporary_error: str | None = None
    home: str | None = None
    home_error: str | None = None
    encoding: str | None = None
    locale_error: str | None = None
    time: EpochSeconds | None = None
    clock_synchronized: bool | None = None
    local_ports: Count | None = None
    governors: tuple[str, ...] = ()
    huge_page_defrag: str | None = None
    numa_balancing: bool | None = None


class DiskFacts(Frozen):
    """The output directory's file system, by a real write. ``files_free``: files that it can still
    hold."""

    path: str
    free_bytes: Count | None = None
    files_free: Count | None = None
    write_bytes_per_second: Real | None = None
    error: str | None = None


class NsysFacts(Frozen):
    """Nsight Systems. ``can_export``, whether it can write reports, is ``None`` where its
    installation does not tell; ``problem`` says why it cannot."""

    path: str | None = None
    version: str | None = None
    can_export: bool | None = None
    problem: str = ""


class CollectiveFacts(Frozen):
    """A real all-reduce over ``world_size`` ranks (with NCCL, one on each usable GPU), and the
    median seconds of one of 1 MiB.

    ``elements`` were compared on each rank; ``wrong_elements`` counts those of all ranks.
    """

    backend: str
    world_size: Count
    elements: Count = 0
    wrong_elements: Count = 0
    seconds: Real | None = None
    error: str | None = None


class NodeFacts(Frozen):
    """All that is known; a group that could not be looked at is ``None`` and named in
    ``unknown``."""

    software: SoftwareFacts | None = None
    driver: DriverFacts | None = None
    host: HostFacts | None = None
    system: SystemFacts | None = None
    kernel: KernelLogFacts | None = None
    disk: DiskFacts | None = None
    nsys: NsysFacts | None = None
    collective: CollectiveFacts | None = None
    unknown: dict[str, str] = Field(default_factory=dict)
