"""What a config says about measuring the machine itself: collectives, hardware, memory, telemetry."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from torchscale.catalog.links import LINKS
from torchscale.schema.section import Axis, Positive, PositiveSeconds, Section, as_axis
from torchscale.units import parse_bytes

CellKind = Literal["training", "collectives", "hardware", "memory"]
Operation = Literal[
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "broadcast",
    "reduce",
    "send_recv",
    "pairs",
    "barrier",
]
ElementType = Literal["fp64", "fp32", "fp16", "bf16", "int64", "int32", "uint8"]
MatmulType = Literal["fp64", "fp32", "tf32", "fp16", "bf16", "fp8"]
OPERATIONS: tuple[Operation, ...] = Operation.__args__  # type: ignore[attr-defined]

_LARGEST_BYTES = 1 << 40


def _as_bytes(value: Any) -> Any:  # noqa: ANN401 - raw input from YAML
    """``64MiB`` becomes a number; anything that is no text is left for validation to judge."""
    return parse_bytes(value) if isinstance(value, str) else value


ByteCount = Annotated[int, BeforeValidator(_as_bytes), Field(ge=1, le=_LARGEST_BYTES)]
"""A number of bytes, or text such as ``64MiB``."""


class Collectives(Section):
    """Which collectives are timed, over which sizes."""

    operations: Annotated[tuple[Operation, ...], BeforeValidator(as_axis)] = Field(
        OPERATIONS,
        description="all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, reduce, send_recv (a ring), pairs "
        "(every two devices), barrier; measured in one launch.",
    )
    min_bytes: ByteCount = Field(1024, description="Smallest size: 8, 1KiB …")
    max_bytes: ByteCount | None = Field(
        None, description="Largest size; each is twice the one before. Default: 1 GiB on GPUs, 64 MiB on CPUs."
    )
    dtypes: Annotated[tuple[ElementType, ...], BeforeValidator(as_axis)] = Field(
        ("fp32",), description="fp64, fp32, fp16, bf16, int64, int32, uint8; measured in one launch."
    )
    iterations: Positive = Field(20, description="Calls of one timed loop; as many again are timed one by one.")
    warmup: Positive = Field(5, description="Calls before it, for each size.")
    algorithms: Axis[str] | None = Field(
        None, description="NCCL_ALGO: Ring, Tree, NVLS, CollnetDirect …; each is a cell. Default: NCCL chooses."
    )
    protocols: Axis[str] | None = Field(
        None, description="NCCL_PROTO: LL, LL128, Simple; each is a cell. Default: NCCL chooses."
    )

    @model_validator(mode="after")
    def _in_order(self) -> Collectives:
        if self.max_bytes is not None and self.max_bytes < self.min_bytes:
            raise ValueError(f"max_bytes {self.max_bytes} is below min_bytes {self.min_bytes}")
        return self


class Hardware(Section):
    """What is known of the devices, and how their ceilings are measured."""

    link: str | None = Field(
        None,
        description=f"The link between devices, where it is not detected: {', '.join(LINKS)}; "
        "its bandwidth is the ceiling of busbw.",
    )
    link_bytes_per_second: Annotated[float, Field(gt=0)] | None = Field(
        None, description="Its bandwidth instead, per device and direction."
    )
    peak_flops: dict[MatmulType, Annotated[float, Field(gt=0)]] = Field(
        default_factory=dict,
        description="Peak dense FLOP/s of a device per dtype, for MFU: {bf16: 989.0e+12}; default: the catalogue's.",
    )
    matmul_sizes: Annotated[tuple[Positive, ...], BeforeValidator(as_axis)] | None = Field(
        None, description="Square matrices to multiply; default: 1024 to 16384 on GPUs, 256 to 2048 on CPUs."
    )
    matmul_dtypes: Annotated[tuple[MatmulType, ...], BeforeValidator(as_axis)] | None = Field(
        None, description="Default: all that the device computes in."
    )
    seconds: PositiveSeconds = Field(0.5, description="Time spent on each figure.")
    copy_bytes: ByteCount | None = Field(
        None, description="Size of a copy; default: 1 GiB on GPUs, 256 MiB on CPUs, beyond any cache."
    )
    disk_path: str | None = Field(None, description="Directory whose disk is written and read; default: none.")
    disk_bytes: ByteCount = Field(256 << 20, description="Size of the file there.")

    @model_validator(mode="after")
    def _known_link(self) -> Hardware:
        if self.link is not None and self.link not in LINKS:
            raise ValueError(f"link: {self.link!r} is not known; known: {', '.join(LINKS)}; or give its bandwidth")
        return self


class Memory(Section):
    """How memory is measured."""

    limit: ByteCount | None = Field(
        None,
        description="Bytes that a device may take: on CPUs of tensors, on GPUs of the allocator; above it is out of "
        "memory.",
    )


class Telemetry(Section):
    """What is read beside every launch."""

    enabled: bool = Field(True, description="Whether GPUs, processor and network are watched, by a process of its own.")
    interval_seconds: Annotated[float, Field(ge=0.1, le=60)] = Field(1.0, description="Time between two readings.")
