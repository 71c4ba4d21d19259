"""The ceilings of devices: the cell, and what each rank measured in it."""

from __future__ import annotations

from functools import cached_property
from typing import Literal

from pydantic import Field

from torchscale.config.choices import DeviceRequest, MatmulType
from torchscale.schema.base import (
    SCHEMA_VERSION,
    Count,
    Frozen,
    NotNegative,
    PositiveCount,
    PositiveSeconds,
    Share,
)
from torchscale.schema.ident import content_hash
from torchscale.schema.launch.rank import HostLoad
from torchscale.schema.node.environment import RankIdentity

CopyKind = Literal["device", "host_to_device", "device_to_host", "device_to_device"]


class HardwareCell(Frozen):
    """Matrix products, copies and a disk, on every device of one world size at once."""

    kind: Literal["hardware"] = "hardware"
    matmul_sizes: tuple[PositiveCount, ...]
    matmul_dtypes: tuple[MatmulType, ...]
    seconds: NotNegative
    copy_bytes: Count
    disk_path: str | None = None
    disk_bytes: Count
    world_size: PositiveCount
    device: DeviceRequest

    @cached_property
    def id(self) -> str:
        """``hardware-n8-1a2b3c4d``."""
        return f"hardware-n{self.world_size}-{content_hash(self.model_dump(mode='json'))}"

    @property
    def title(self) -> str:
        """Short name for tables and live lines."""
        return "hardware ceilings"

    @property
    def settings(self) -> tuple[str, ...]:
        """What sets it apart, in words."""
        return self.matmul_dtypes

    @property
    def deterministic(self) -> bool:
        """Ceilings are those of the fastest algorithms."""
        return False


class MatmulSample(Frozen):
    """Products of an m×k and a k×n matrix of random numbers; seconds of each.

    ``warm_seconds`` is of products that follow each other, ``cold_seconds`` of some with the caches
    emptied before.
    """

    dtype: MatmulType
    m: PositiveCount
    n: PositiveCount
    k: PositiveCount
    warm_seconds: tuple[PositiveSeconds, ...] = Field(min_length=1)
    cold_seconds: tuple[PositiveSeconds, ...] = ()


class CopySample(Frozen):
    """Copies of so many bytes; seconds of each. ``pinned`` tells host memory that the device reads
    by itself; ``peer`` is the other device's index, where there is one."""

    kind: CopyKind
    payload_bytes: Count
    seconds: tuple[PositiveSeconds, ...] = Field(min_length=1)
    pinned: bool | None = None
    peer: Count | None = None


class DiskSample(Frozen):
    """A file written (until the disk has it) and read back.

    ``resident_share`` is the share of its pages in memory when reading began; ``None`` where the
    kernel does not say.
    """

    path: str
    payload_bytes: Count
    write_seconds: PositiveSeconds
    read_seconds: PositiveSeconds
    resident_share: Share | None


class HardwareRank(RankIdentity):
    """What one rank measured of its device: ``rank-R.json``. ``unsupported`` names dtypes that it
    cannot multiply, and GPUs that it cannot copy to. ``host_load`` is of products and copies
    together, without the disk; ``None`` in records of versions that did not read it."""

    kind: Literal["hardware"] = "hardware"
    schema_version: Count = SCHEMA_VERSION
    matmuls: tuple[MatmulSample, ...]
    copies: tuple[CopySample, ...]
    disk: DiskSample | None = None
    unsupported: dict[str, str] = Field(default_factory=dict)
    host_load: HostLoad | None = None


class HardwareResult(Frozen):
    """What all ranks measured of their devices: records of those that left one, by rank."""

    kind: Literal["hardware"] = "hardware"
    ranks: tuple[HardwareRank, ...] = ()
