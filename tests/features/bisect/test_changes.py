"""The search for what changed a number, on numbers that are made up."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from torchscale.features.bisect.changes import ChangeRule, ChangeRuleName, ChangeSearch
from torchscale.features.bisect.hypotheses import Hypothesis, factorial, steps
from torchscale.features.bisect.search import BisectionEnding, Limits

SCATTER = 0.05


def play(
    number: Callable[[int], float],
    count: int = 12,
    *,
    hypotheses: tuple[Hypothesis, ...] | None = None,
    scatter: float = 0.0,
    seed: int = 0,
    how: ChangeRuleName = "auto",
    tolerance: float = 0.0,
    most_launches: int = 200,
) -> ChangeSearch:
    """A search to its end; ``number`` is what an environment prints, without its scatter."""
    random = np.random.default_rng(seed)
    rule = ChangeRule(how, tolerance)
    limits = Limits(most_launches=most_launches)
    search = ChangeSearch(hypotheses or steps(count), count, limits, rule)
    while asked := search.next_round():
        for place in asked:
            if search.ending is None:
                search.add(place, number(place) + scatter * float(random.standard_normal()))
    return search


def first_changed(search: ChangeSearch) -> list[int]:
    assert search.ending is BisectionEnding.FOUND
    found = search.equality.answer if search.equality else []
    if search.means is not None:
        found = search.means.search.answer
    return [one.members[0] for one in found]


def test_numbers_that_repeat_take_a_launch_each_but_for_the_ends_and_the_answer() -> None:
    search = play(lambda place: 2.31 + 1e-12 * (place >= 5))
    assert first_changed(search) == [5]
    assert len(search.launches) <= 10
    counts = Counter(place for place, _ in search.launches)
    assert {counts[0], counts[4], counts[5], counts[11]} == {2}


def test_the_same_number_of_both_ends_is_an_answer_after_four_launches() -> None:
    search = play(lambda _: 0.0)
    assert search.ending is BisectionEnding.NO_DIFFERENCE
    assert len(search.launches) == 4


def test_nan_from_a_version_on() -> None:
    exact = play(lambda place: math.nan if place >= 7 else -1.0)
    assert first_changed(exact) == [7]
    scattered = play(lambda place: math.nan if place >= 7 else 1.0, scatter=SCATTER)
    assert first_changed(scattered) == [7]
    assert scattered.same is not None
    assert scattered.same.by_kind
    assert scattered.means is None
    assert play(lambda _: math.nan).ending is BisectionEnding.NO_DIFFERENCE


@pytest.mark.parametrize("shift", [3 * SCATTER, -3 * SCATTER, 1.0, -1e9])
@pytest.mark.parametrize("level", [2.3, -0.1, 0.0])
def test_means_of_numbers_that_scatter_of_either_sign(shift: float, level: float) -> None:
    search = play(lambda place: level + shift * (place >= 4), scatter=SCATTER, seed=2)
    assert first_changed(search) == [4]
    assert search.means is not None
    cost = search.means.search.cost()
    assert cost is not None
    size = search.means.size(cost)
    low, high = size.bounds
    assert low <= shift <= high
    assert low < size.value < high


def test_no_change_of_means_is_never_called_one() -> None:
    endings = Counter(play(lambda _: -1.0, scatter=SCATTER, seed=seed).ending for seed in range(6))
    assert endings[BisectionEnding.FOUND] == 0
    assert endings[BisectionEnding.NO_DIFFERENCE] >= 5


def test_the_smallest_change_of_means_is_the_scatter_or_the_tolerance() -> None:
    by_scatter = play(lambda _: 1.0, scatter=SCATTER)
    assert by_scatter.means is not None
    assert by_scatter.means.least == pytest.approx(SCATTER, rel=0.5)
    told = play(lambda _: 1.0, scatter=SCATTER, how="mean", tolerance=0.2)
    assert told.means is not None
    assert told.means.least == pytest.approx(0.2, rel=0.05)
    assert len(told.launches) < len(by_scatter.launches)


def test_several_factors_by_means() -> None:
    search = play(
        lambda place: 0.2 * (place == 3), 4, hypotheses=factorial(2), scatter=SCATTER, seed=1
    )
    assert search.means is not None
    (answer,) = search.means.search.answer
    assert (answer.kind.value, answer.members) == ("together", (0, 1))


def test_a_number_that_an_environment_in_between_does_not_repeat_makes_means_decide() -> None:
    random = np.random.default_rng(0)
    search = play(lambda place: float(random.normal(1, 0.1)) if place == 5 else 1.0 + (place >= 6))
    assert search.unlike is not None
    assert search.unlike[0] == 5
    assert search.means is not None
    assert 6 in first_changed(search)


def test_exactly_asks_for_launches_that_repeat() -> None:
    search = play(lambda _: 1.0, scatter=SCATTER, how="exactly")
    assert search.ending is BisectionEnding.UNDECIDED
    assert search.unlike is not None
    assert len(search.launches) == 4


def test_a_tolerance_covers_launches_that_nearly_repeat() -> None:
    search = play(lambda place: 1.0 + (place >= 3), scatter=1e-9, tolerance=1e-6)
    assert first_changed(search) == [3]
    assert search.means is None


def test_an_end_that_diverges_in_any_way_is_the_change() -> None:
    diverged = iter([math.nan, math.inf] * 20)
    search = play(lambda place: next(diverged) if place >= 5 else 1.0, scatter=SCATTER)
    assert first_changed(search) == [5]
    assert search.same is not None
    assert search.same.by_kind


def test_a_version_that_diverges_now_and_then_is_left_out() -> None:
    seen: Counter[int] = Counter()

    def number(place: int) -> float:
        seen[place] += 1
        if place == 5:
            return math.nan if seen[place] % 2 else 2.4
        return math.nan if place > 5 else 2.3

    search = play(number, scatter=SCATTER)
    assert first_changed(search) in ([5, 6], [6])


def test_numbers_too_large_for_a_mean_are_as_good_as_infinite() -> None:
    numbers = iter([1.0, 1e160, 1.1, 3e160])
    search = play(lambda _: next(numbers))
    assert search.ending is BisectionEnding.UNUSABLE
    assert search.unusable == {11: "printed 3e+160, which has no mean"}


@pytest.mark.parametrize(("change", "found"), [(0.06, False), (0.5, True)])
@pytest.mark.parametrize("how", ["auto", "mean"])
def test_a_change_within_the_tolerance_is_none_of_means_too(
    how: ChangeRuleName, change: float, found: bool
) -> None:
    search = play(
        lambda place: 1.0 + change * (place >= 5), scatter=0.1, how=how, tolerance=0.1, seed=3
    )
    assert search.means is not None
    assert (search.ending is BisectionEnding.FOUND) == found
    assert search.ending in (BisectionEnding.FOUND, BisectionEnding.NO_DIFFERENCE)


@pytest.mark.parametrize("seed", range(8))
def test_a_bad_end_that_changes_now_and_then_is_found_whichever_way(seed: int) -> None:
    random = np.random.default_rng(seed)
    search = play(
        lambda place: 2.0 - 0.1 * (place == 1 and random.random() < 0.4),
        count=2,
        scatter=0.001,
        seed=seed,
    )
    assert search.ending is BisectionEnding.FOUND


def test_two_launches_without_a_finite_number_make_an_environment_unusable_for_means() -> None:
    search = play(
        lambda place: math.nan if place == 6 else 1.0 + (place >= 6), scatter=SCATTER, seed=3
    )
    assert search.unusable == {6: "printed nan, which has no mean"}
    assert first_changed(search) == [6, 7]


def test_failures_of_a_version_leave_the_others() -> None:
    search = ChangeSearch(steps(4), 4)
    while asked := search.next_round():
        for place in asked:
            if place == 2:
                search.add_failure(place, "failed: printed no number")
            else:
                search.add(place, float(place >= 2))
    assert search.unusable == {2: "failed: printed no number"}
    assert first_changed(search) == [2, 3]


def test_a_factor_whose_second_launch_fails_is_left_out() -> None:
    search = ChangeSearch(factorial(2), 4)
    while asked := search.next_round():
        for place in asked:
            if place == 1 and search.launched(1):
                search.add_failure(place, "failed: out of memory")
            else:
                search.add(place, float(place >= 2))
    assert search.unusable == {1: "failed: out of memory"}
    assert search.ending is BisectionEnding.FOUND


def test_launches_run_out() -> None:
    search = play(lambda place: float(place >= 50), 100, most_launches=6)
    assert search.ending is BisectionEnding.UNDECIDED
    assert search.confirmed
    assert len(search.launches) == 6


@pytest.mark.parametrize("how", ["auto", "mean"])
def test_equal_numbers_have_a_mean_too(how: ChangeRuleName) -> None:
    assert play(lambda _: 3.0, how=how).ending is BisectionEnding.NO_DIFFERENCE
    assert first_changed(play(lambda place: float(place >= 2), 5, how=how)) == [2]
