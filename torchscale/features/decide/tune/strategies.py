"""Which strategies ``tune`` compares on a number of devices: all that the grammar of
``parallel.strategy`` can make of their degrees, each once. Pure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

from torchscale.config.degrees import Degrees
from torchscale.config.strategies.data_parallel import Ddp, Fsdp, Sharded, Zero1
from torchscale.config.strategies.model_parallel import (
    ContextParallel,
    ExpertParallel,
    PipelineBase,
    PipelineParallel,
    Schedule,
    SequenceParallel,
    TensorParallel,
)
from torchscale.config.strategy import (
    Hybrid,
    Strategy,
    is_sequence_parallel,
    sharding,
    strategy_label,
    strategy_options,
)

_SCHEDULES: tuple[Schedule, ...] = ("1f1b", "gpipe", "interleaved")
_BY_SIMPLICITY = (
    "none",
    "ddp",
    "zero1",
    "fsdp",
    "ep",
    "cp",
    "tensor",
    "sequence",
    "pipeline",
    "model",
    "hybrid",
)
"""Names from what changes least of a training program to what changes most."""
_IN_TRAITS = frozenset(
    {
        "shard",
        "degree",
        "data",
        "tensor",
        "pipeline",
        "ep",
        "dense",
        "cp",
        "parameters",
        "sequence",
        "schedule",
        "microbatches",
        "reshard_after_forward",
    }
)
"""Options that :attr:`StrategyChoice.traits` has a place for."""


@dataclass(frozen=True)
class StrategyChoice:
    """One strategy on a number of devices.

    Attributes:
        strategy: As a config names it.
        degrees: What it makes of the devices.
    """

    strategy: Strategy
    degrees: Degrees

    @property
    def label(self) -> str:
        """``hybrid shard=2 tensor=2``."""
        return strategy_label(self.strategy)

    @property
    def splits(self) -> int:
        """In how many ways the work is split besides copies: parameters sharded, matrices, layers,
        experts, sequences."""
        degrees = self.degrees
        parts = (degrees.tensor, degrees.pipeline, degrees.expert, degrees.context)
        is_sharded = sharding(self.strategy, degrees) is not None
        return sum(part > 1 for part in parts) + is_sharded

    @property
    def variations(self) -> int:
        """Options that vary how a split works, at another value than their default."""
        return sum(
            (
                not _reshards(self.strategy),
                is_sequence_parallel(self.strategy),
                _schedule(self.strategy, self.degrees) not in ("", "1f1b"),
            )
        )

    @property
    def is_plain(self) -> bool:
        """One split at most, as it is by default: all others are products and variations of
        these."""
        return self.splits <= 1 and self.variations == 0

    @property
    def traits(self) -> tuple[str, ...]:
        """What it has in common with other strategies, in a fixed order: its degrees and the
        options that vary them."""
        degrees, strategy = self.degrees, self.strategy
        is_sharded = sharding(strategy, degrees) is not None
        dense = degrees.beside_context(sharded=is_sharded).beside_experts(sharded=is_sharded)
        other = {
            name: value
            for name, value in strategy_options(strategy).items()
            if name not in _IN_TRAITS
        }
        return (
            "states" if isinstance(strategy, Zero1) else "",
            f"{dense.shard}" if is_sharded else "",
            f"{degrees.tensor}",
            f"{degrees.pipeline}",
            f"{degrees.expert}",
            f"{degrees.context}",
            "sequence" if is_sequence_parallel(strategy) else "",
            _schedule(strategy, degrees),
            "" if _reshards(strategy) else "kept",
            f"{other or ''}",
        )

    @property
    def simplicity(self) -> tuple[int, int, int, int]:
        """Sorts the simpler one first: fewer splits, fewer variations, the more usual name, more of
        the devices in one group."""
        degrees = self.degrees
        copies = self.splits > 0 and degrees.replicate > 1
        return (
            self.splits + copies,
            self.variations,
            _BY_SIMPLICITY.index(self.strategy.name),
            degrees.replicate,
        )


def choices(world_size: int) -> tuple[StrategyChoice, ...]:
    """Every strategy on these devices, the simplest first. Those that differ in name alone are
    there once, under the name that says least more than is needed."""
    found: dict[tuple[str, ...], StrategyChoice] = {}
    for strategy in _strategies(world_size):
        choice = StrategyChoice(strategy, strategy.degrees(world_size))
        found.setdefault(choice.traits, choice)
    return tuple(sorted(found.values(), key=lambda one: one.simplicity))


def choice_of(strategy: Strategy, world_size: int) -> StrategyChoice:
    """A strategy that a config names.

    Raises:
        ValueError: its degrees do not multiply to the devices.
    """
    return StrategyChoice(strategy, strategy.degrees(world_size))


def _strategies(world_size: int) -> Iterator[Strategy]:
    """Special names before the same degrees as ``hybrid``."""
    yield Ddp()
    if world_size == 1:
        return
    yield Zero1()
    for reshards in (True, False):
        yield Fsdp(reshard_after_forward=reshards)
        for shard in _parts(world_size, whole=False):
            yield Fsdp(shard=shard, reshard_after_forward=reshards)
    for degree in _parts(world_size):
        named = None if degree == world_size else degree
        yield TensorParallel(degree=named)
        yield SequenceParallel(degree=named)
        for schedule in _SCHEDULES:
            yield PipelineParallel(degree=named, schedule=schedule)
        yield ExpertParallel(degree=named)
        yield ContextParallel(degree=named)
        for reshards in (True, False):
            yield ExpertParallel(degree=named, dense="fsdp", reshard_after_forward=reshards)
            yield ContextParallel(degree=named, parameters="fsdp", reshard_after_forward=reshards)
    yield from _products(world_size)


def _products(world_size: int) -> Iterator[Strategy]:
    """Two and more degrees above 1, with every combination of their options."""
    parts = (1, *_parts(world_size))
    for degrees in itertools.product(parts, repeat=5):
        shard, tensor, pipeline, expert, context = degrees
        if sum(degree > 1 for degree in degrees) < 2 or world_size % math.prod(degrees):
            continue
        for reshards, sequence, schedule in itertools.product(
            (True, False) if shard > 1 else (True,),
            (False, True) if tensor > 1 else (False,),
            _SCHEDULES if pipeline > 1 else _SCHEDULES[:1],
        ):
            yield Hybrid(
                shard=shard,
                tensor=tensor,
                pipeline=pipeline,
                ep=expert,
                cp=context,
                sequence=sequence,
                schedule=schedule,
                reshard_after_forward=reshards,
            )


def _parts(world_size: int, *, whole: bool = True) -> list[int]:
    """Degrees above 1 that divide the devices, the largest first."""
    largest = world_size if whole else world_size - 1
    return [degree for degree in range(largest, 1, -1) if world_size % degree == 0]


def _reshards(strategy: Strategy) -> bool:
    """True too for strategies that shard nothing."""
    return not isinstance(strategy, Sharded) or strategy.reshard_after_forward


def _schedule(strategy: Strategy, degrees: Degrees) -> str:
    """With the number of micro-batches, where that is not the default."""
    if degrees.pipeline == 1 or not isinstance(strategy, PipelineBase):
        return ""
    return f"{strategy.schedule} {strategy.microbatches or ''}".strip()
