"""What launches of some combinations say about all."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from torchscale.features.decide.tune import surface
from torchscale.features.decide.tune.surface import START, AxisChange, Setting, Surface

A, B, C1, C2 = (
    AxisChange("a", "1"),
    AxisChange("b", "1"),
    AxisChange("c", "1"),
    AxisChange("c", "2"),
)
AXES = {"a": [A], "b": [B], "c": [C1, C2]}
NOISE = 0.005**2


def measured(
    gains: dict[AxisChange, float], settings: list[Setting], *, noise: float = 0.0
) -> list[tuple[Setting, float]]:
    draw = random.Random(0)
    return [
        (one, math.fsum(gains.get(change, 0.0) for change in one) + draw.gauss(0, noise))
        for one in settings
    ]


def test_launches_of_single_changes_tell_of_combinations_that_never_ran() -> None:
    gains = {A: 0.2, B: 0.1, C1: -0.3, C2: 0.05}
    outlook = Surface(AXES).outlook(measured(gains, [START, (A,), (B,), (C1,), (C2,)]), NOISE)
    assert outlook.best == outlook.next == (A, B, C2)
    assert outlook.gain == pytest.approx(0.35, abs=0.05)
    assert 0.02 < outlook.error < 0.15  # what they add to or take from each other is not known yet
    assert outlook.regret > 0


def test_what_is_measured_often_is_known() -> None:
    gains = {A: 0.2, B: 0.1, C1: -0.3, C2: 0.05}
    every: list[Setting] = [
        START,
        (A,),
        (B,),
        (C1,),
        (C2,),
        (A, B),
        (A, C2),
        (B, C2),
        (A, B, C2),
        (A, B, C1),
    ]
    outlook = Surface(AXES).outlook(measured(gains, every * 3, noise=0.005), NOISE)
    assert (outlook.best, outlook.simplest) == ((A, B, C2), (A, B, C2))
    assert outlook.gain == pytest.approx(0.35, abs=0.01)
    assert outlook.error < 0.01
    assert outlook.regret < 0.005


def test_a_change_that_gives_nothing_is_left_out() -> None:
    settings: list[Setting] = [START, (A,), (B,), (A, B)]
    outlook = Surface({"a": [A], "b": [B]}).outlook(
        measured({A: 0.2, B: 0.001}, settings * 4, noise=0.005), NOISE
    )
    assert outlook.simplest == (A,)


def test_a_combination_that_failed_leaves_with_all_that_contain_it() -> None:
    every = Surface(AXES)
    every.exclude((A, B))
    outlook = every.outlook(
        measured({A: 0.2, B: 0.3, C2: 0.1}, [START, (A,), (B,), (C1,), (C2,)]), NOISE
    )
    assert outlook.best == (B, C2)


def test_the_same_launches_give_the_same_answer() -> None:
    launches = measured({A: 0.02, B: 0.01}, [START, (A,), (B,), (C1,), (C2,)], noise=0.02)
    assert Surface(AXES).outlook(launches, 4e-4) == Surface(AXES).outlook(launches, 4e-4)


def test_of_very_many_combinations_those_of_few_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 3 axes of 3 values each: 1 + 9 + 27 of at most two changes, and not the 27 of three."""
    monkeypatch.setattr(surface, "MAX_SETTINGS", 40)
    axes = {name: [AxisChange(name, value) for value in "123"] for name in "abc"}
    found = Surface(axes)
    gains = {change: 0.1 for changes in axes.values() for change in changes}
    singles: list[Setting] = [START, *((change,) for change in gains)]
    assert len(found.outlook(measured(gains, singles), NOISE).best) == 2


def test_intervals_of_the_winner_cover_the_truth() -> None:
    """Of machines of the kind that is assumed: 68 % within one standard deviation."""
    covered = 0
    for seed in range(100):
        draw = random.Random(seed)
        gains = {change: draw.gauss(0, 0.15) for change in (A, B, C1, C2)}
        launches = [
            (one, math.fsum(gains[change] for change in one) + draw.gauss(0, 0.02))
            for one in ([START, (A,), (B,), (C1,), (C2,), (A, B), START, (A, C1)])
        ]
        outlook = Surface(AXES).outlook(launches, 0.02**2)
        covered += (
            abs(outlook.gain - math.fsum(gains[change] for change in outlook.simplest))
            < outlook.error
        )
    assert 60 <= covered <= 95


@pytest.mark.parametrize("launches", [4, 16, 64])
def test_the_error_of_a_single_change_is_that_of_the_means_of_its_launches(launches: int) -> None:
    """By which a search without a winner says what gain it could have seen."""
    every: list[Setting] = [START, (A,)]
    outlook = Surface({"a": [A]}).outlook(measured({A: 0.1}, every * launches), NOISE)
    assert outlook.single_error == pytest.approx(math.sqrt(NOISE * 2 / launches), rel=0.3)


