"""Launches of settings by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from torchscale.features.decide.tune.gains import GainVerdict
from torchscale.features.decide.tune.surface import START, AxisChange, Setting
from torchscale.features.decide.tune.trials import SettingLaunch, SettingTrials

A, B = AxisChange("a", "1"), AxisChange("b", "1")
PROBE = (AxisChange("comm_hook", "noop"),)
USUAL = 0.03**2
"""Variance from launch to launch before any is known, which counts as one degree of freedom."""


def noted(*launches: tuple[Setting, float], probe: Setting = PROBE) -> SettingTrials:
    """Launches of so many seconds each, whose throughput was 1."""
    trials = SettingTrials({"a": 5.0}, probe)
    for setting, seconds in launches:
        trials.note(setting, SettingLaunch(0.0, seconds))
    return trials


def measured(start: Sequence[float], change: Sequence[float]) -> SettingTrials:
    """Logarithms of throughputs of the start and of one change."""
    trials = SettingTrials({}, PROBE)
    for setting, logs in ((START, start), ((A,), change)):
        for log in logs:
            trials.note(setting, SettingLaunch(log, 1.0))
    return trials


def test_seconds_are_those_of_all_launches_and_new_ones_alone_take_time() -> None:
    trials = noted((START, 3.0), (START, 4.0), ((A,), 5.0))
    trials.note(START, SettingLaunch(0.0, 2.0, recorded=True))
    assert (trials.of[START].launches, trials.of[START].seconds) == (3, 9.0)
    assert (trials.spent_seconds, trials.new_seconds) == (14.0, 12.0)


def test_before_the_first_launch_nothing_is_known_of_how_long_they_take() -> None:
    trials = noted()
    assert trials.launch_seconds is None
    assert trials.expected_seconds(START) == trials.expected_seconds((A,)) == 0.0


def test_a_launch_is_expected_to_take_as_long_as_those_of_its_setting() -> None:
    """Of several the median, the shorter of two."""
    trials = noted((START, 3.0), (START, 3.0), ((B,), 9.0), ((B,), 4.0))
    assert trials.launch_seconds == 3.0
    assert trials.expected_seconds((B,)) == 4.0
    assert noted((START, 3.0), (START, 3.0), ((B,), 9.0)).expected_seconds((B,)) == 9.0


def test_a_launch_of_a_new_setting_takes_what_its_most_expensive_change_takes() -> None:
    trials = noted((START, 3.0), (START, 3.0), ((B,), 4.0))
    assert trials.expected_seconds((A,)) == 5 * 3.0
    assert trials.expected_seconds((A, B)) == 15.0
    assert trials.expected_seconds((AxisChange("c", "1"), B)) == 4.0


def test_the_very_first_launch_is_expected_to_have_been_longer_than_the_next() -> None:
    assert noted((START, 9.0), ((B,), 3.0), ((A,), 3.0)).expected_seconds(START) == 3.0
    assert noted((START, 2.0), ((B,), 3.0), ((A,), 3.0)).expected_seconds(START) == 2.0
    twice = noted((START, 9.0), (START, 9.0), ((B,), 3.0), ((A,), 3.0))
    assert twice.expected_seconds(START) == 9.0


def test_noise_is_pooled_over_settings() -> None:
    """Squares of 0.02 at two degrees, 0.005 at one, and what is usual."""
    assert noted().noise == pytest.approx((USUAL, 1))
    trials = measured([0.0, 0.1, 0.2], [0.5, 0.6])
    assert trials.noise == pytest.approx(((0.02 + 0.005 + USUAL) / 4, 4))
    assert measured([0.0], [0.5]).noise == pytest.approx((USUAL, 1)), "single launches show none"


def test_a_gain_is_the_difference_of_means_with_the_noise_of_all() -> None:
    trials = measured([0.0, 0.0], [0.1, 0.1, 0.1, 0.1])
    gain = trials.gain((A,))
    assert gain is not None
    assert gain.log == pytest.approx(0.1)
    assert (gain.degrees, gain.rounds) == (5, 2)
    assert gain.error == pytest.approx(math.sqrt(USUAL / 5 * (1 / 2 + 1 / 4)))
    assert trials.gain(START, (A,)) is not None
    assert trials.gain((B,)) is None
    assert trials.gain((A,), (B,)) is None


def test_a_setting_that_varies_more_than_others_counts_with_its_own_variance() -> None:
    """From three launches on; the variance of two tells little."""
    trials = measured([0.0] * 6, [0.0, 0.1, 0.2])
    pooled = (0.02 + USUAL) / 8
    gain = trials.gain((A,))
    assert gain is not None
    assert gain.error == pytest.approx(math.sqrt(pooled / 6 + 0.01 / 3))
    back = trials.gain(START, (A,))
    assert back is not None
    assert back.error == pytest.approx(gain.error)
    two = measured([0.0] * 6, [0.0, 0.2]).gain((A,))
    assert two is not None
    assert two.error == pytest.approx(math.sqrt((0.02 + USUAL) / 7 * (1 / 6 + 1 / 2)))


def test_a_launch_that_fails_is_counted_and_says_nothing_of_the_speed() -> None:
    trials = measured([0.0], [0.1])
    trials.note((A,), SettingLaunch(None, 1.0, "oom", "it failed"))
    trial = trials.of[A,]
    assert (trial.state, trial.reason, trial.launches) == ("oom", "it failed", 2)
    assert trials.runs((A,)) == 1
    assert not trials.ran((A,))
    assert trials.ran(START)
    assert (trials.runs((B,)), trials.ran((B,))) == (0, False)


def test_the_history_has_what_succeeded_and_not_the_probe() -> None:
    trials = noted((START, 1.0), (PROBE, 1.0), ((A,), 1.0))
    trials.note((A,), SettingLaunch(None, 1.0, "oom"))
    assert trials.history == [(START, 0.0), ((A,), 0.0)]
    assert noted((START, 1.0), probe=START).history == [(START, 0.0)], "where nothing is probed"


def test_a_launch_of_the_start_tells_of_all_settings() -> None:
    """Both changes gain a tenth over the first launch of it, and lose over the next ones."""
    trials = measured([0.0], [0.1])
    trials.note((B,), SettingLaunch(None, 1.0, "oom"))
    before = trials.of[A,].gain
    for _ in range(40):
        trials.note(START, SettingLaunch(0.4, 1.0))
    after = trials.of[A,].gain
    assert before is not None
    assert after is not None
    assert before.log == pytest.approx(0.1)
    assert after.log < 0
    assert trials.of[A,].verdict is GainVerdict.SLOWER
    assert (trials.of[START].gain, trials.of[B,].gain) == (None, None)
