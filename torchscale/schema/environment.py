"""Where something ran: host, devices, versions. Variables that may carry secrets are redacted before they get here."""

from __future__ import annotations

from pydantic import Field

from torchscale.schema.base import Frozen
from torchscale.schema.cell import DeviceKind


class DeviceInfo(Frozen):
    """One device as a rank sees it. ``index`` is the GPU's index, or the first core of a CPU rank."""

    kind: DeviceKind
    index: int
    name: str
    uuid: str | None = None
    memory_bytes: int | None = None
    compute_capability: str | None = None


class Versions(Frozen):
    """Of everything that can change a figure; ``None`` where it is not there."""

    torchscale: str
    python: str
    torch: str
    cuda: str | None = None
    cudnn: str | None = None
    nccl: str | None = None
    driver: str | None = None
    transformers: str | None = None


class Environment(Frozen):
    """The machine of a sweep.

    Attributes:
        hostname: Of the machine.
        system: Kernel name and release.
        cpu: Processor name.
        cores: Usable physical cores.
        memory_bytes: Of the host.
        versions: Software.
        devices: What torch can use; empty without CUDA.
        cuda_available: Whether torch can compute on CUDA here.
        env: Variables that matter (NCCL_*, CUDA_*, OMP_*, TORCH_*, GLOO_* …), secrets redacted.
        git_commit: Of the directory the command was started in; ``None`` outside a checkout.
        command: The full command line, secrets redacted.
    """

    hostname: str
    system: str
    cpu: str
    cores: int
    memory_bytes: int | None = None
    versions: Versions
    devices: tuple[DeviceInfo, ...] = ()
    cuda_available: bool = False
    env: dict[str, str] = Field(default_factory=dict)
    git_commit: str | None = None
    command: tuple[str, ...] = ()
