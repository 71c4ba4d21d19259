"""Strategies that split matrices, layers, experts or sequences over devices."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from torchscale.catalog.model_facts import CONTEXT, EXPERT, PIPELINE, SEQUENCE, TENSOR
from torchscale.config.base import PositiveInt
from torchscale.config.degrees import Degrees
from torchscale.config.strategies.base import Signal, StrategyBase
from torchscale.config.strategies.data_parallel import Sharded

Schedule = Literal["gpipe", "1f1b", "interleaved"]


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
