"""What each answer of a bisection says of every environment."""

from __future__ import annotations

import math

from torchscale.features.bisect.hypotheses import (
    AnswerKind,
    combinations,
    factorial,
    steps,
    told_apart,
)


def test_a_step_is_slow_from_its_first_environment_on() -> None:
    answers = steps(4)
    assert [one.members for one in answers] == [(1,), (2,), (3,)]
    assert [[one.is_slow(place) for place in range(4)] for one in answers] == [
        [False, True, True, True],
        [False, False, True, True],
        [False, False, False, True],
    ]
    assert math.isclose(sum(one.weight for one in answers), 1)


def test_the_answers_of_two_factors() -> None:
    assert combinations(2) == ((False, False), (False, True), (True, False), (True, True))
    said = {
        (one.kind, one.members): [one.is_slow(place) for place in range(4)] for one in factorial(2)
    }
    assert said == {
        (AnswerKind.ALONE, (0,)): [False, False, True, True],
        (AnswerKind.ALONE, (1,)): [False, True, False, True],
        (AnswerKind.TOGETHER, (0, 1)): [False, False, False, True],
        (AnswerKind.EITHER, (0, 1)): [False, True, True, True],
        (AnswerKind.SUM, (0, 1)): [False, True, True, True],
    }
    assert math.isclose(sum(one.weight for one in factorial(3)), 1)


def test_a_factor_alone_is_likelier_beforehand_than_all_answers_of_several() -> None:
    for factors in (2, 3, 4):
        alone = sum(one.weight for one in factorial(factors) if one.kind is AnswerKind.ALONE)
        assert math.isclose(alone, 0.8)


def test_answers_that_differ_only_where_nothing_can_be_launched_are_one() -> None:
    groups = told_apart(steps(5), [0, 1, 4])
    assert [[one.members[0] for one in group] for group in groups] == [[1], [2, 3, 4]]


def test_two_costs_are_not_mistaken_for_one() -> None:
    assert len(told_apart(factorial(2), range(4))) == 5
