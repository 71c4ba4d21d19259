"""Devices that run nothing: told where most of the time is lost so, and nothing else explains
it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.analysis.diagnosis.test_diagnose import BATCHES, STEP, found, quiet, slow, why_not
from torchscale.analysis.diagnosis.diagnose import diagnose
from torchscale.analysis.diagnosis.signals import DeviceUse, SignalOrigin
from torchscale.schema.profiles.finding import Confidence, FindingKind

IDLE = DeviceUse((0.11, 0.13, 0.12, 0.12), 30)


def test_devices_that_idle_most_of_the_time_are_a_finding() -> None:
    finding = found(quiet(device_use=IDLE))[FindingKind.IDLE_DEVICE]
    assert finding.kind.label == "Idle GPUs"
    assert finding.summary.startswith("GPUs were busy 11 % to 13 % of the time, and no rule found")
    assert finding.cost_seconds == pytest.approx(0.87 * STEP), "what the busiest rank idles"
    assert finding.cost_percent == pytest.approx(87.0)
    assert finding.rank is None
    assert "larger batches" in finding.advice


@pytest.mark.parametrize(("busy", "told"), [(0.49, True), (0.5, False), (0.97, False)])
def test_half_of_the_time_is_most_of_it(busy: float, told: bool) -> None:
    kinds = set(found(quiet(device_use=DeviceUse((busy,) * 4, 30))))
    assert kinds == ({FindingKind.IDLE_DEVICE} if told else set())


def test_one_rank_that_idles_is_not_what_limits_the_others() -> None:
    assert not found(quiet(device_use=DeviceUse((0.1, 0.9, 0.9, 0.9), 30)))


@pytest.mark.parametrize(
    ("readings", "confidence"),
    [(4, None), (5, Confidence.MEDIUM), (19, Confidence.MEDIUM), (20, Confidence.HIGH)],
)
def test_few_readings_decide_nothing(readings: int, confidence: Confidence | None) -> None:
    signals = quiet(device_use=replace(IDLE, readings=readings))
    if confidence is None:
        assert "fewer than 5 readings" in why_not(signals, FindingKind.IDLE_DEVICE)
    else:
        assert found(signals)[FindingKind.IDLE_DEVICE].confidence is confidence


def test_a_small_finding_does_not_hide_that_devices_idle() -> None:
    loader = np.full((4, BATCHES), 0.06 * STEP)
    first, second = diagnose(quiet(device_use=IDLE, data_wait=loader)).findings
    assert (first.kind, second.kind) == (FindingKind.IDLE_DEVICE, FindingKind.INPUT_PIPELINE)


def test_what_explains_half_of_the_idle_time_stands_for_it() -> None:
    """A loader, a slow rank or a transfer: devices wait for it."""
    use = DeviceUse((0.4,) * 4, 30)
    for signals, kind in (
        (quiet(data_wait=np.full((4, BATCHES), 0.3 * STEP)), FindingKind.INPUT_PIPELINE),
        (slow(1, 0.32 * STEP), FindingKind.STRAGGLER),
        (quiet(transfer=np.full(BATCHES, 0.3 * STEP)), FindingKind.EXPOSED_COMMUNICATION),
    ):
        assert set(found(replace(signals, device_use=use))) == {kind}
    less = quiet(data_wait=np.full((4, BATCHES), 0.29 * STEP), device_use=use)
    assert FindingKind.IDLE_DEVICE in found(less)


def test_what_no_driver_read_is_not_judged() -> None:
    unread = quiet(device_use=None)
    assert "how busy each rank's device is" in why_not(unread, FindingKind.IDLE_DEVICE)
    for signals in (
        replace(unread, on_device=False),
        replace(unread, origin=SignalOrigin.TRACE),
    ):
        kinds = {item.kind for item in diagnose(signals).abstentions}
        assert FindingKind.IDLE_DEVICE not in kinds, "the rule is not about such signals"
