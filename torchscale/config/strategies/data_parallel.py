"""Strategies of whole models on each device, and of models whose parameters are sharded."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from torchscale.config.base import PositiveInt
from torchscale.config.degrees import Degrees
from torchscale.config.strategies.base import Signal, StrategyBase

CommHook = Literal["none", "fp16", "bf16", "powersgd", "noop"]
ReduceType = Literal["fp32", "bf16", "fp16"]


class NoStrategy(StrategyBase):
    """One device, no process group."""

    name: Literal["none"] = "none"

    def degrees(self, world_size: int) -> Degrees:
        """Always a single device."""
        if world_size > 1:
            raise ValueError(f"strategy none runs on one device, not {world_size}")
        return Degrees(1)


class Ddp(StrategyBase):
    """DistributedDataParallel: a copy on every device, gradients averaged in buckets."""

    name: Literal["ddp"] = "ddp"
    bucket_cap_mb: Annotated[float, Field(gt=0)] = Field(
        25, description="Size of a gradient bucket, in MiB."
    )
    static_graph: bool = Field(
        False, description="Declare that every step uses the same parameters."
    )
    gradient_as_bucket_view: bool = Field(
        False, description="Store gradients in the buckets, without a copy."
    )
    comm_hook: CommHook = Field(
        "none",
        description="Compress gradients for communication: fp16, bf16 or powersgd (lossy). noop "
        "sends nothing: no training, but the time of a step without communication.",
    )

    @property
    def exchanges_gradients(self) -> bool:
        """Whether ranks train one model; false for the measurement of a step without
        communication."""
        return self.comm_hook != "noop"

    signals = frozenset({Signal.EXPOSED_SYNC, Signal.UNSYNCHRONIZED_COMPUTE, Signal.BUCKETS})


class Zero1(StrategyBase):
    """DDP whose optimizer state is split over the devices (ZeroRedundancyOptimizer)."""

    name: Literal["zero1"] = "zero1"

    signals = frozenset({Signal.WAITS, Signal.UNSYNCHRONIZED_COMPUTE})


class Sharded(StrategyBase):
    """Options of fully sharded data parallelism (FSDP2)."""

    reshard_after_forward: bool = Field(
        True, description="Free gathered parameters until the backward pass."
    )
    mixed_precision: bool = Field(
        True,
        description="With fp16 and bf16, gather parameters in that dtype; false: autocast as in "
        "DDP.",
    )
    reduce_dtype: ReduceType = Field(
        "fp32", description="Dtype of the gradient reduction with mixed_precision."
    )
    offload: bool = Field(
        False, description="Keep sharded parameters and optimizer state in host memory."
    )


class Fsdp(Sharded):
    """Parameters, gradients and optimizer state split over devices, gathered layer by layer (FSDP2,
    HSDP)."""

    name: Literal["fsdp"] = "fsdp"

    signals = frozenset({Signal.WAITS})

    shard: PositiveInt | None = Field(
        None,
        description="Devices that share one copy; fewer than all is HSDP, copies averaging "
        "gradients.",
    )

    def degrees(self, world_size: int) -> Degrees:
        """Every device shards, or groups of ``shard`` do."""
        return Degrees.filled(world_size, shard=self.shard or world_size)
