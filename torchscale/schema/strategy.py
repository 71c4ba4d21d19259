"""Ways of spreading a model over devices, as a config names them: options, degrees, and what each lets one measure."""

from __future__ import annotations

from enum import Enum
from functools import lru_cache
from typing import Annotated, ClassVar, Literal, TypeAlias

from pydantic import BeforeValidator, Field

from torchscale.catalog.models import PIPELINE, SEQUENCE, TENSOR, OptionValue
from torchscale.schema.degrees import Degrees
from torchscale.schema.section import AxisSchema, Positive, Section, as_axis, as_named

Schedule = Literal["gpipe", "1f1b", "interleaved"]
CommHook = Literal["none", "fp16", "bf16", "powersgd"]
ReduceType = Literal["fp32", "bf16", "fp16"]


class Signal(str, Enum):
    """What the diagnosis can learn while a strategy trains, beside the phases of a step."""

    EXPOSED_SYNC = "exposed_sync"
    """The wait for the exchange of gradients, apart from the backward pass."""
    OWN_COMPUTE = "own_compute"
    """A rank's forward and backward pass without any exchange."""
    BUCKETS = "buckets"
    """Sizes of the pieces in which gradients are sent, and the link alone with them."""
    BUBBLE = "bubble"
    """Time in which a pipeline stage has nothing to compute."""


class StrategyBase(Section):
    """What all strategies have. A strategy on one device is the plain model, unless it says otherwise.

    Attributes:
        signals: What the diagnosis can learn while it trains on several devices.
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
        """Of one device."""
        if world_size > 1:
            raise ValueError(f"strategy none runs on one device, not {world_size}")
        return Degrees(1)


class Ddp(StrategyBase):
    """DistributedDataParallel: a copy on every device, gradients averaged in buckets."""

    name: Literal["ddp"] = "ddp"
    bucket_cap_mb: Annotated[float, Field(gt=0)] = Field(25, description="Size of a bucket of gradients, in MiB.")
    static_graph: bool = Field(False, description="Promise that every step uses the same parameters.")
    gradient_as_bucket_view: bool = Field(False, description="Gradients live in the buckets: no copy.")
    comm_hook: CommHook = Field("none", description="Compress gradients when sent: fp16, bf16 or powersgd (lossy).")

    signals = frozenset({Signal.EXPOSED_SYNC, Signal.OWN_COMPUTE, Signal.BUCKETS})


class Zero1(StrategyBase):
    """DDP whose optimizer state is split over the devices (ZeroRedundancyOptimizer)."""

    name: Literal["zero1"] = "zero1"

    signals = frozenset({Signal.OWN_COMPUTE})


class _Sharded(StrategyBase):
    """Options of fully sharded data parallelism (FSDP2)."""

    reshard_after_forward: bool = Field(True, description="Free gathered parameters until the backward pass.")
    mixed_precision: bool = Field(
        True, description="With fp16 and bf16, gather parameters in that type; false: autocast as in DDP."
    )
    reduce_dtype: ReduceType = Field("fp32", description="Type in which gradients are reduced under mixed_precision.")
    offload: bool = Field(False, description="Keep sharded parameters and optimizer state in host memory.")


class Fsdp(_Sharded):
    """Parameters, gradients and optimizer state split over devices, gathered layer by layer (FSDP2, HSDP)."""

    name: Literal["fsdp"] = "fsdp"
    shard: Positive | None = Field(
        None, description="Devices that share one copy; fewer than all is HSDP, copies averaging gradients."
    )

    def degrees(self, world_size: int) -> Degrees:
        """Every device shards, or groups of ``shard`` do."""
        return Degrees.filled(world_size, shard=self.shard or world_size)


class Tensor(StrategyBase):
    """Tensor parallelism: the matrices of every layer are split over devices."""

    name: Literal["tensor"] = "tensor"
    degree: Positive | None = Field(None, description="Devices per copy; default: all.")

    @property
    def splits(self) -> tuple[str, ...]:
        """Matrices."""
        return (TENSOR,)

    def degrees(self, world_size: int) -> Degrees:
        """Copies of ``degree`` devices each."""
        return Degrees.filled(world_size, tensor=self.degree or world_size)


class Sequence(StrategyBase):
    """Tensor parallelism with the rest of each layer split along the sequence."""

    name: Literal["sequence"] = "sequence"
    degree: Positive | None = Field(None, description="Devices per copy; default: all.")

    @property
    def splits(self) -> tuple[str, ...]:
        """Matrices, and what lies between them."""
        return (TENSOR, SEQUENCE)

    def degrees(self, world_size: int) -> Degrees:
        """Copies of ``degree`` devices each."""
        return Degrees.filled(world_size, tensor=self.degree or world_size)


class PipelineBase(StrategyBase):
    """Options of a pipeline: devices hold consecutive layers and pass micro-batches on."""

    schedule: Schedule = Field("1f1b", description="gpipe, 1f1b or interleaved.")
    microbatches: Positive | None = Field(None, description="Pieces of a copy's batch; default: two per stage.")
    stages_per_device: Annotated[int, Field(ge=2)] = Field(2, description="Under the interleaved schedule.")

    signals = frozenset({Signal.BUBBLE})

    def stages(self, degrees: Degrees) -> int:
        """Parts that the layers are cut into."""
        return degrees.pipeline * (self.stages_per_device if self.schedule == "interleaved" else 1)

    def pieces(self, degrees: Degrees) -> int:
        """As asked, or two per stage."""
        return 1 if degrees.pipeline == 1 else self.microbatches or 2 * self.stages(degrees)


class Pipeline(PipelineBase):
    """Devices hold consecutive layers and pass micro-batches on."""

    name: Literal["pipeline"] = "pipeline"
    degree: Positive | None = Field(None, description="Devices per copy; default: all.")

    @property
    def splits(self) -> tuple[str, ...]:
        """Layers."""
        return (PIPELINE,)

    def degrees(self, world_size: int) -> Degrees:
        """Copies of ``degree`` devices each."""
        return Degrees.filled(world_size, pipeline=self.degree or world_size)


class Model(PipelineBase):
    """Layers split over devices, a copy's whole batch passing through at once: one device works at a time."""

    name: Literal["model"] = "model"
    schedule: Literal["gpipe"] = Field("gpipe", description="The only one that takes a single micro-batch.")
    microbatches: Literal[1] = Field(1, description="One: the batch is not cut.")

    @property
    def splits(self) -> tuple[str, ...]:
        """Layers."""
        return (PIPELINE,)

    def degrees(self, world_size: int) -> Degrees:
        """Every device has its layers."""
        return Degrees(world_size, pipeline=world_size)


