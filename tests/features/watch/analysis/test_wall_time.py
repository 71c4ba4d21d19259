"""Parts of an attempt's wall time: they add up, and each is what was simulated."""

from __future__ import annotations

import numpy as np
import pytest

from tests.features.watch.analysis.jobs import MS, START_NS, Rank
from torchscale.analysis.exchanges.events import MomentKind, RankEvents
from torchscale.analysis.exchanges.steps import step_edges
from torchscale.features.watch.analysis.wall_time import StepClock, find_spans, stalled, tail_parts

STEP = 100.0


def _step(rank: Rank, pause: float = 0.0) -> None:
    """A step of 100 ms, with a pause in the middle of it."""
    rank.note(MomentKind.BACKWARD)
    rank.now += STEP / 2 + pause
    rank.note(MomentKind.BACKWARD_END)
    rank.now += STEP / 2
    rank.note(MomentKind.STEP)


def _between(rank: Rank, begin: MomentKind, end: MomentKind, length: float) -> None:
    rank.note(begin)
    rank.now += length
    rank.note(end)


def _clock(*ranks: RankEvents) -> StepClock:
    edges = step_edges(ranks[0].moments)
    clock = StepClock(int(edges[0]))
    clock.add(find_spans(ranks, edges))
    return clock


def _attempt(steps: int = 20) -> Rank:
    rank = Rank()
    for _ in range(steps):
        _step(rank)
    return rank


def test_steps_without_anything_else_are_productive() -> None:
    parts = _clock(_attempt(21).events()).parts(0)

    assert parts.steps == pytest.approx(2.0)
    assert parts.total == pytest.approx(2.0)
    assert parts.goodput == pytest.approx(1.0)


def test_repeated_steps_are_recomputed_but_for_the_first_which_is_start_up() -> None:
    parts = _clock(_attempt(21).events()).parts(8)

    assert parts.recomputed == pytest.approx(0.7)
    assert parts.steps == pytest.approx(1.3)


def test_checkpoints_and_evaluations_of_any_rank_count_once() -> None:
    ranks = [_attempt(10), _attempt(10)]
    _between(ranks[0], MomentKind.SAVE, MomentKind.SAVE_END, 300.0)
    _between(ranks[1], MomentKind.EVALUATION, MomentKind.TRAINING, 500.0)
    ranks[0].now = ranks[1].now = ranks[1].now
    for rank in ranks:
        _step(rank)
    parts = _clock(*(rank.events() for rank in ranks)).parts(0)

    assert parts.saving == pytest.approx(0.3)
    assert parts.evaluating == pytest.approx(0.2)  # what of it no rank saves
    assert parts.steps == pytest.approx(1.0)
    assert parts.total == pytest.approx(1.5)


def test_a_gap_of_many_steps_is_a_stall_less_what_a_step_takes() -> None:
    rank = _attempt(10)
    _step(rank, pause=5_000.0)
    parts = _clock(rank.events()).parts(0)

    assert parts.stalls == pytest.approx(5.05 - 0.1)
    assert parts.total == pytest.approx(6.0)


@pytest.mark.parametrize("pause", [900.0, 800.0])
def test_a_gap_below_a_second_is_none(pause: float) -> None:
    rank = _attempt(10)
    _step(rank, pause)

    assert _clock(rank.events()).parts(0).stalls == 0


def test_a_rank_that_goes_on_makes_it_no_stall() -> None:
    slow, busy = _attempt(10), _attempt(10)
    _step(slow, pause=3_000.0)
    for _ in range(30):
        _between(busy, MomentKind.DATA, MomentKind.DATA_END, 100.0)
    _step(busy)

    assert _clock(slow.events()).parts(0).stalls > 2.9
    assert _clock(slow.events(), busy.events()).parts(0).stalls == 0


def test_a_collection_of_garbage_is_no_sign_of_progress() -> None:
    rank = _attempt(10)
    rank.now += 2_000.0
    _between(rank, MomentKind.COLLECTION, MomentKind.COLLECTION_END, 10.0)
    rank.now += 2_000.0
    _step(rank)

    assert _clock(rank.events()).parts(0).stalls == pytest.approx(3.91)