def test_the_number_of_launches_of_the_best_and_of_its_rival_decides_which_is_next() -> None:
    """The one that was launched less often; of as many the rival; and the best that never ran."""
    gains, axes = {A: 0.1, B: 0.095}, {"a": [A], "b": [B]}
    found = Surface(axes)
    found.exclude((A, B))

    def following(first: int, second: int) -> Setting:
        settings: list[Setting] = [START, *[(A,)] * first, *[(B,)] * second]
        outlook = found.outlook(measured(gains, settings), NOISE)
        assert outlook.best == (A,)
        return outlook.next

    assert following(2, 1) == (B,)
    assert following(2, 2) == (B,)
    assert following(2, 3) == (A,)


def test_without_a_change_there_is_no_error_of_one() -> None:
    assert Surface({}).outlook(measured({}, [START, START]), NOISE).single_error is None


@pytest.mark.parametrize("axes", [1, 3])
def test_the_variance_of_a_combination_is_its_covariance_with_itself(axes: int) -> None:
    """Else what is known of a combination that never ran would be wrong, and with it which launch
    says most."""
    codes = np.arange(axes)[None]
    for found in (Surface(AXES), Surface(PARTS, TRAITS)):
        assert found._kernel(codes, codes)[0, 0] == pytest.approx(found._own_variance(axes))


def test_of_many_combinations_those_that_may_be_the_fastest_are_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Which are those of which little is known, and not those that were measured most."""
    monkeypatch.setattr(surface, "_LEADING", 1)
    settings: list[Setting] = [START, (A,)]
    outlook = Surface(AXES).outlook(measured({A: 0.1}, settings * 8), NOISE)
    assert outlook.best == (A,)
    assert len(outlook.next) == 3
    assert outlook.regret > 0.05


TRAITS = {
    "s": {
        None: ("1", "1"),
        AxisChange("s", "a"): ("2", "1"),
        AxisChange("s", "b"): ("1", "2"),
        AxisChange("s", "ab"): ("2", "2"),
    }
}
PARTS = {"s": [AxisChange("s", "a"), AxisChange("s", "b"), AxisChange("s", "ab")]}


def test_a_value_that_never_ran_is_expected_to_be_what_its_traits_are() -> None:
    """Both parts gain, so that their product is launched next; where one loses a lot, it is not
    expected to be worth it."""
    a, b, both = PARTS["s"]
    parts: list[Setting] = [START, (a,), (b,)]
    gains = Surface(PARTS, TRAITS).outlook(measured({a: 0.2, b: 0.2}, parts), NOISE)
    assert gains.best == gains.next == (both,)
    losing = measured({a: 0.2, b: -1.0}, parts * 2)
    losses = Surface(PARTS, TRAITS).outlook(losing, NOISE)
    assert losses.best == (a,)
    assert losses.next != (both,)
    without = Surface(PARTS).outlook(measured({a: 0.2, b: 0.2}, parts), NOISE)
    assert without.best != (both,)


def test_of_values_that_are_about_as_fast_the_first_is_taken() -> None:
    """The last is 0.2 % faster, which nobody would see."""
    a, b, both = PARTS["s"]
    settings: list[Setting] = [START, (a,), (b,), (both,)]
    found = measured({a: 0.1, b: 0.101, both: 0.102}, settings * 8, noise=0.002)
    assert Surface(PARTS, TRAITS).outlook(found, 4e-6).simplest == (a,)


def test_a_combination_that_failed_alone_leaves_what_contains_it() -> None:
    every = Surface(AXES)
    every.exclude((A,), alone=True)
    others: list[Setting] = [START, (B,), (C1,), (C2,), (A, B)]
    outlook = every.outlook(measured({A: 0.2, B: 0.3, C2: 0.1}, others), NOISE)
    assert outlook.best == (A, B, C2)


def test_combinations_that_are_known_to_be_alike_are_drawn_alike() -> None:
    """Rounding leaves the variance of their difference below zero."""
    alike = np.array([[1.0, 1.0 + 1e-15], [1.0 + 1e-15, 1.0]])
    drawn = surface._draws(np.array([0.0, 0.5]), alike, seed=1)
    assert drawn[1] - drawn[0] == pytest.approx(np.full(drawn.shape[1], 0.5), abs=1e-5)
    assert drawn[0].std() == pytest.approx(1.0, rel=0.2)


def test_launches_without_noise_leave_nothing_unknown_of_what_ran() -> None:
    gains = {A: 0.2, B: 0.1, C1: -0.3, C2: 0.05}
    every = Surface(AXES)
    settings: list[Setting] = [START, (A,), (B,), (C1,), (C2,), (A, B), (A, B, C2)]
    outlook = every.outlook(measured(gains, settings), 1e-10)
    assert outlook.best == outlook.simplest == (A, B, C2)
    assert outlook.gain == pytest.approx(0.35, abs=1e-3)
    assert outlook.error == pytest.approx(0, abs=1e-3)
