"""Parallelism strategies as a config names them: options, degrees, and the signals that each
provides."""

from __future__ import annotations

from enum import Enum
from functools import lru_cache
from typing import Annotated, ClassVar, Literal, TypeAlias

from pydantic import BeforeValidator, Field

from torchscale.catalog.model_facts import CONTEXT, EXPERT, PIPELINE, SEQUENCE, TENSOR, OptionValue
from torchscale.config.base import AxisSchema, ConfigSection, PositiveInt, as_axis, as_named
from torchscale.config.degrees import Degrees

Schedule = Literal["gpipe", "1f1b", "interleaved"]
CommHook = Literal["none", "fp16", "bf16", "powersgd", "noop"]
ReduceType = Literal["fp32", "bf16", "fp16"]


class Signal(str, Enum):
    """Signals that a strategy provides to the diagnosis, besides the phases of a step."""

    EXPOSED_SYNC = "exposed_sync"
    """Gradient sync that does not overlap with the backward pass."""
    WAITS = "waits"
    """Waits for collectives within the passes and the optimizer's step; on CPUs alone."""
    UNSYNCHRONIZED_COMPUTE = "unsynchronized_compute"
    """A rank's forward and backward pass without gradient sync."""
    BUCKETS = "buckets"
    """Sizes of the gradient buckets, and the time of their collectives without compute."""
    BUBBLE = "bubble"
    """Time in which a pipeline stage is idle."""


class StrategyBase(ConfigSection):
    """Base of all strategies. A strategy on one device is the plain model, unless stated otherwise.

    Attributes:
        signals: Signals for the diagnosis when training on several devices.
    """

    signals: ClassVar[frozenset[Signal]] = frozenset()

    name: str

    @property
    def splits(self) -> tuple[str, ...]:
        """Ways in which it splits a model's layers, as the catalog of models names them."""
        return ()

    def degrees(self, world_size: int) -> Degrees:
        """How ``world_size`` devices share the work.

        Raises:
            ValueError: they cannot; the text prints every degree.
        """
        return Degrees.filled(world_size)

    def pieces(self, degrees: Degrees) -> int:
        """Micro-batches that the strategy itself cuts a copy's batch into."""
        del degrees
        return 1


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


class TensorParallel(StrategyBase):
    """Tensor parallelism: the matrices of every layer are split over devices."""

    name: Literal["tensor"] = "tensor"

    signals = frozenset({Signal.WAITS})

    degree: PositiveInt | None = Field(None, description="Devices per copy; default: all.")

    @property
    def splits(self) -> tuple[str, ...]:
        """Weight matrices are split; the list of layers is not."""
        return (TENSOR,)

    def degrees(self, world_size: int) -> Degrees:
        """Copies of ``degree`` devices each."""
        return Degrees.filled(world_size, tensor=self.degree or world_size)


class SequenceParallel(StrategyBase):
    """Tensor parallelism with the rest of each layer split along the sequence."""

    name: Literal["sequence"] = "sequence"

    signals = frozenset({Signal.WAITS})

    degree: PositiveInt | None = Field(None, description="Devices per copy; default: all.")

    @property
    def splits(self) -> tuple[str, ...]:
        """Splits weight matrices, and the activations between them."""
        return (TENSOR, SEQUENCE)

    def degrees(self, world_size: int) -> Degrees:
        """Copies of ``degree`` devices each."""
        return Degrees.filled(world_size, tensor=self.degree or world_size)


class PipelineBase(StrategyBase):
    """Options of a pipeline: devices hold consecutive layers and pass micro-batches on."""

    schedule: Schedule = Field("1f1b", description="gpipe, 1f1b or interleaved.")
    microbatches: PositiveInt | None = Field(
        None, description="Micro-batches per model copy; default: two per stage."
    )
    stages_per_device: Annotated[int, Field(ge=2)] = Field(
        2, description="Stages per device with the interleaved schedule."
    )

    signals = frozenset({Signal.BUBBLE})

    def stages(self, degrees: Degrees) -> int:
        """The number of stages that the layers are split into."""
        if self.schedule == "interleaved":
            return degrees.pipeline * self.stages_per_device
        return degrees.pipeline

    def pieces(self, degrees: Degrees) -> int:
        """Micro-batches: as configured, or two per stage."""
        if degrees.pipeline == 1:
            return 1
        return self.microbatches or 2 * self.stages(degrees)


