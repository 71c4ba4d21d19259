"""Gains by hand and in simulation."""

from __future__ import annotations

import math
import random
import statistics

import pytest

from torchscale.features.decide.tune.gains import (
    MARGIN,
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
        (0.0, 0.0, GainVerdict.NO_GAIN),
        (MARGIN, 0.0, GainVerdict.FASTER),
        (0.9 * MARGIN, 0.0, GainVerdict.NO_GAIN),
        (0.0172, 0.01, GainVerdict.OPEN),
        (0.0173, 0.01, GainVerdict.FASTER),
        (-0.0172, 0.01, GainVerdict.NO_GAIN),
        (-0.0173, 0.01, GainVerdict.SLOWER),
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


def test_an_interval_by_hand() -> None:
    """Student's t at 20 degrees of freedom: 2.086 at 0.975, 0.860 at 0.8."""
    gain = Gain(0.2, 0.01, degrees=20, rounds=5)
    assert gain.ratio == pytest.approx(math.exp(0.2))
    assert gain.interval() == pytest.approx((math.exp(0.17914), math.exp(0.22086)), rel=1e-5)
    assert gain.interval(0.6) == pytest.approx((math.exp(0.1914), math.exp(0.2086)), rel=1e-5)
    assert smallest_visible(0.01, 20) == pytest.approx(math.expm1(0.02946), rel=1e-3)
