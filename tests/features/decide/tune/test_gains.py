"""Gains by hand and in simulation."""

from __future__ import annotations

import math
import random
import statistics

import pytest

from torchscale.features.decide.tune.gains import (
    Gain,
    GainVerdict,
    paired_gain,
    smallest_visible,
    verdict_of,
)


@pytest.mark.parametrize(
    ("log", "error", "verdict"),
    [
        (0.1, 0.01, GainVerdict.FASTER),
        (-0.1, 0.01, GainVerdict.SLOWER),
        (0.001, 0.001, GainVerdict.NO_GAIN),
        (0.02, 0.02, GainVerdict.OPEN),
        (-0.01, 0.05, GainVerdict.OPEN),
    ],
)
def test_verdicts(log: float, error: float, verdict: GainVerdict) -> None:
    assert verdict_of(Gain(log, error, degrees=20, rounds=5)) is verdict


def test_a_paired_gain_by_hand() -> None:
    """The standard error is that of the differences."""
    gain = paired_gain([(0.1, 0.0), (0.2, 0.0), (0.3, 0.0)])
    assert gain is not None
    assert gain.log == pytest.approx(0.2)
    assert (gain.degrees, gain.rounds) == (2, 3)
    assert gain.error == pytest.approx(statistics.stdev([0.1, 0.2, 0.3]) / math.sqrt(3))
    assert gain.interval()[0] < math.exp(0.2) < gain.interval()[1]
    assert paired_gain([(0.1, 0.0)]) is None
    assert paired_gain([(0.1, 0.0), (0.2, 0.0)]) is not None, "two have a spread"


def test_the_smallest_visible_gain_is_seen_four_times_in_five() -> None:
    """Simulated with the gain that it names."""
    pairs, noise = 8, 0.01
    seen = smallest_visible(noise * math.sqrt(2 / pairs), pairs - 1)
    draw = random.Random(5)
    found = 0
    for _ in range(600):
        gain = paired_gain(
            [(math.log1p(seen) + draw.gauss(0, noise), draw.gauss(0, noise)) for _ in range(pairs)]
        )
        found += gain is not None and gain.interval()[0] > 1
    assert 0.74 <= found / 600 <= 0.88
