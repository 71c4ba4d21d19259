"""What a figure is held against, and when it surely misses that."""

from __future__ import annotations

import math

import pytest

from tests.features.validate.acceptance.runs import a_run, baseline_of
from torchscale.catalog.devices import find_device
from torchscale.features.validate.acceptance.estimates import log_level
from torchscale.features.validate.acceptance.limits import (
    COMPUTE_SHARE,
    MEMORY_SHARE,
    Held,
    documented,
    held_against,
    held_against_peers,
)
from torchscale.schema.node.acceptance import AcceptanceRun, LimitKind, Series

NAME = "NVIDIA H100 80GB HBM3"
AROUND = (0.99, 1.0, 1.01)
"""Rounds of one rate."""


def series(figure: str, rates: tuple[float, ...]) -> Series:
    (found,) = a_run({(figure, "GPU 0"): rates}).series
    return found.model_copy(update={"device": NAME})


def held(figure: str, rates: tuple[float, ...]) -> Held:
    (found,) = held_against(series(figure, rates), rates, None, tests=1, world_size=8, loss=0.05)
    assert found.limit.kind is LimitKind.DOCUMENTED
    return found


@pytest.mark.parametrize(
    ("figure", "share"), [("compute bf16", COMPUTE_SHARE), ("memory bandwidth", MEMORY_SHARE)]
)
def test_a_documented_rate_asks_for_its_share(figure: str, share: float) -> None:
    device = find_device(NAME)
    assert device is not None
    rate = device.peak_flops["bf16"] if figure == "compute bf16" else device.memory_bytes_per_second
    assert 0.3 < share < 0.9
    low = held(figure, tuple(rate * share * 0.8 * one for one in AROUND))
    assert (low.surely_low, low.surely_within) == (True, False)
    assert low.limit.rate == pytest.approx(share * rate)
    assert low.deficit == pytest.approx(1 - 0.8 * share, rel=1e-3)
    sound = held(figure, tuple(rate * share * 1.2 * one for one in AROUND))
    assert (sound.surely_low, sound.surely_within) == (False, True)


def test_what_is_documented_nowhere_has_no_such_limit() -> None:
    assert documented(series("compute int3", AROUND)) is None
    assert documented(series("all-reduce", AROUND)) is None
    known = series("compute bf16", AROUND)
    assert documented(known.model_copy(update={"device": "a device"})) is None


def test_an_interval_is_as_wide_as_its_rounds_are_few() -> None:
    """Three and a half standard errors above the limit: beyond Student's t of four degrees (2.8), and
    not of two (4.3)."""
    device = find_device(NAME)
    assert device is not None
    at = math.log(device.memory_bytes_per_second * MEMORY_SHARE)
    spread = 0.02

    def within(logs: tuple[float, ...]) -> bool:
        error = log_level([math.exp(log) for log in logs]).error
        assert error is not None
        above = tuple(math.exp(at + log + 3.5 * error) for log in logs)
        return held("memory bandwidth", above).surely_within

    assert not within((-spread, 0.0, spread))
    assert within((-spread, -spread, 0.0, spread, spread))


def test_a_part_whose_own_interval_reaches_the_limit_is_not_low() -> None:
    parts = {("memory bandwidth", f"GPU {it}"): AROUND for it in range(7)}
    slow, wild = (0.79, 0.8, 0.81), (0.5, 0.8, 1.28)
    for rates, is_low in ((slow, True), (wild, False)):
        run = a_run({**parts, ("memory bandwidth", "GPU 7"): rates})
        levels = {
            place: log_level([value for value in one.values if value is not None])
            for place, one in enumerate(run.series)
        }
        assert held_against_peers(run.series, levels, tests=8)[7].surely_low is is_low


@pytest.mark.parametrize("device", [NAME, "a device"])
def test_a_documented_rate_takes_no_round_of_the_baseline_away(device: str) -> None:
    def of(rates: tuple[float, ...]) -> AcceptanceRun:
        run = a_run({("compute bf16", "GPU 0"): rates})
        (found,) = run.series
        return run.model_copy(update={"series": (found.model_copy(update={"device": device}),)})

    slow = (4.5e14, 4.51e14) * 10
    baseline = baseline_of(of((4.5e14,) * 10 + (5e14,) * 10))
    found = held_against(of(slow).series[0], slow, baseline, tests=1, world_size=8, loss=0.05)
    (one,) = [each for each in found if each.limit.kind is LimitKind.BASELINE]
    assert one.deficit == pytest.approx(0.05, abs=0.002)
