"""Config sections of the machine's own measurements: collectives, hardware, memory, checkpoint,
telemetry."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, field_validator, model_validator

from torchscale.catalog.links import LINKS
from torchscale.config.base import Axis, ConfigSection, PositiveInt, PositiveSeconds, as_axis
from torchscale.config.choices import OPERATIONS, ElementType, MatmulType, Operation, PeakType
from torchscale.util.units import parse_bytes

_LARGEST_BYTES = 1 << 40


def _as_bytes(value: Any) -> Any:  # noqa: ANN401 - raw input from YAML
    """``64MiB`` becomes a number; any other value is left to validation."""
    if isinstance(value, str):
        return parse_bytes(value)
    return value


ByteCount = Annotated[int, BeforeValidator(_as_bytes), Field(ge=1, le=_LARGEST_BYTES)]
"""A number of bytes, or text such as ``64MiB``."""


class CollectivesSettings(ConfigSection):
    """Collectives to time, with sizes and dtypes."""

    operations: Annotated[tuple[Operation, ...], BeforeValidator(as_axis)] = Field(
        OPERATIONS,
        description="all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, reduce, "
        "send_recv (a ring), pairs (every two devices), barrier; measured in one launch.",
    )
    min_bytes: ByteCount = Field(1024, description="Smallest message size: 8, 1KiB …")
    max_bytes: ByteCount | None = Field(
        None,
        description="Largest message size; sizes double from the smallest. Default: 1 GiB on "
        "GPUs, 64 MiB on CPUs.",
    )
    dtypes: Annotated[tuple[ElementType, ...], BeforeValidator(as_axis)] = Field(
        ("fp32",),
        description="fp64, fp32, fp16, bf16, int64, int32, uint8; measured in one launch.",
    )
    iterations: PositiveInt = Field(
        20, description="Calls in the timed loop; the same number is then timed one by one."
    )
    warmup: PositiveInt = Field(5, description="Warm-up calls for each size.")
    seconds: Annotated[float, Field(ge=0)] = Field(
        40.0,
        description="Time of a launch: sizes whose calls would take longer are called less often, "
        "at least 5 times. 0: no limit.",
    )
    algorithms: Axis[str] | None = Field(
        None,
        description="NCCL_ALGO: Ring, Tree, NVLS, CollnetDirect …; each is a cell. Default: NCCL "
        "chooses.",
    )
    protocols: Axis[str] | None = Field(
        None, description="NCCL_PROTO: LL, LL128, Simple; each is a cell. Default: NCCL chooses."
    )

    @model_validator(mode="after")
    def _in_order(self) -> CollectivesSettings:
        if self.max_bytes is not None and self.max_bytes < self.min_bytes:
            raise ValueError(f"max_bytes {self.max_bytes} is below min_bytes {self.min_bytes}")
        return self


class HardwareSettings(ConfigSection):
    """Known properties of the devices, and how their peak rates are measured."""

    link: str | None = Field(
        None,
        description=f"Link between devices, if not detected: {', '.join(LINKS)}; its bandwidth is "
        "the upper limit of busbw.",
    )
    link_bytes_per_second: Annotated[float, Field(gt=0)] | None = Field(
        None, description="Bandwidth of the link per device and direction; overrides link."
    )
    peak_flops: dict[PeakType, Annotated[float, Field(gt=0)]] = Field(
        default_factory=dict,
        description="Peak dense FLOP/s of a device per dtype, for MFU: {bf16: 989.0e+12}; "
        "default: from the catalog.",
    )
    matmul_sizes: Annotated[tuple[PositiveInt, ...], BeforeValidator(as_axis)] | None = Field(
        None,
        description="Sizes of square matmuls; default: 1024 to 16384 on GPUs, 256 to 2048 on CPUs.",
    )
    matmul_dtypes: Annotated[tuple[MatmulType, ...], BeforeValidator(as_axis)] | None = Field(
        None, description="Dtypes of the matmuls; default: all that the device supports."
    )
    seconds: PositiveSeconds = Field(0.5, description="Duration of each measurement.")
    copy_bytes: ByteCount | None = Field(
        None,
        description="Size of a copy; default: 1 GiB on GPUs, 256 MiB on CPUs, larger than any "
        "cache.",
    )
    disk_path: str | None = Field(
        None, description="Directory for the disk test; default: no disk test."
    )
    disk_bytes: ByteCount = Field(256 << 20, description="File size of the disk test.")

    @field_validator("link")
    @classmethod
    def _known_link(cls, link: str | None) -> str | None:
        if link is not None and link not in LINKS:
            raise ValueError(
                f"unknown link; known: {', '.join(LINKS)}; or set hardware.link_bytes_per_second"
            )
        return link


class MemorySettings(ConfigSection):
    """Memory limit of the memory cells."""

    limit: ByteCount | None = Field(
        None,
        description="Memory limit per device: tensor bytes on CPUs, allocator bytes on GPUs; a "
        "cell above it is out of memory.",
    )


class CheckpointSettings(ConfigSection):
    """Saving and loading of the training state."""

    path: str | None = Field(
        None,
        description="Directory on the disk or network mount to be judged; all ranks must reach it. "
        "Default: the results directory.",
    )
    repeats: PositiveInt = Field(
        3, description="Saves and loads of each kind within a launch; all are kept."
    )
    asynchronous: bool = Field(
        True, description="Measure asynchronous saves too, and how they slow the steps meanwhile."
    )
    steps: PositiveInt = Field(
        10, description="Steps timed before, and again after, each asynchronous save."
    )
    threads: PositiveInt = Field(
        1, description="Threads with which each rank writes, each a file of its own."
    )


class TelemetrySettings(ConfigSection):
    """Sampling of GPUs, CPUs and network during launches."""

    enabled: bool = Field(True, description="Sample GPUs, CPUs and network in a separate process.")
    interval_seconds: Annotated[float, Field(ge=0.1, le=60)] = Field(
        1.0, description="Time between two samples."
    )