class PipelineParallel(PipelineBase):
    """Pipeline parallelism: devices hold consecutive layers and pass micro-batches on."""

    name: Literal["pipeline"] = "pipeline"
    degree: PositiveInt | None = Field(None, description="Devices per copy; default: all.")

    @property
    def splits(self) -> tuple[str, ...]:
        """Splits the list of layers."""
        return (PIPELINE,)

    def degrees(self, world_size: int) -> Degrees:
        """Copies of ``degree`` devices each."""
        return Degrees.filled(world_size, pipeline=self.degree or world_size)


class ModelParallel(PipelineBase):
    """Layers split over devices, a copy's whole batch passing through at once: one device works at
    a time."""

    name: Literal["model"] = "model"
    schedule: Literal["gpipe"] = Field(
        "gpipe", description="The only schedule that allows a single micro-batch."
    )
    microbatches: Literal[1] = Field(1, description="Always 1: the batch is not split.")

    @property
    def splits(self) -> tuple[str, ...]:
        """Splits the list of layers."""
        return (PIPELINE,)

    def degrees(self, world_size: int) -> Degrees:
        """One pipeline stage per device."""
        return Degrees(world_size, pipeline=world_size)


class ExpertParallel(Sharded):
    """Expert parallelism: the experts of every layer are spread over devices, which send each other
    the tokens."""

    name: Literal["ep"] = "ep"

    signals = frozenset({Signal.WAITS})

    degree: PositiveInt | None = Field(
        None, description="Devices that share the experts of a layer; default: all."
    )
    dense: Literal["ddp", "fsdp"] = Field(
        "ddp",
        description="All other parameters: a copy on every device, or sharded over all (FSDP2). "
        "Devices beyond degree hold copies of the experts, or shards of them.",
    )

    @property
    def splits(self) -> tuple[str, ...]:
        """Spreads experts."""
        return (EXPERT,)

    def degrees(self, world_size: int) -> Degrees:
        """Groups of ``degree`` devices: copies of each other, or shards."""
        expert = self.degree or world_size
        if self.dense == "ddp":
            return Degrees.filled(world_size, expert=expert)
        return Degrees.filled(world_size, expert=expert, shard=max(1, world_size // expert))


class ContextParallel(Sharded):
    """Context parallelism: the tokens of every sample are split over devices, which give each other
    the keys and values of attention."""

    name: Literal["cp"] = "cp"

    signals = frozenset({Signal.WAITS})

    degree: PositiveInt | None = Field(
        None, description="Devices that share a sequence; default: all."
    )
    parameters: Literal["ddp", "fsdp"] = Field(
        "ddp", description="A copy on every device, or sharded over all of them (FSDP2)."
    )

    @property
    def splits(self) -> tuple[str, ...]:
        """Splits sequences."""
        return (CONTEXT,)

    def degrees(self, world_size: int) -> Degrees:
        """Groups of ``degree`` devices: copies of each other, or shards."""
        context = self.degree or world_size
        if self.parameters == "ddp":
            return Degrees.filled(world_size, context=context)
        return Degrees.filled(world_size, context=context, shard=max(1, world_size // context))


class Hybrid(Sharded, PipelineBase):
    """Any product of degrees on one device mesh."""

    name: Literal["hybrid"] = "hybrid"

    signals = frozenset({Signal.WAITS, Signal.BUBBLE})

    data: PositiveInt | None = Field(
        None, description="Model copies (DDP; HSDP with shard); default: the remaining devices."
    )
    shard: PositiveInt = Field(1, description="Devices that share one copy's parameters (FSDP2).")
    tensor: PositiveInt = Field(1, description="Devices that share every layer's matrices.")
    sequence: bool = Field(
        False, description="Split the rest of each layer along the sequence, with tensor."
    )
    pipeline: PositiveInt = Field(1, description="Devices that hold different layers.")
    ep: PositiveInt = Field(
        1, description="Devices that share the experts of every layer, each with its own samples."
    )
    cp: PositiveInt = Field(
        1, description="Devices that share every sequence, each with a part of its tokens."
    )

    @property
    def splits(self) -> tuple[str, ...]:
        """Splits matrices, layers, experts and sequences where the degrees are above 1."""
        splits = []
        if self.tensor > 1:
            splits.append(TENSOR)
            if self.sequence:
                splits.append(SEQUENCE)
        if self.pipeline > 1:
            splits.append(PIPELINE)
        if self.ep > 1:
            splits.append(EXPERT)
        if self.cp > 1:
            splits.append(CONTEXT)
        return tuple(splits)

    def degrees(self, world_size: int) -> Degrees:
        """The product of all degrees must be ``world_size``."""
        parts = {
            "shard": self.shard,
            "tensor": self.tensor,
            "pipeline": self.pipeline,
            "expert": self.ep,
            "context": self.cp,
        }
        if self.data is None:
            return Degrees.filled(world_size, **parts)
        return Degrees(world_size, replicate=self.data, **parts)


class OwnStrategy(StrategyBase):
    """Whatever a user's script does with its devices; no config names it."""

    name: Literal["own"] = "own"


_AnyStrategy: TypeAlias = Annotated[
    NoStrategy
    | Ddp
    | Zero1
    | Fsdp
    | TensorParallel
    | SequenceParallel
    | PipelineParallel
    | ModelParallel
    | ExpertParallel
    | ContextParallel
    | Hybrid,
    Field(discriminator="name"),
]

Strategy = Annotated[
    Annotated[_AnyStrategy | OwnStrategy, Field(discriminator="name")], BeforeValidator(as_named)
]
"""The strategy of a cell; plain text is short for one without options."""

STRATEGIES: dict[str, type[StrategyBase]] = {
    kind.model_fields["name"].default: kind
    for kind in (
        NoStrategy,
        Ddp,
        Zero1,
        Fsdp,
        TensorParallel,
        SequenceParallel,
        PipelineParallel,
        ModelParallel,
        ExpertParallel,
        ContextParallel,
        Hybrid,
    )
}
"""Every strategy by name."""

StrategyAxis = Annotated[
    tuple[_AnyStrategy, ...],
    BeforeValidator(as_axis),
    BeforeValidator(as_named),
    AxisSchema({"enum": list(STRATEGIES)}),
]
"""One strategy or a list of them."""


def sharding(strategy: StrategyBase, degrees: Degrees) -> Sharded | None:
    """The options of FSDP2, where a strategy uses it with these degrees."""
    if isinstance(strategy, Fsdp):
        return strategy
    if isinstance(strategy, ExpertParallel) and strategy.dense == "fsdp" and degrees.expert > 1:
        return strategy
    if isinstance(strategy, ContextParallel) and degrees.context > 1:
        return strategy if strategy.parameters == "fsdp" else None
    if isinstance(strategy, Hybrid) and degrees.shard > 1:
        return strategy
    return None


def is_sequence_parallel(strategy: StrategyBase) -> bool:
    """Whether activations between the split matrices are split along the sequence."""
    return isinstance(strategy, SequenceParallel) or (
        isinstance(strategy, Hybrid) and strategy.sequence
    )


def strategy_options(strategy: StrategyBase) -> dict[str, OptionValue]:
    """The options that differ from their defaults."""
    options: dict[str, OptionValue] = strategy.model_dump(
        mode="json", exclude_defaults=True, exclude={"name"}
    )
    return options


@lru_cache(maxsize=1024)
def strategy_label(strategy: StrategyBase) -> str:
    """``fsdp``, or ``hybrid data=2 tensor=2`` with the options that differ from their defaults."""
    words = [f"{key}={str(value).lower()}" for key, value in strategy_options(strategy).items()]
    return " ".join([strategy.name, *words])