def test_a_long_evaluation_or_checkpoint_is_no_stall() -> None:
    rank = _attempt(10)
    _between(rank, MomentKind.EVALUATION, MomentKind.TRAINING, 60_000.0)
    _between(rank, MomentKind.SAVE, MomentKind.SAVE_END, 60_000.0)
    _step(rank)
    parts = _clock(rank.events()).parts(0)

    assert (parts.evaluating, parts.saving) == pytest.approx((60.0, 60.0))
    assert parts.stalls == 0


def test_long_steps_are_no_stalls_of_their_own() -> None:
    assert stalled(np.array([4.0, 5.0, 4.5]), 4.0) == 0
    assert stalled(np.array([4.0, 13.0]), 4.0) == pytest.approx(9.0)


def test_what_a_step_takes_is_not_known_of_few() -> None:
    rank = _attempt(3)
    _step(rank, pause=9_000.0)

    assert _clock(rank.events()).parts(0).stalls == 0


def test_stretches_join_to_the_same_parts() -> None:
    rank = _attempt(10)
    _between(rank, MomentKind.SAVE, MomentKind.SAVE_END, 250.0)
    _step(rank, pause=4_000.0)
    for _ in range(10):
        _step(rank)
    events = rank.events()
    edges = step_edges(events.moments)
    joined = StepClock(int(edges[0]))
    for begin in range(0, len(edges) - 1, 4):
        joined.add(find_spans([events], edges[begin : begin + 5]))

    whole = _clock(events)
    assert joined.steps == whole.steps == 21
    assert joined.last_end == whole.last_end
    for repeated in (0, 5, 15, 21):
        assert joined.parts(repeated).model_dump() == pytest.approx(
            whole.parts(repeated).model_dump()
        )


def test_a_long_attempt_is_kept_in_bounded_memory_and_adds_up() -> None:
    clock = StepClock(START_NS)
    count, block = 200_000, 1_000
    empty = Rank().events()
    for number in range(0, count, block):
        edges = START_NS + np.arange(number, number + block + 1) * 10 * MS
        clock.add(find_spans([empty], edges))

    assert clock.steps == count + 1
    assert len(clock._number) <= 16_384
    parts = clock.parts(50_001)
    assert parts.recomputed == pytest.approx(500.0, abs=0.5)
    assert parts.total == pytest.approx(2_000.0)
    assert clock.typical == pytest.approx(0.01)


def _tail(rank: Rank, begin: float, *, in_order: bool) -> dict[str, float]:
    """Parts from ``begin`` to the rank's clock, in milliseconds, that are not zero."""
    first, last = (START_NS + round(time * MS) for time in (begin, rank.now))
    parts = tail_parts([rank.events()], first, last, 0.1, in_order=in_order).model_dump()
    return {name: round(value, 3) for name, value in parts.items() if value}


def test_a_job_that_hangs_after_its_last_step_is_stalled_and_one_that_ends_is_not() -> None:
    rank = _attempt(10)
    begin = rank.now
    rank.now += 9_000.0

    assert _tail(rank, begin, in_order=False) == {"stalls": 8.9, "end": 0.1}
    assert _tail(rank, begin, in_order=True) == {"end": 9.0}


def test_the_last_checkpoint_and_evaluation_are_such() -> None:
    rank = _attempt(10)
    begin = rank.now
    _between(rank, MomentKind.SAVE, MomentKind.SAVE_END, 700.0)
    rank.note(MomentKind.EVALUATION)
    for _ in range(5):
        _between(rank, MomentKind.DATA, MomentKind.DATA_END, 100.0)
    rank.now += 200.0

    expected = {"saving": 0.7, "evaluating": 0.5, "end": 0.2}
    assert _tail(rank, begin, in_order=True) == expected


def test_a_checkpoint_that_never_ended_counts_to_the_last_sign_of_life() -> None:
    rank = _attempt(10)
    begin = rank.now
    rank.note(MomentKind.SAVE)
    rank.now += 4_000.0

    assert _tail(rank, begin, in_order=False) == {"saving": 4.0}


def test_a_part_that_evaluates_all_the_time_is_no_evaluation_at_the_end() -> None:
    rank = Rank()
    rank.note(MomentKind.EVALUATION)  # a frozen teacher
    for _ in range(10):
        _step(rank)
    begin = rank.now
    rank.now += 500.0

    assert _tail(rank, begin, in_order=True) == {"end": 0.5}
