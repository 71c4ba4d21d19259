"""Degrees of parallelism, and strategies as configs write them."""

from __future__ import annotations

import itertools
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.factories import cells, experiment
from torchscale.config.degrees import Degrees
from torchscale.config.dump import to_yaml
from torchscale.config.strategies.base import Signal
from torchscale.config.strategies.data_parallel import CommHook, Ddp
from torchscale.config.strategy import STRATEGIES, sharding, strategy_label


@given(st.tuples(*[st.integers(1, 4)] * 4))
def test_every_rank_has_a_place_of_its_own(sizes: tuple[int, int, int, int]) -> None:
    replicate, shard, tensor, pipeline = sizes
    world_size = replicate * shard * tensor * pipeline
    degrees = Degrees(world_size, replicate, shard, tensor, pipeline)
    places = {degrees.coordinate(rank) for rank in range(world_size)}
    assert len(places) == world_size
    assert {degrees.data_index(rank) for rank in range(world_size)} == set(range(degrees.data))
    assert degrees.data * degrees.model == world_size


def test_neighbours_share_matrices_then_shards_then_copies_then_layers() -> None:
    degrees = Degrees(16, 2, 2, 2, 2)
    ranks = [degrees.coordinate(rank) for rank in range(16)]
    assert [place.tensor for place in ranks[:4]] == [0, 1, 0, 1]
    assert [place.shard for place in ranks[:4]] == [0, 0, 1, 1]
    assert [place.replicate for place in ranks[:8:4]] == [0, 1]
    assert [place.pipeline for place in ranks[::8]] == [0, 1]
    assert [degrees.data_index(rank) for rank in range(8)] == [0, 0, 1, 1, 2, 2, 3, 3]


def test_ranks_that_share_experts_lie_next_to_each_other_and_have_samples_of_their_own() -> None:
    degrees = Degrees(8, replicate=2, shard=2, expert=2)
    assert [degrees.coordinate(rank).expert for rank in range(8)] == [0, 1] * 4
    assert [degrees.coordinate(rank).shard for rank in range(4)] == [0, 0, 1, 1]
    assert [degrees.data_index(rank) for rank in range(8)] == list(range(8))
    assert (degrees.data, degrees.model) == (8, 1)
    with pytest.raises(ValueError, match="× tensor 1 × pipeline 1 × expert 2 does not"):
        Degrees(7, replicate=2, shard=2, expert=2)


def test_to_other_parameters_these_ranks_are_copies_or_shards() -> None:
    degrees = Degrees(8, replicate=2, shard=2, expert=2)
    assert degrees.beside_experts(sharded=False) == Degrees(8, replicate=4, shard=2)
    assert degrees.beside_experts(sharded=True) == Degrees(8, replicate=2, shard=4)


def test_ranks_that_share_sequences_have_the_same_samples_and_other_tokens() -> None:
    degrees = Degrees(8, replicate=2, context=2, tensor=2)
    assert [degrees.coordinate(rank).context for rank in range(8)] == [0, 0, 1, 1] * 2
    assert [degrees.data_index(rank) for rank in range(8)] == [0] * 4 + [1] * 4
    assert [degrees.tokens_index(rank) for rank in range(8)] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert (degrees.data, degrees.model) == (2, 4)
    with pytest.raises(ValueError, match="× tensor 2 × pipeline 1 × context 2 does not"):
        Degrees(7, replicate=2, context=2, tensor=2)


def test_experts_lie_next_to_each_other_within_sequences() -> None:
    degrees = Degrees(8, shard=2, context=2, expert=2)
    places = [degrees.coordinate(rank) for rank in range(8)]
    assert [place.expert for place in places] == [0, 1] * 4
    assert [place.context for place in places] == [0, 0, 1, 1] * 2
    assert [degrees.data_index(rank) for rank in range(8)] == [0, 1, 0, 1, 2, 3, 2, 3]


def test_to_parameters_ranks_that_share_sequences_are_copies_or_shards() -> None:
    degrees = Degrees(8, replicate=2, context=4)
    assert degrees.beside_context(sharded=False) == Degrees(8, replicate=8)
    assert degrees.beside_context(sharded=True) == Degrees(8, replicate=2, shard=4)


def test_who_uses_fsdp() -> None:
    given = [
        "ddp",
        "fsdp",
        "ep",
        {"name": "ep", "dense": "fsdp"},
        {"name": "hybrid", "shard": 2},
        "cp",
        {"name": "cp", "parameters": "fsdp"},
    ]
    found = experiment(parallel={"strategy": given}).parallel.strategy
    for count, expected in ((4, ["fsdp", "ep", "hybrid", "cp"]), (1, ["fsdp"])):
        able = [one for one in found if count > 1 or one.name != "hybrid"]
        assert [one.name for one in able if sharding(one, one.degrees(count))] == expected


@pytest.mark.parametrize("world_size", [1, 3, 6, 8])
def test_an_impossible_product_tells_every_degree(world_size: int) -> None:
    with pytest.raises(ValueError, match="replicate 1 × shard 2 × tensor 2 × pipeline 1") as raised:
        Degrees(world_size, 1, 2, 2, 1)
    assert f"does not multiply to {world_size} device" in str(raised.value)


