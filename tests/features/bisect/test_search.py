"""What a bisection asks for, and what it answers, on launches that are made up."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from tests.features.bisect.games import play, step_costs
from torchscale.features.bisect.hypotheses import AnswerKind, Hypothesis, factorial, steps
from torchscale.features.bisect.search import (
    LAST_LAUNCHES,
    BisectionEnding,
    BisectionSearch,
    Limits,
)

TWELVE = steps(12)


def found(search: BisectionSearch) -> list[int]:
    """The first slow environments that are left."""
    assert search.ending is BisectionEnding.FOUND
    return [one.members[0] for one in search.answer]


@pytest.mark.parametrize("first_slow", [1, 2, 6, 10, 11])
@pytest.mark.parametrize("cost", [0.1, 0.3])
def test_the_first_slow_one_of_twelve(first_slow: int, cost: float) -> None:
    search = play(TWELVE, step_costs(12, first_slow, cost), noise=0.03, seed=first_slow)
    assert found(search) == [first_slow]
    found_cost = search.cost()
    assert found_cost is not None
    low, high = found_cost.bounds
    assert 0 < low < cost < high
    assert len(search.launches) < 80
    assert min(search.launched(place) for place in search.beside_answer) >= LAST_LAUNCHES


def test_environments_far_from_the_answer_are_not_launched() -> None:
    search = play(TWELVE, step_costs(12, 3, 0.3), noise=0.02)
    assert sum(search.launched(place) == 0 for place in range(12)) >= 5


def test_every_round_compares() -> None:
    """Never one environment alone, but for what the answer lacks in the end."""
    search = BisectionSearch(TWELVE, 12, Limits())
    for _ in range(20):
        asked = search.next_round()
        if search.ending is not None or search._last_launches():
            break
        assert len(set(asked)) == 2
        for environment in asked:
            search.add(environment, 1.1 if environment >= 5 else 1.0)


def test_no_difference_is_an_answer() -> None:
    search = play(TWELVE, [0.0] * 12, noise=0.02)
    assert search.ending is BisectionEnding.NO_DIFFERENCE
    assert search.difference.bounds[1] < 0.03
    assert {launch.environment for launch in search.launches} == {0, 11}


def test_a_bad_end_that_is_faster_is_no_slowdown() -> None:
    assert play(TWELVE, step_costs(12, 4, -0.2), noise=0.02).ending is BisectionEnding.NO_DIFFERENCE


def test_noise_that_hides_the_difference_leaves_it_undecided() -> None:
    search = play(steps(2), [0, 0.05], noise=0.3, limits=Limits(most_launches=30))
    assert (search.ending, search.confirmed) == (BisectionEnding.UNDECIDED, False)
    assert len(search.launches) == 30


def test_it_goes_on_where_an_earlier_session_ended() -> None:
    """The same launches ask for the same next one."""
    whole = play(TWELVE, step_costs(12, 7, 0.1), noise=0.03, seed=3)
    again = BisectionSearch(TWELVE, 12, Limits())
    for launch in whole.launches[:20]:
        again.add(launch.environment, math.exp(launch.log))
    asked = again.next_round()
    assert again.ending is None
    assert whole.launches[20].environment in asked


def test_an_environment_that_cannot_be_built_is_left_out() -> None:
    search = BisectionSearch(TWELVE, 12, Limits())
    search.set_unusable(5, "could not be built")
    while asked := search.next_round():
        assert 5 not in asked
        for place in asked:
            search.add(place, 1.2 if place >= 5 else 1.0)
    assert found(search) == [5, 6]
    assert search.beside_answer == [4, 6]


@pytest.mark.parametrize("end", [0, 11])
def test_an_end_that_cannot_be_built_ends_it(end: int) -> None:
    search = BisectionSearch(TWELVE, 12, Limits())
    search.set_unusable(end, "could not be built")
    assert search.ending is BisectionEnding.UNUSABLE
    assert search.next_round() == []


def test_one_failed_launch_is_repeated_and_a_second_one_counts() -> None:
    search = BisectionSearch(TWELVE, 12, Limits())
    search.add_failure(11, "failed: exit code 1")
    assert search.ending is None
    search.add(11, 1.0)
    search.add_failure(11, "failed: exit code 1")
    assert search.ending is None
    search.add_failure(11, "failed: exit code 1")
    assert search.unusable == {11: "failed: exit code 1"}


@pytest.mark.parametrize("kind", list(AnswerKind))
def test_which_of_two_factors(kind: AnswerKind) -> None:
    answers = factorial(2)
    for truth in [one for one in answers if one.kind is kind]:
        costs = [math.expm1(_log(truth, place)) for place in range(4)]
        search = play(answers, costs, noise=0.02, seed=1)
        assert search.ending is BisectionEnding.FOUND
        assert search.answer == [truth]


def _log(truth: Hypothesis, place: int) -> float:
    return sum(0.1 * effect[place] for effect in truth.effects)


def test_combinations_that_cannot_be_built_are_said_to_be_confused() -> None:
    search = BisectionSearch(factorial(2), 4, Limits())
    search.set_unusable(1, "could not be built")
    search.set_unusable(2, "could not be built")
    while asked := search.next_round():
        for place in asked:
            search.add(place, 1.2 if place == 3 else 1.0)
    assert search.ending is BisectionEnding.FOUND
    assert {one.kind for one in search.answer} >= {
        AnswerKind.ALONE,
        AnswerKind.TOGETHER,
        AnswerKind.EITHER,
    }


def test_an_environment_with_two_states_in_between_is_named_and_left_out() -> None:
    search = play(TWELVE, step_costs(12, 6, 0.2), noise=0.01, states={5: (0.5, 0.2)}, seed=2)
    assert list(search.modes) == [5]
    assert found(search) == [5, 6]


def test_two_states_beside_the_answer_that_the_noise_nearly_hides_are_named() -> None:
    """Four and a half noises apart, right before the first slow one."""
    right = 0
    for seed in range(10):
        costs = step_costs(12, 6, 0.25)
        search = play(TWELVE, costs, noise=0.05, states={5: (0.5, 0.25)}, seed=seed)
        is_named = {*search.modes, *search.unsteady} == {5}
        right += is_named and search.ending is BisectionEnding.FOUND and found(search) == [5, 6]
    assert right >= 8


def test_a_version_with_more_noise_does_not_count_and_is_named() -> None:
    search = play(TWELVE, step_costs(12, 6, 0.2), noise=0.02, noises={5: 0.1}, seed=4)
    assert (search.unsteady, search.modes) == ({5}, {})
    assert found(search) == [5, 6]
    assert search.noise == pytest.approx(0.02, rel=0.3)


def test_ends_are_never_left_out_for_their_noise() -> None:
    search = BisectionSearch(TWELVE, 12, Limits())
    random = np.random.default_rng(5)
    for _ in range(40):
        for place in (0, 11, 4, 5):
            noise = 0.1 if place in search.ends else 0.02
            search.add(place, math.exp(0.2 * (place >= 5) + noise * random.standard_normal()))
    assert search.unsteady == set()


def test_two_states_of_the_bad_end_are_followed_to_where_they_begin() -> None:
    states = dict.fromkeys(range(4, 12), (0.5, 0.3))
    search = play(TWELVE, [0.0] * 12, noise=0.02, states=states, seed=5)
    assert search.counts_slow_launches
    assert found(search) == [4]
    slow, count = search.slow_launches(range(4))
    assert slow <= 1 < count


def test_two_states_of_the_good_end_leave_no_answer() -> None:
    search = BisectionSearch(TWELVE, 12, Limits())
    good = itertools.cycle([1.0, 1.3, 1.31, 1.01, 1.32, 0.99])
    while asked := search.next_round():
        assert set(asked) == {0, 11}
        for place in asked:
            search.add(place, next(good) if place == 0 else 1.17)
    assert search.ending is BisectionEnding.TWO_STATES


def test_a_machine_that_is_disturbed_now_and_then_has_no_environment_with_two_states() -> None:
    everywhere = dict.fromkeys(range(12), (0.1, 0.3))
    exact = 0
    for seed in range(10):
        search = play(TWELVE, step_costs(12, 6, 0.5), noise=0.02, states=everywhere, seed=seed)
        assert 6 in found(search)
        exact += found(search) == [6]
        assert len({*search.modes, *search.unsteady}) == (found(search) != [6])
    assert exact >= 9


def test_a_level_that_drifts_misleads_nobody() -> None:
    search = play(TWELVE, step_costs(12, 8, 0.1), noise=0.02, drift=0.01, seed=6)
    assert found(search) == [8]


def test_a_further_step_is_told() -> None:
    costs = [0, 0, 0, 0.1, 0.1, 0.1, 0.21, 0.21]
    told = 0
    for seed in range(5):
        search = play(steps(8), costs, noise=0.01, seed=seed)
        further = search.second_step() if search.ending is BisectionEnding.FOUND else None
        told += further is not None
    assert told >= 3


def test_one_step_is_not_told_as_two() -> None:
    for seed in range(10):
        search = play(steps(8), step_costs(8, 4, 0.1), noise=0.01, seed=seed)
        assert search.second_step() is None
