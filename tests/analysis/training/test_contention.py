from __future__ import annotations

from typing import Any

import pytest

from tests.factories import cells, launch_record, rank_record
from torchscale.analysis.training.contention import delay_bounds, fixed_work
from torchscale.analysis.training.flags import Flag, doubts
from torchscale.schema.launch.rank import HostLoad, RankRecord, RunQueue
from torchscale.schema.launch.signals import SignalDigest

CELL, PAIR = cells()[0], cells()[1]


def rank(
    number: int, waited: float | None = None, busy: float = 10.0, own: float = 5.0, **load: Any
) -> RankRecord:
    """A rank that measured for 10 s; its main thread waited ``waited`` seconds for its core, and
    used ``own``."""
    queue = (
        None
        if waited is None
        else RunQueue(seconds=waited, main_seconds=waited, main_cpu_seconds=own)
    )
    host = {
        "wall_seconds": 10.0,
        "busy_seconds": busy,
        "process_seconds": own,
        "cores": 1,
        "pinned": True,
        **load,
    }
    return rank_record(PAIR, number, host_load=HostLoad(**{"run_queue": queue, **host}))


def bounds(
    *ranks: RankRecord, waits: tuple[tuple[float, ...], ...] | None = None
) -> tuple[float, float] | None:
    """``waits``: seconds a step that each rank waited for others, by batch."""
    signals = None if waits is None else SignalDigest(compute=waits, data_wait=waits, wait=waits)
    cell = CELL if len(ranks) == 1 else PAIR
    return delay_bounds(launch_record(cell, ranks=ranks, signals=signals))


def is_contended(*ranks: RankRecord) -> bool:
    return Flag.CONTENDED in doubts([], ranks)


def test_a_rank_lost_what_it_waited_and_not_what_others_used() -> None:
    assert bounds(rank(0, waited=4.0)) == pytest.approx((0.4, 0.4))
    assert bounds(rank(0, waited=0.1, own=0.4)) == pytest.approx((0.01, 0.01)), "it slept"
    assert bounds(rank(0, waited=4.0, busy=5.5)) == pytest.approx((0.05, 0.05)), (
        "its own threads made it wait"
    )


def test_without_the_kernels_count_it_lost_no_more_than_others_used() -> None:
    assert bounds(rank(0)) == pytest.approx((0.0, 0.5))


def test_threads_of_its_own_may_have_kept_the_main_thread_waiting() -> None:
    queue = RunQueue(seconds=6.0, main_seconds=4.0, main_cpu_seconds=3.0)
    assert bounds(rank(0, run_queue=queue)) == pytest.approx((0.2, 0.5))


def test_delays_of_ranks_may_add_up_and_each_alone_may_be_hidden() -> None:
    assert bounds(rank(0, waited=1.0), rank(1, waited=3.0)) == pytest.approx((0.1, 0.4))


def test_what_a_hypervisor_took_is_added() -> None:
    stolen = rank(0, waited=1.0, interrupted_seconds=2.0, stolen_seconds=2.0)
    assert bounds(stolen) == pytest.approx((0.1, 0.3))


def test_interrupts_are_no_others() -> None:
    """The messages of a rank's own all-reduces cause them."""
    busy_with_messages = rank(0, waited=1.0, busy=6.0, interrupted_seconds=1.0, stolen_seconds=0.0)
    assert bounds(busy_with_messages) == pytest.approx((0.0, 0.0))
    assert not is_contended(busy_with_messages)
    assert is_contended(rank(0, waited=1.0, busy=6.0, interrupted_seconds=0.0))


def test_a_rank_that_waited_for_a_delayed_one_was_delayed_as_much() -> None:
    """Beside a busy process on the core of rank 0: rank 1 never waits for its core, and waits for
    rank 0 in every step."""
    ranks = [rank(0, waited=4.0), rank(1, waited=0.0, busy=5.0)]
    assert bounds(*ranks) == pytest.approx((0.0, 0.4))
    waits = ((0.0,) * 10, (0.03,) * 10)  # of 100 steps
    assert bounds(*ranks, waits=waits) == pytest.approx((0.3, 0.4))
    slow_by_itself = [rank(0, waited=0.0), rank(1, waited=0.0, busy=5.0)]
    assert bounds(*slow_by_itself, waits=waits) == pytest.approx((0.0, 0.0))


def test_a_launch_takes_no_less_than_its_busiest_rank_computes() -> None:
    both = [rank(0, waited=5.0), rank(1, waited=5.0)]
    assert bounds(*both) == pytest.approx((0.5, 0.5)), "not 1.0, which the two add up to"
    busier = rank(1, waited=3.0, own=7.0)
    assert bounds(rank(0, waited=5.0), busier) == pytest.approx((0.3, 0.3))


def test_contended_is_a_delay_on_cores_and_a_share_of_them_elsewhere() -> None:
    assert not is_contended(rank(0, waited=0.19, busy=5.19))
    assert is_contended(rank(0, waited=0.21, busy=5.21))
    assert not is_contended(rank(0, busy=5.9)), "nobody counted its waiting"
    assert is_contended(rank(0, busy=6.1))


def test_unpinned_ranks_share_what_others_used() -> None:
    ranks = [rank(number, waited=3.0, busy=14.0, cores=2, pinned=False) for number in range(2)]
    assert bounds(*ranks) == pytest.approx((0.3, 0.4))


def test_the_slowest_rank_says_how_fast_the_cores_were() -> None:
    ranks = [rank(0, fixed_work_seconds=(1e-4, 3e-4)), rank(1, fixed_work_seconds=(2e-4, 2e-4))]
    assert fixed_work(ranks) == (2e-4, 3e-4)
    assert fixed_work([*ranks, rank(0)]) is None
    assert fixed_work([]) is None


def test_a_clock_that_is_too_coarse_says_nothing() -> None:
    assert fixed_work([rank(0, fixed_work_seconds=(0.0, 0.0))]) is None
    ranks = [rank(0, fixed_work_seconds=(1e-4, 3e-4)), rank(1, fixed_work_seconds=(1e-2, 0.0))]
    assert fixed_work(ranks) is None
