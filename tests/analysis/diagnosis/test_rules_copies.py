"""Copies by the device: what they cost, and that no second is told twice."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.analysis.diagnosis.test_diagnose import STEP, found, quiet
from torchscale.analysis.diagnosis.signals import CopyRoute, CopyUse
from torchscale.schema.profiles.finding import Confidence, Finding, FindingKind


def use(exposed: float, route: CopyRoute = CopyRoute.HOST_TO_DEVICE, **changes: Any) -> CopyUse:
    content = {
        "bytes_per_step": 3 << 30,
        "bytes_per_second": 24e9,
        "busy_seconds": exposed + 0.005,
        "exposed_seconds": exposed,
        "overlap": 0.25,
        "is_pinned": True,
        **changes,
    }
    return CopyUse(route, **content)


def copying(*copies: CopyUse, **changes: Any) -> Finding | None:
    return found(quiet(copies=copies, **changes)).get(FindingKind.COPY_BOUND)


def test_copies_of_all_routes_are_one_cost_with_the_advice_of_the_first() -> None:
    finding = copying(use(0.02), use(0.005, CopyRoute.DEVICE_TO_HOST, is_pinned=None))
    assert finding is not None
    assert finding.cost_seconds == pytest.approx(0.025)
    assert finding.cost_percent == pytest.approx(0.025 / STEP * 100)
    assert finding.confidence is Confidence.HIGH
    assert "most of it host to device" in finding.summary
    assert "next batch" in finding.advice
    assert finding.evidence == (
        "host to device: 3.00 GiB a step at 24.0 GB/s, 25.0 ms a step, pinned, 25 % of it under "
        "compute",
        "device to host: 3.00 GiB a step at 24.0 GB/s, 10.0 ms a step, 25 % of it under compute",
        "copies run 35.0 % of the time",
    )


def test_what_the_recording_does_not_say_is_left_out() -> None:
    finding = copying(use(0.02, bytes_per_second=None), use(0.001, bytes_per_step=None))
    assert finding is not None
    assert "3.00 GiB a step, 25.0 ms" in finding.evidence[0]
    assert finding.evidence[1].startswith("host to device: 6.00 ms")


@pytest.mark.parametrize("copies", [(), (use(0.001),)])
def test_few_copies_are_nothing(copies: tuple[CopyUse, ...]) -> None:
    assert copying(*copies) is None


def test_copies_of_memory_that_is_not_pinned_are_told_once() -> None:
    """The rule before has told their cost and what to do. What is left is the cost of the others,
    and the advice is for those."""
    unpinned, others = use(0.03, is_pinned=False), use(0.01, CopyRoute.WITHIN_DEVICE)
    finding = copying(unpinned, others, pageable=0.03)
    assert finding is not None
    assert finding.cost_seconds == pytest.approx(0.01)
    assert "most of it within the device" in finding.summary
    assert copying(unpinned, pageable=0.03) is None


def test_what_another_finding_costs_is_not_taken_off() -> None:
    finding = copying(use(0.02), host_bound=np.full(4, 0.05))
    assert finding is not None
    assert finding.cost_seconds == pytest.approx(0.02)


@pytest.mark.parametrize(("steps", "confidence"), [(19, Confidence.MEDIUM), (20, Confidence.HIGH)])
def test_a_short_recording_is_less_certain(steps: int, confidence: Confidence) -> None:
    finding = copying(use(0.02), steps=steps)
    assert finding is not None
    assert finding.confidence is confidence
