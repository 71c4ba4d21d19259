"""Which strategies there are on a number of devices."""

from __future__ import annotations

import itertools
import math

import pytest

from tests.factories import experiment
from torchscale.config.strategies.data_parallel import Ddp, Fsdp, Zero1
from torchscale.config.strategies.model_parallel import (
    ContextParallel,
    ExpertParallel,
    ModelParallel,
    PipelineParallel,
    TensorParallel,
)
from torchscale.config.strategy import Hybrid, strategy_options
from torchscale.features.decide.tune.strategies import StrategyChoice, choice_of, choices


def labels(found: tuple[StrategyChoice, ...]) -> list[str]:
    return [one.label for one in found]


def test_one_device_leaves_no_choice() -> None:
    assert labels(choices(1)) == ["ddp"]


def test_two_devices_by_hand() -> None:
    """Nothing can be combined there: every split takes both."""
    assert sorted(labels(choices(2))) == [
        "cp",
        "cp parameters=fsdp",
        "cp reshard_after_forward=false parameters=fsdp",
        "ddp",
        "ep",
        "ep dense=fsdp",
        "ep reshard_after_forward=false dense=fsdp",
        "fsdp",
        "fsdp reshard_after_forward=false",
        "pipeline",
        "pipeline schedule=gpipe",
        "pipeline schedule=interleaved",
        "sequence",
        "tensor",
        "zero1",
    ]


@pytest.mark.parametrize("world_size", [2, 3, 4, 6, 8])
def test_every_product_of_degrees_is_there_once(world_size: int) -> None:
    """Counted another way: each five factors whose product divides the devices, times the
    variations of each; where all devices share experts, or sequences, all else may be sharded."""
    factors = [one for one in range(1, world_size + 1) if world_size % one == 0]
    expected = 1  # ZeRO-1
    for degrees in itertools.product(factors, repeat=5):
        shard, tensor, pipeline, *others = degrees
        if world_size % math.prod(degrees):
            continue
        ways = (2 if tensor > 1 else 1) * (3 if pipeline > 1 else 1)
        expected += ways * (2 if shard > 1 else 1)
        alone = world_size in others
        expected += 2 * alone  # with or without keeping parameters
    found = choices(world_size)
    assert len(found) == expected
    assert len({one.traits for one in found}) == expected


@pytest.mark.parametrize("world_size", [4, 6, 8])
def test_each_can_be_written_in_a_config(world_size: int) -> None:
    for one in choices(world_size):
        assert one.degrees.world_size == world_size
        entry = {"name": one.strategy.name, **strategy_options(one.strategy)}
        read = experiment(parallel={"strategy": [entry]}).parallel.strategy
        assert read == (one.strategy,)


def test_the_simplest_come_first() -> None:
    found = labels(choices(4))
    assert found[:3] == ["ddp", "zero1", "fsdp"]
    for simple, complicated in (
        ("fsdp", "fsdp shard=2"),
        ("fsdp", "fsdp reshard_after_forward=false"),
        ("tensor", "sequence"),
        ("pipeline", "pipeline schedule=interleaved"),
        ("tensor", "tensor degree=2"),
        ("tensor degree=2", "hybrid tensor=2 pipeline=2"),
        ("pipeline", "hybrid shard=2 pipeline=2"),
    ):
        assert found.index(simple) < found.index(complicated)


def test_products_and_variations_are_told_from_what_they_are_made_of() -> None:
    plain = {one.label for one in choices(4) if one.is_plain}
    assert plain == {
        "ddp",
        "zero1",
        "fsdp",
        "fsdp shard=2",
        "tensor",
        "tensor degree=2",
        "pipeline",
        "pipeline degree=2",
        "ep",
        "ep degree=2",
        "cp",
        "cp degree=2",
    }


def test_traits_say_what_strategies_have_in_common() -> None:
    def shared(one: StrategyChoice, other: StrategyChoice) -> int:
        return sum(mine == theirs for mine, theirs in zip(one.traits, other.traits, strict=True))

    product = choice_of(Hybrid(shard=2, tensor=2), 4)
    part, stranger = choice_of(TensorParallel(degree=2), 4), choice_of(PipelineParallel(), 4)
    assert shared(product, part) == len(product.traits) - 1
    assert shared(product, part) > shared(product, stranger)
    kept = choice_of(Fsdp(reshard_after_forward=False), 4)
    assert shared(choice_of(Fsdp(), 4), kept) == len(kept.traits) - 1
    assert choice_of(Zero1(), 4).traits != choice_of(Ddp(), 4).traits


def test_the_same_degrees_by_two_names_are_one_strategy() -> None:
    assert choice_of(Hybrid(tensor=2), 4).traits == choice_of(TensorParallel(degree=2), 4).traits
    experts = choice_of(ExpertParallel(degree=2, dense="fsdp"), 4)
    assert choice_of(Hybrid(shard=2, ep=2), 4).traits == experts.traits
    assert "hybrid shard=2 ep=2" not in labels(choices(4))
    sequences = choice_of(ContextParallel(degree=2, parameters="fsdp"), 4)
    assert choice_of(Hybrid(shard=2, cp=2), 4).traits == sequences.traits


@pytest.mark.parametrize(
    "strategy",
    [
        Ddp(bucket_cap_mb=5),
        Fsdp(offload=True),
        PipelineParallel(microbatches=16),
        ModelParallel(),
    ],
)
def test_a_strategy_with_options_that_none_is_tried_with_is_another(strategy: Ddp) -> None:
    assert choice_of(strategy, 4).traits not in {one.traits for one in choices(4)}
