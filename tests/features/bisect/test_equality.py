"""Which numbers count as one, and what numbers that repeat say of the answers."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from torchscale.features.bisect.equality import Equality, Sameness, apart
from torchscale.features.bisect.hypotheses import factorial, steps

NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("first", "second", "tolerance", "same"),
    [
        (1.0, 1.0, 0, True),
        (1.0, math.nextafter(1.0, 2), 0, False),
        (0.0, -0.0, 0, True),
        (NAN, NAN, 0, True),
        (NAN, 1.0, 1, False),
        (INF, INF, 0, True),
        (INF, -INF, 1, False),
        (INF, 1.0, 1, False),
        (1.0, 1 + 1e-7, 1e-6, True),
        (1.0, 1 + 2e-6, 1e-6, False),
        (1e-9, 1e-7, 1e-6, True),
        (1000.0, 1000.0009, 1e-6, True),
    ],
)
def test_the_rule_of_sameness(first: float, second: float, tolerance: float, same: bool) -> None:
    assert Sameness(tolerance).holds(first, second) is same


def test_by_kind_all_finite_numbers_are_one_and_all_others() -> None:
    same = Sameness(by_kind=True)
    assert same.holds(1, 2)
    assert not same.holds(1, NAN)
    assert not same.holds(-INF, 1)
    assert same.holds(INF, NAN)
    assert same.holds(NAN, NAN)


def test_how_far_numbers_are_apart() -> None:
    assert apart(1, -2) == 3
    assert apart(NAN, NAN) == apart(INF, INF) == 0
    assert apart(NAN, 1) == apart(INF, -INF) == INF


def searched(
    number: Callable[[int], float],
    count: int,
    *,
    unusable: frozenset[int] = frozenset(),
    tolerance: float = 0.0,
) -> tuple[Equality, int]:
    """A search among versions to its end, and the launches that it took after those of the ends."""
    values = {place: [number(place)] * 2 for place in (0, count - 1)}
    equality = Equality(steps(count), count, values, unusable, Sameness(tolerance))
    launches = 0
    while (asked := equality.next_launch()) is not None:
        values.setdefault(asked, []).append(number(asked))
        launches += 1
        equality = Equality(steps(count), count, values, unusable, Sameness(tolerance))
    return equality, launches


@pytest.mark.parametrize("first", range(1, 12))
def test_one_version_of_twelve_in_halvings_and_a_repeat(first: int) -> None:
    equality, launches = searched(lambda place: 2.5 - 1e-12 * (place >= first), 12)
    assert [one.members for one in equality.answer] == [(first,)]
    assert len(equality.shifts) == 1
    assert launches <= 4 + 2


def test_a_third_number_is_a_further_change_and_the_largest_is_the_answer() -> None:
    equality, _ = searched(lambda place: 1.0 + 0.01 * (place >= 3) + 2 * (place >= 8), 12)
    assert [(one.before, one.after) for one in equality.shifts] == [(7, 8), (2, 3)]
    assert equality.levels[7] == 2


def test_a_change_that_is_taken_back_is_seen_where_it_was_met() -> None:
    equality, _ = searched(lambda place: {6: 9.0, 7: 9.0}.get(place, 1.0 + (place > 10)), 12)
    assert {(one.before, one.after) for one in equality.shifts} == {(5, 6), (7, 8), (10, 11)}
    assert equality.levels[8] == 0


def test_what_cannot_be_launched_is_named_beside_the_answer() -> None:
    equality, _ = searched(lambda place: float(place >= 5), 12, unusable=frozenset({4, 5}))
    assert [one.members for one in equality.answer] == [(4,), (5,), (6,)]


def test_where_each_version_differs_only_the_largest_changes_are_searched() -> None:
    equality, launches = searched(lambda place: place + 1e3 * (place >= 77), 200)
    assert [one.members for one in equality.answer] == [(77,)]
    assert launches < 40


def test_a_tolerance_leaves_small_changes_out() -> None:
    equality, _ = searched(lambda place: 1e-8 * place + (place >= 4), 12, tolerance=1e-6)
    assert [one.members for one in equality.answer] == [(4,)]
    assert len(equality.shifts) == 1


def test_launches_that_do_not_repeat_each_other_are_told() -> None:
    same = Sameness(0.1)
    assert Equality(steps(3), 3, {0: [1, 1.05], 2: [2, 2]}, frozenset(), same).unlike is None
    assert Equality(steps(3), 3, {0: [1, 1.05], 2: [2, 3]}, frozenset(), same).unlike == 2


@pytest.mark.parametrize("truth", factorial(3), ids=lambda one: f"{one.kind.value}{one.members}")
def test_all_answers_of_three_factors(truth: object) -> None:
    hypotheses = factorial(3)
    one = next(each for each in hypotheses if each == truth)

    def number(place: int) -> float:
        return sum(2.0**which for which, effect in enumerate(one.effects) if effect[place])

    values = {place: [number(place)] * 2 for place in (0, 7)}
    equality = Equality(hypotheses, 8, values, frozenset(), Sameness())
    while (asked := equality.next_launch()) is not None:
        values.setdefault(asked, []).append(number(asked))
        equality = Equality(hypotheses, 8, values, frozenset(), Sameness())
    assert equality.answer == [one]
    assert {0, 1, 2, 4, 7} <= values.keys()


def test_no_answer_where_all_three_factors_change_it_in_ways_of_their_own() -> None:
    values = {place: [float(place)] * 2 for place in range(8)}
    equality = Equality(factorial(3), 8, values, frozenset(), Sameness())
    assert equality.next_launch() is None
    assert equality.answer == []
