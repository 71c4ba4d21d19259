"""What grows, and what only looks like it."""

from __future__ import annotations

import numpy as np
import pytest

from tests.features.watch.analysis.everyday.made import memory
from torchscale.features.watch.analysis.everyday.trend import MemoryTrend, growth

MIB = 1 << 20
TIME = np.linspace(0, 1, 1_200)
BASE = 500 * MIB


def trend_of(values: np.ndarray, *, seconds: float = 600.0, seed: int = 0) -> MemoryTrend | None:
    noise = np.random.default_rng(seed).normal(0, 4 * MIB, len(values))
    readings = memory(values + noise, seconds=seconds)
    return growth(readings.time_ns, readings.step, readings.resident.astype(float))


GROWING = {
    "a leak": 200 * MIB * TIME,
    "a leak with peaks": 200 * MIB * TIME + 2_000 * MIB * (np.arange(1_200) % 100 < 4),
    "a leak with saw teeth": 200 * MIB * TIME + 100 * MIB * ((TIME * 40) % 1),
    "a list that grows each epoch": 400 * MIB * np.floor(TIME * 12) / 12,
    "faster and faster": 300 * MIB * TIME**2,
}
STEADY = {
    "flat": 0 * TIME,
    "a plateau": 300 * MIB * (1 - np.exp(-20 * TIME)),
    "a late plateau": 300 * MIB * (1 - np.exp(-5 * TIME)),
    "a logarithm": 100 * MIB * np.log1p(200 * TIME),
    "saw teeth": 200 * MIB * ((TIME * 8) % 1),
    "few saw teeth": 200 * MIB * ((TIME * 3) % 1),
    "peaks": 2_000 * MIB * (np.arange(1_200) % 100 < 4),
    "a buffer": 300 * MIB * (TIME > 0.6),
    "two buffers": 200 * MIB * (TIME > 0.4) + 200 * MIB * (TIME > 0.8),
    "a cache that is full": 300 * MIB * np.minimum(TIME, 0.7),
    "a start in a sigmoid": 160 * MIB / (1 + np.exp(-14 * (TIME - 0.6))),
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", GROWING)
def test_what_is_kept_from_step_to_step_grows(name: str, seed: int) -> None:
    trend = trend_of(BASE + GROWING[name], seed=seed)

    assert trend is not None
    assert trend.least <= trend.per_second <= trend.most
    assert trend.grown > 150 * MIB


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", STEADY)
def test_what_settles_or_comes_and_goes_does_not(name: str, seed: int) -> None:
    assert trend_of(BASE + STEADY[name], seed=seed) is None


def test_the_rate_is_that_of_the_leak_with_an_interval_around_it() -> None:
    trend = trend_of(BASE + GROWING["a leak with peaks"])

    assert trend is not None
    assert trend.per_second == pytest.approx(200 * MIB / 600, rel=0.05)
    assert trend.per_step == pytest.approx(200 * MIB / 600, rel=0.05)
    assert trend.least > 0.9 * trend.per_second
    assert trend.most < 1.1 * trend.per_second


def test_some_seconds_and_few_readings_are_no_growth() -> None:
    assert trend_of(BASE + GROWING["a leak"], seconds=15.0) is None
    assert trend_of((BASE + GROWING["a leak"])[::60]) is None
    assert trend_of(np.zeros(0)) is None


def test_a_step_keeps_as_much_whatever_the_pace_of_steps() -> None:
    """Two thirds of the steps in the second half of the time."""
    readings = memory(BASE + 0 * TIME)
    steps = np.interp(TIME, [0, 0.5, 1], [0, 200, 600]).astype(np.int64)
    trend = growth(readings.time_ns, steps, np.asarray(BASE + 0.5 * MIB * steps, np.float64))

    assert trend is not None
    assert trend.per_step == pytest.approx(0.5 * MIB, rel=0.05)


def test_memory_that_grows_between_no_steps_is_not_judged() -> None:
    readings = memory(BASE + GROWING["a leak"])
    steps = np.full(len(TIME), 7)
    assert growth(readings.time_ns, steps, readings.resident.astype(float)) is None


def test_random_walks_are_rarely_lines() -> None:
    steps = [np.random.default_rng(seed).normal(0, 8 * MIB, 1_200) for seed in range(100)]

    assert sum(trend_of(BASE + np.cumsum(one)) is not None for one in steps) <= 5
