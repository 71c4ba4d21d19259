"""Predictions against simulations whose truth is known: the same training without the fault."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.features.trace.replay.simulator import MICRO_BATCHES, Training
from torchscale.features.trace.analysis.analyze import analyze_trace
from torchscale.schema.profiles.finding import CostBasis, FindingKind
from torchscale.schema.profiles.what_if import Change, WhatIf, WhatIfRow

SHAPES = {
    "data": Training(data=4),
    "tensor": Training(tensor=4, data=2),
    "pipeline": Training(pipeline=4, data=2),
    "all": Training(data=4, tensor=2, pipeline=2),
    "64 ranks": Training(data=4, tensor=4, pipeline=4, steps=5),
}


def predicted(training: Training) -> WhatIf:
    what_if = analyze_trace(training.trace()).what_if
    assert what_if is not None
    assert what_if.refused is None
    assert what_if.measured_step_seconds == pytest.approx(training.step_seconds())
    assert what_if.replay_error_percent == pytest.approx(0.0, abs=0.1)
    return what_if


def row(what_if: WhatIf, change: Change, rank: int | None = None) -> WhatIfRow:
    return next(
        item
        for item in what_if.rows
        if item.change is change and (rank is None or item.ranks == (rank,))
    )


@pytest.mark.parametrize("name", SHAPES)
def test_a_slow_rank_made_as_fast_as_its_peers(name: str) -> None:
    healthy = SHAPES[name]
    slow = healthy.ranks - 2
    training = healthy.but(speed=lambda rank, _: 1.5 if rank == slow else 1.0)
    what_if = predicted(training)
    like_peers = row(what_if, Change.RANK_LIKE_PEERS, slow)
    assert like_peers.step_seconds == pytest.approx(healthy.step_seconds(), rel=0.01)
    assert like_peers.gain_percent == pytest.approx(
        (1 - healthy.step_seconds() / training.step_seconds()) * 100, abs=1
    )
    others = [
        item
        for item in what_if.rows
        if item.change is Change.RANK_LIKE_PEERS and item.ranks != (slow,)
    ]
    assert all(abs(item.gain_percent) < 0.1 for item in others)


@pytest.mark.parametrize("name", SHAPES)
def test_a_link_twice_as_fast(name: str) -> None:
    training = SHAPES[name].but(bandwidth=5_000.0)
    what_if = predicted(training)
    faster = row(what_if, Change.FASTER_LINK)
    assert faster.step_seconds == pytest.approx(
        training.but(bandwidth=10_000.0).step_seconds(), rel=0.01
    )
    assert faster.assumption == "latency stays"


def test_sizes_that_do_not_tell_latency_from_bandwidth() -> None:
    what_if = predicted(Training(tensor=4))
    assert row(what_if, Change.FASTER_LINK).assumption.startswith("no latency")


@pytest.mark.parametrize("name", ["pipeline", "all", "64 ranks"])
def test_an_even_split_of_stages(name: str) -> None:
    even = SHAPES[name]
    last = even.pipeline - 1
    uneven = even.but(stage_work=lambda stage: 1.6 if stage == last else 1.0)
    mean = (even.pipeline + 0.6) / even.pipeline
    analysis = analyze_trace(uneven.trace())
    assert analysis.what_if is not None
    truth = even.but(stage_work=lambda _: mean).step_seconds()
    assert row(analysis.what_if, Change.EVEN_STAGES).step_seconds == pytest.approx(truth, rel=0.01)
    finding = next(item for item in analysis.findings if item.kind is FindingKind.UNEVEN_STAGES)
    assert finding.cost_basis is CostBasis.REPLAY
    # The replay splits the optimizer's time too, which is the same for all stages here: a small
    # part of a small gain.
    assert finding.cost_seconds == pytest.approx(uneven.step_seconds() - truth, rel=0.06)


def test_ranks_that_take_turns_at_being_slow() -> None:
    """No rank is slow by itself: what is lost is lost to the differences in each step."""
    turns = Training(
        data=4, speed=lambda rank, number: 1.4 if number % 4 == rank else 1.0, steps=21
    )
    what_if = predicted(turns)
    for rank in range(4):
        assert all(item.gain_percent < 1 for item in what_if.rows if item.ranks == (rank,))
    truth = Training(data=4, speed=lambda rank, number: 1.1, steps=21).step_seconds()
    assert row(what_if, Change.BALANCED_WORK).step_seconds == pytest.approx(truth, rel=0.01)
    assert row(what_if, Change.STEADY_WORK).step_seconds == pytest.approx(
        Training(data=4, steps=21).step_seconds(), rel=0.01
    )


def test_a_rank_that_is_slow_at_times_gets_the_times_of_its_peers() -> None:
    healthy = Training(data=3, steps=25)
    spells = healthy.but(speed=lambda rank, number: 1.8 if rank == 1 and number % 8 < 3 else 1.0)
    assert row(predicted(spells), Change.RANK_LIKE_PEERS, 1).step_seconds == pytest.approx(
        healthy.step_seconds(), rel=0.01
    )


@pytest.mark.parametrize("name", ["data", "pipeline"])
def test_a_loader_that_nobody_waits_for(name: str) -> None:
    fast = SHAPES[name]
    what_if = predicted(fast.but(loader=300.0))
    assert row(what_if, Change.NO_LOADER_WAIT).step_seconds == pytest.approx(
        fast.step_seconds(), rel=0.01
    )


def test_transfers_that_take_no_time_and_gradients_that_stay() -> None:
    training = Training(data=4, bandwidth=5_000.0)
    compute = 3 * 100.0 * MICRO_BATCHES + 40.0
    what_if = predicted(training)
    assert row(what_if, Change.NO_TRANSFER_TIME).step_seconds == pytest.approx(
        compute * 1e-6, rel=0.001
    )
    measured = training.step_seconds()
    assert row(what_if, Change.ACCUMULATION).step_seconds == pytest.approx(
        (measured + compute * 1e-6) / 2, rel=0.001
    )


def test_too_few_steps_are_not_replayed() -> None:
    what_if = analyze_trace(Training(data=2, steps=3).trace()).what_if
    assert what_if is not None
    assert what_if.refused == "2 steps can be compared; a replay needs 3"
    assert what_if.rows == ()


UNEVEN: dict[str, Callable[[int, int], float]] = {
    "one long sequence": lambda number, micro_batch: 1.8 if micro_batch == number % 6 else 1.0,
    "always the first": lambda number, micro_batch: 2.0 if micro_batch == 0 else 1.0,
    "growing": lambda number, micro_batch: 0.5 + 0.2 * micro_batch,
}


@pytest.mark.parametrize("kind", UNEVEN)
@pytest.mark.parametrize(("stages", "copies"), [(2, 1), (4, 1), (4, 2)])
def test_micro_batches_of_equal_length(kind: str, stages: int, copies: int) -> None:
    even = Training(pipeline=stages, data=copies, micro_batches=6, steps=24)
    lengths = UNEVEN[kind]
    uneven = even.but(micro_batch_work=lengths)
    mean = sum(lengths(0, place) for place in range(6)) / 6
    truth = even.but(micro_batch_work=lambda number, micro_batch: mean).step_seconds()
    analysis = analyze_trace(uneven.trace())
    assert analysis.what_if is not None
    assert row(analysis.what_if, Change.EVEN_MICRO_BATCHES).step_seconds == pytest.approx(
        truth, rel=0.01
    )
    gained = uneven.step_seconds() - truth
    findings = [item for item in analysis.findings if item.kind is FindingKind.UNEVEN_MICRO_BATCHES]
    assert len(findings) == (gained > 0.05 * uneven.step_seconds())
    if not findings:  # two stages hide most of some orders
        return
    (finding,) = findings
    assert finding.rank is None
    assert finding.cost_basis is CostBasis.REPLAY
    assert finding.cost_seconds == pytest.approx(gained, rel=0.05)


@pytest.mark.parametrize("stages", [2, 4])
def test_equal_micro_batches_on_ranks_that_vary_are_not_uneven(stages: int) -> None:
    random = np.random.default_rng(stages)
    noise = random.normal(1.0, 0.15, (stages, 24))
    varying = Training(
        pipeline=stages, micro_batches=6, steps=24, speed=lambda rank, number: noise[rank, number]
    )
    slow = Training(
        pipeline=stages,
        micro_batches=6,
        steps=24,
        speed=lambda rank, number: 1.5 if rank == 1 else 1.0,
    )
    for training in (varying, slow):
        kinds = {item.kind for item in analyze_trace(training.trace()).findings}
        assert FindingKind.UNEVEN_MICRO_BATCHES not in kinds


@pytest.mark.parametrize("bandwidth", [10_000.0, 20_000.0])
def test_larger_gradient_buckets(bandwidth: float) -> None:
    """Four equal buckets and a small first one, as of DistributedDataParallel; joined, the last
    part of them is ready with the last."""
    size = 1 << 18
    training = Training(data=4, buckets=(size // 8, size, size, size, size), bandwidth=bandwidth)
    what_if = predicted(training)
    rows = {item.label: item for item in what_if.rows if item.change is Change.LARGER_BUCKETS}
    joined = {
        "gradient buckets 2x as large": ((0, 1), (2, 3), (4,)),
        "gradient buckets 4x as large": ((0, 1, 2, 3), (4,)),
        "one bucket": ((0, 1, 2, 3, 4),),
    }
    assert set(rows) == set(joined)
    for label, parts in joined.items():
        truth = training.but(joined=parts).step_seconds()
        assert rows[label].step_seconds == pytest.approx(truth, rel=0.005)
        assert rows[label].assumption == "buckets joined whole"


def test_buckets_whose_latency_is_not_known_are_not_joined() -> None:
    what_if = predicted(Training(data=4, buckets=(1 << 20, 1 << 20)))
    assert all(item.change is not Change.LARGER_BUCKETS for item in what_if.rows)
