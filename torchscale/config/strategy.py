"""Parallelism strategies as a config names them: the choice among all of them, any product of
degrees, and their labels."""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Literal, TypeAlias

from pydantic import BeforeValidator, Field

from torchscale.catalog.model_facts import CONTEXT, EXPERT, PIPELINE, SEQUENCE, TENSOR, OptionValue
from torchscale.config.base import AxisSchema, PositiveInt, as_axis, as_named
from torchscale.config.degrees import Degrees
from torchscale.config.strategies.base import Signal, StrategyBase
from torchscale.config.strategies.data_parallel import Ddp, Fsdp, NoStrategy, Sharded, Zero1
from torchscale.config.strategies.model_parallel import (
    ContextParallel,
    ExpertParallel,
    ModelParallel,
    PipelineBase,
    PipelineParallel,
    SequenceParallel,
    TensorParallel,
)


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