class Hybrid(_Sharded, PipelineBase):
    """Any product of degrees on one device mesh."""

    name: Literal["hybrid"] = "hybrid"
    data: Positive | None = Field(None, description="Copies (DDP, or HSDP's with shard); default: what is left.")
    shard: Positive = Field(1, description="Devices that share one copy's parameters (FSDP2).")
    tensor: Positive = Field(1, description="Devices that share every layer's matrices.")
    sequence: bool = Field(False, description="Split the rest of each layer along the sequence, with tensor.")
    pipeline: Positive = Field(1, description="Devices that hold different layers.")

    @property
    def splits(self) -> tuple[str, ...]:
        """As its degrees say."""
        matrices = () if self.tensor == 1 else (TENSOR, SEQUENCE) if self.sequence else (TENSOR,)
        return (*matrices, *([] if self.pipeline == 1 else [PIPELINE]))

    def degrees(self, world_size: int) -> Degrees:
        """The product of all degrees must be ``world_size``."""
        parts = {"shard": self.shard, "tensor": self.tensor, "pipeline": self.pipeline}
        if self.data is None:
            return Degrees.filled(world_size, **parts)
        return Degrees(world_size, replicate=self.data, **parts)


_AnyStrategy: TypeAlias = Annotated[
    NoStrategy | Ddp | Zero1 | Fsdp | Tensor | Sequence | Pipeline | Model | Hybrid, Field(discriminator="name")
]

Strategy = Annotated[_AnyStrategy, BeforeValidator(as_named)]
"""Any of them; text is short for one without options."""

STRATEGIES: dict[str, type[StrategyBase]] = {
    kind.model_fields["name"].default: kind
    for kind in (NoStrategy, Ddp, Zero1, Fsdp, Tensor, Sequence, Pipeline, Model, Hybrid)
}
"""Every strategy by name."""

StrategyAxis = Annotated[
    tuple[_AnyStrategy, ...],
    BeforeValidator(as_axis),
    BeforeValidator(as_named),
    AxisSchema({"enum": list(STRATEGIES)}),
]
"""One strategy or a list of them."""


def is_sequence_parallel(strategy: StrategyBase) -> bool:
    """Whether what lies between the split matrices is split along the sequence."""
    return isinstance(strategy, Sequence) or (isinstance(strategy, Hybrid) and strategy.sequence)


def strategy_options(strategy: StrategyBase) -> dict[str, OptionValue]:
    """The options that differ from their defaults."""
    options: dict[str, OptionValue] = strategy.model_dump(mode="json", exclude_defaults=True, exclude={"name"})
    return options


@lru_cache(maxsize=1024)
def strategy_label(strategy: StrategyBase) -> str:
    """``fsdp``, or ``hybrid data=2 tensor=2`` with the options that differ from their defaults."""
    words = [f"{key}={str(value).lower()}" for key, value in strategy_options(strategy).items()]
    return " ".join([strategy.name, *words])