@pytest.mark.parametrize(
    ("strategy", "world_size", "expected"),
    [
        ("none", 1, Degrees(1)),
        ("ddp", 4, Degrees(4, replicate=4)),
        ("zero1", 4, Degrees(4, replicate=4)),
        ("fsdp", 4, Degrees(4, shard=4)),
        ({"name": "fsdp", "shard": 2}, 4, Degrees(4, replicate=2, shard=2)),
        ("tensor", 4, Degrees(4, tensor=4)),
        ({"name": "sequence", "degree": 2}, 4, Degrees(4, replicate=2, tensor=2)),
        ({"name": "pipeline", "degree": 2}, 8, Degrees(8, replicate=4, pipeline=2)),
        ("model", 4, Degrees(4, pipeline=4)),
        ({"name": "hybrid", "data": 2, "tensor": 2, "pipeline": 2}, 8, Degrees(8, 2, 1, 2, 2)),
        (
            {"name": "hybrid", "shard": 2, "tensor": 2},
            8,
            Degrees(8, replicate=2, shard=2, tensor=2),
        ),
        ("ep", 4, Degrees(4, expert=4)),
        ({"name": "ep", "degree": 2}, 8, Degrees(8, replicate=4, expert=2)),
        ({"name": "ep", "degree": 2, "dense": "fsdp"}, 8, Degrees(8, shard=4, expert=2)),
        ({"name": "hybrid", "shard": 2, "ep": 2}, 8, Degrees(8, replicate=2, shard=2, expert=2)),
        ("cp", 4, Degrees(4, context=4)),
        ({"name": "cp", "degree": 2}, 8, Degrees(8, replicate=4, context=2)),
        ({"name": "cp", "degree": 2, "parameters": "fsdp"}, 8, Degrees(8, shard=4, context=2)),
        ({"name": "hybrid", "tensor": 2, "cp": 2}, 8, Degrees(8, replicate=2, tensor=2, context=2)),
    ],
)
def test_degrees_of_strategies(strategy: object, world_size: int, expected: Degrees) -> None:
    found = experiment(parallel={"strategy": [strategy]}).parallel.strategy[0]
    assert found.degrees(world_size) == expected


@pytest.mark.parametrize(
    ("strategy", "world_size"),
    [
        ("none", 2),
        ({"name": "fsdp", "shard": 3}, 4),
        ({"name": "hybrid", "data": 2}, 4),
        ({"name": "tensor", "degree": 8}, 4),
    ],
)
def test_degrees_that_do_not_fit(strategy: object, world_size: int) -> None:
    found = experiment(parallel={"strategy": [strategy]}).parallel.strategy[0]
    with pytest.raises(ValueError, match=str(world_size)):
        found.degrees(world_size)


def test_micro_batches() -> None:
    given = [
        "pipeline",
        {"name": "pipeline", "schedule": "interleaved"},
        {"name": "pipeline", "microbatches": 5},
        "model",
    ]
    found = experiment(parallel={"strategy": given}).parallel.strategy
    assert [strategy.pieces(strategy.degrees(4)) for strategy in found] == [8, 16, 5, 1]
    assert [strategy.pieces(strategy.degrees(1)) for strategy in found] == [1, 1, 1, 1]


def test_text_is_short_for_a_mapping_and_comes_back_as_text() -> None:
    written = ["ddp", {"name": "hybrid", "tensor": 2}]
    config = experiment(parallel={"strategy": written})
    assert "strategy: [ddp, {name: hybrid, tensor: 2}]" in to_yaml(config)
    assert [strategy_label(strategy) for strategy in config.parallel.strategy] == [
        "ddp",
        "hybrid tensor=2",
    ]
    cell = cells(parallel={"strategy": {"name": "ddp"}})[0]
    assert cell.id == cells()[0].id
    assert cell.model_validate_json(cell.model_dump_json()) == cell


def test_an_option_makes_another_cell_and_its_default_does_not() -> None:
    plain, same, other = (
        cells(parallel={"strategy": {"name": "ddp", **options}})[0].id
        for options in ({}, {"bucket_cap_mb": 25}, {"bucket_cap_mb": 10})
    )
    assert plain == same != other


def test_the_same_samples_a_step_whatever_the_strategy() -> None:
    """Weak scaling fixes the samples per device, so strategies at one count are compared on the
    same work."""
    names = [
        "ddp",
        "fsdp",
        "tensor",
        "pipeline",
        {"name": "hybrid", "data": 2, "tensor": 2},
        "ep",
        "cp",
        {"name": "cp", "degree": 2},
    ]
    found = cells(models="tiny-decoder", batch_sizes=8, gpu_counts=4, parallel={"strategy": names})
    assert {cell.global_batch_size for cell in found} == {32}
    assert [cell.copy_batch_size for cell in found] == [8, 8, 32, 32, 16, 8, 32, 16]


def test_every_strategy_declares_its_signals() -> None:
    assert {name for name, kind in STRATEGIES.items() if Signal.EXPOSED_SYNC in kind.signals} == {
        "ddp"
    }
    assert {name for name, kind in STRATEGIES.items() if Signal.BUBBLE in kind.signals} == {
        "pipeline",
        "model",
        "hybrid",
    }
    for one, other in itertools.combinations(STRATEGIES.values(), 2):
        assert one.__doc__ != other.__doc__


@pytest.mark.parametrize("hook", get_args(CommHook))
def test_copies_train_one_model_unless_their_hook_sends_nothing(hook: CommHook) -> None:
    """What compresses gradients still exchanges them, so that parameters must be equal on all
    ranks. Without an exchange they differ, which is no fault, and there is nothing to tune."""
    assert Ddp(comm_hook=hook).exchanges_gradients is (hook != "noop")
