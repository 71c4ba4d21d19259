"""Races by simulation: how often they drop the fastest setting, and intervals worked by hand."""

from __future__ import annotations

import math
import random
import statistics

import pytest

from torchscale.analysis.tuning.racing import Race, Verdict, paired_gain, smallest_visible

ROUNDS = 5


def simulated(gains: dict[str, float], noise: dict[str, float] | float, seed: int) -> tuple[Race[str], dict[str, int]]:
    """A race of ``gains`` (logarithms over the reference) with drift from round to round; when each setting left."""
    draw = random.Random(seed)
    names = ["reference", *gains]
    logs: dict[str, list[float]] = {name: [] for name in names}
    left: dict[str, int] = {}
    groups = dict.fromkeys(gains, "axis")
    for number in range(ROUNDS):
        level = draw.gauss(0, 0.05)
        for name in names:
            if name not in left:
                spread = noise if isinstance(noise, float) else noise[name]
                logs[name].append(level + gains.get(name, 0.0) + draw.gauss(0, spread))
        race = Race("reference", logs)
        if number > 0:
            for name, verdict in race.verdicts(groups, looks=ROUNDS - 1).items():
                if verdict in (Verdict.SLOWER, Verdict.NO_GAIN):
                    left.setdefault(name, number)
    return Race("reference", logs), left


@pytest.mark.parametrize("spread", [0.005, 0.03])
@pytest.mark.parametrize("rivals", [1, 6])
def test_the_fastest_setting_is_rarely_dropped(spread: float, rivals: int) -> None:
    """The best of several that gain nearly as much: its drop is the error that the race bounds by 5 %."""
    gains = {"best": 0.03} | {f"rival {number}": 0.029 for number in range(rivals)}
    dropped = sum("best" in simulated(gains, spread, seed)[1] for seed in range(250))
    assert dropped <= 0.05 * 250 + 3 * math.sqrt(0.05 * 0.95 * 250)


def test_unequal_noise_raises_the_error_only_a_little() -> None:
    """The best setting is four times as noisy as the others, which the pooled estimate does not know."""
    gains = {"best": 0.03, "other": 0.025, "same": 0.0, "worse": -0.02}
    noise = {"reference": 0.01, "best": 0.04, "other": 0.01, "same": 0.01, "worse": 0.01}
    dropped = sum("best" in simulated(gains, noise, seed)[1] for seed in range(250))
    assert dropped <= 0.1 * 250


def test_clear_losers_leave_in_the_second_round() -> None:
    """A loss of a tenth at a noise of half a percent needs no third launch."""
    gains = {"best": 0.05} | {f"loser {number}": -0.1 for number in range(4)}
    early = [simulated(gains, 0.005, seed)[1].get("loser 0") for seed in range(50)]
    assert early.count(1) >= 45


def test_a_setting_without_any_gain_leaves_when_that_is_sure() -> None:
    """Equal to the start within a thousandth."""
    race = Race("start", {"start": [0.0, 0.001, 0.0, 0.001], "same": [0.001, 0.0, 0.001, 0.0]})
    assert race.verdicts({"same": "axis"}, looks=4)["same"] is Verdict.NO_GAIN


def test_two_faster_ones_of_a_group_race_on() -> None:
    """Both beat the start, and neither the other; of different groups, both are done."""
    logs = {"start": [0.0, 0.0, 0.001], "one": [0.2, 0.2, 0.201], "two": [0.2, 0.201, 0.2]}
    race = Race("start", logs)
    assert set(race.verdicts({"one": "axis", "two": "axis"}, looks=4).values()) == {Verdict.OPEN}
    assert set(race.verdicts({"one": "axis", "two": "other"}, looks=4).values()) == {Verdict.FASTER}


def test_intervals_cover_the_truth() -> None:
    """Of the gain of one of five settings: about 95 in 100 intervals; rounds that slow all alike cancel."""
    covered = 0
    for seed in range(250):
        race, _ = simulated({"a": 0.02, "b": 0.02, "c": 0.02, "d": 0.02}, 0.02, seed)
        gain = race.gain("a")
        assert gain is not None
        low, high = gain.interval()
        covered += low <= math.exp(0.02) <= high
    assert covered >= 0.93 * 250


def test_noise_by_hand() -> None:
    """Two settings, two rounds: residuals are ±0.25 each, one degree of freedom."""
    noise = Race("start", {"start": [0.0, 1.0], "other": [1.0, 3.0]}).noise()
    assert noise is not None
    assert noise.variance == pytest.approx(4 * 0.25**2)
    assert noise.degrees == 1
    assert Race("start", {"start": [0.0], "other": [1.0]}).noise() is None


def test_a_paired_gain_by_hand() -> None:
    """The standard error is that of the differences."""
    gain = paired_gain([(0.1, 0.0), (0.2, 0.0), (0.3, 0.0)])
    assert gain is not None
    assert gain.log == pytest.approx(0.2)
    assert (gain.degrees, gain.rounds) == (2, 3)
    assert gain.error == pytest.approx(statistics.stdev([0.1, 0.2, 0.3]) / math.sqrt(3))
    assert gain.interval()[0] < math.exp(0.2) < gain.interval()[1]
    assert paired_gain([(0.1, 0.0)]) is None


def test_the_smallest_visible_gain_is_seen_four_times_in_five() -> None:
    """Simulated with the gain that it names."""
    pairs, noise = 8, 0.01
    seen = smallest_visible(noise * math.sqrt(2 / pairs), pairs - 1)
    draw = random.Random(5)
    found = 0
    for _ in range(600):
        gain = paired_gain([(math.log1p(seen) + draw.gauss(0, noise), draw.gauss(0, noise)) for _ in range(pairs)])
        found += gain is not None and gain.interval()[0] > 1
    assert 0.74 <= found / 600 <= 0.88
