"""Periods of a series: found at their length, and not where there is none."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from torchscale.analysis.stats.periods import event_period, find_period, latest_period

STEPS = 600


def _noise(seed: int, steps: int = STEPS) -> NDArray[np.float64]:
    """Ten with a long tail upwards, as a host makes it."""
    return 10 + np.random.default_rng(seed).lognormal(-1, 0.7, steps)


@pytest.mark.parametrize("steps", [2, 3, 4, 5, 6, 7, 12, 25, 60, 100, 149])
@pytest.mark.parametrize("seed", range(3))
def test_a_step_that_is_long_again_and_again_has_its_period(steps: int, seed: int) -> None:
    values = _noise(seed)
    values[seed % steps :: steps] += 8
    found = find_period(values)
    assert found is not None
    assert found.steps == steps
    assert found.high[seed % steps]
    assert found.excess == pytest.approx(8, rel=0.15)
    assert found.count == len(range(seed % steps, STEPS, steps))
    assert found.mean == pytest.approx(8 * found.count / STEPS, rel=0.2)


def test_a_period_of_five_hundred_steps_needs_four_of_them() -> None:
    values = _noise(1, 2_100)
    values[100::500] += 30
    found = find_period(values)
    assert found is not None
    assert found.steps == 500
    assert find_period(values[:1_500]) is None


def test_two_places_of_a_period_count_as_one_time() -> None:
    values = _noise(2)
    values[3::10] += 8
    values[4::10] += 8
    found = find_period(values)
    assert found is not None
    assert (found.steps, found.count) == (10, 60)


def test_what_lies_below_the_noise_is_found_by_many_steps() -> None:
    values = np.random.default_rng(5).normal(10, 1, 2_000)
    values[1::4] += 1.5
    found = find_period(values)
    assert found is not None
    assert found.steps == 4


def test_an_epoch_of_a_broken_number_of_batches() -> None:
    values = _noise(3)
    values[np.round(np.arange(0, STEPS, 62.5)).astype(int)] += 30
    found = find_period(values)
    assert found is not None
    assert found.steps in (62, 63)
    assert not found.is_exact
    assert found.count == 10


@pytest.mark.parametrize("seed", range(40))
def test_noise_has_no_period(seed: int) -> None:
    random = np.random.default_rng(seed)
    values = _noise(seed, int(random.integers(100, 1_500)))
    values[random.random(len(values)) < 0.03] += random.exponential(20)
    assert find_period(values) is None


def test_a_change_a_growth_and_spells_are_no_period() -> None:
    changed, grown, spells = _noise(7), _noise(8), _noise(9)
    changed[250:] += 5
    grown += np.linspace(0, 6, STEPS)
    for begin in (100, 300, 460):
        spells[begin : begin + 40] += 20
    assert find_period(changed) is None
    assert find_period(grown) is None
    assert find_period(spells) is None


def test_a_period_beside_a_change_of_level() -> None:
    values = _noise(10)
    values[300:] += 3
    values[::7] += 4
    found = find_period(values)
    assert found is not None
    assert found.steps == 7


def test_equal_values_have_none() -> None:
    assert find_period(np.ones(200)) is None
    assert find_period(np.ones(3)) is None


def test_the_distance_of_events() -> None:
    assert event_period([10, 70, 130, 191, 250]) == 60
    assert event_period([10, 70, 190, 250, 310]) == 60  # one was missed
    assert event_period([10, 70, 130]) is None
    assert event_period([10, 35, 140, 150, 290, 310]) is None
    assert event_period([1, 2, 3, 4, 5]) is None


def test_a_period_that_began_late_is_found_back_to_its_first_time() -> None:
    values = _noise(11)
    values[402::6] += 8
    found = latest_period(values)
    assert found is not None
    assert (found.steps, int(np.flatnonzero(found.high)[0])) == (6, 402)


def test_a_period_that_has_ended_is_none_of_the_last_half() -> None:
    values = _noise(12)
    values[: STEPS // 2 : 5] += 8
    assert latest_period(values[STEPS // 2 :]) is None
