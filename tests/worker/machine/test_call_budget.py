from __future__ import annotations

from torchscale.worker.machine.call_budget import CallBudget, CallCounts

FULL = CallCounts(warmup=5, timed=20)


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def swept(clock: Clock, budget: CallBudget, calls: list[float]) -> list[int]:
    """Timed calls of sizes whose calls take so long, and whose checks take no time."""
    found = []
    budget.begin_part()
    for number, seconds in enumerate(calls):
        clock.seconds += 2 * seconds
        timed = budget.timed(seconds, seconds, is_largest=number == len(calls) - 1)
        found.append(timed)
        clock.seconds += (FULL.fewer(timed).all - 1) * seconds if timed else 0.0
    return found


def doubling(last: float) -> list[float]:
    return [last / 2**step for step in reversed(range(17))]


def test_fast_calls_are_all_made() -> None:
    clock = Clock()
    budget = CallBudget(FULL, 45.0, 9, clock)
    assert swept(clock, budget, doubling(0.01)) == [20] * 17


def test_large_sizes_are_called_less_often_and_the_sweep_ends_in_its_time() -> None:
    clock = Clock()
    budget = CallBudget(FULL, 45.0, 9, clock)
    for _ in range(9):
        timed = swept(clock, budget, doubling(0.15))
        assert timed[:12] == [20] * 12, "small sizes take little time"
        assert 5 <= timed[-1] < 20
        assert timed == sorted(timed, reverse=True)
    assert clock.seconds < 1.5 * 45.0


def test_what_one_part_leaves_is_for_the_others() -> None:
    clock = Clock()
    budget = CallBudget(FULL, 10.0, 2, clock)
    swept(clock, budget, doubling(1e-3))
    assert swept(clock, budget, [0.19]) == [20], "9.9 s are left for 49 calls of 0.19 s"


def test_a_size_of_which_the_fewest_calls_take_longer_than_the_part_is_left_out() -> None:
    clock = Clock()
    budget = CallBudget(FULL, 45.0, 9, clock)
    timed = swept(clock, budget, doubling(1.0))
    assert timed[-2:] == [0, 0], "14 calls of half a second take longer than 5 s"
    assert timed[-3] >= 5


def test_without_a_limit_there_are_as_many_messages_as_asked_for() -> None:
    assert CallBudget(FULL, None, 1).messages(10, 100.0, 56) == 10
    clock = Clock()
    budget = CallBudget(FULL, 28.0, 1, clock)
    budget.begin_part()
    assert budget.messages(10, 0.01, 56) == 10
    assert budget.messages(10, 0.1, 56) == 5
    assert budget.messages(10, 9.0, 56) == 2
