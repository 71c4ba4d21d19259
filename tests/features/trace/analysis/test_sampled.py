"""What some of the ranks tell of all."""

from __future__ import annotations

import numpy as np
import pytest

from torchscale.analysis.diagnosis.signals import SignalOrigin, Signals
from torchscale.features.trace.analysis.sampled import diagnosis_of_sample
from torchscale.schema.profiles.finding import Confidence, Diagnosis, Finding, FindingKind


def signals(transfer: float | None) -> Signals:
    """Of four ranks and steps of a second, in which so much of the step is transfer."""
    series = None if transfer is None else np.full(20, transfer)
    return Signals(
        origin=SignalOrigin.TRACE, ranks=(0, 1, 2, 3), step_seconds=1.0, steps=20, transfer=series
    )


def finding(kind: FindingKind, seconds: float) -> Finding:
    """A cause that costs so much."""
    return Finding(
        kind=kind,
        rank=2,
        cost_percent=seconds * 100,
        cost_seconds=seconds,
        confidence=Confidence.HIGH,
        summary="rank 2 is late",
        evidence=(),
        advice="look at it",
    )


def judged(kind: FindingKind, seconds: float, transfer: float | None) -> Diagnosis:
    diagnosis = Diagnosis(findings=(finding(kind, seconds),), abstentions=())
    return diagnosis_of_sample(diagnosis, signals(transfer), 28)


def test_a_straggler_that_costs_more_than_any_other_can_is_named() -> None:
    found = judged(FindingKind.STRAGGLER, 0.3, 0.1)
    assert [one.kind for one in found.findings] == [FindingKind.STRAGGLER]
    assert found.findings[0].confidence is Confidence.MEDIUM
    kinds = [one.kind for one in found.abstentions]
    assert kinds == [FindingKind.LOAD_IMBALANCE, FindingKind.INPUT_PIPELINE]


@pytest.mark.parametrize("transfer", [0.31, 0.5, None])
def test_a_straggler_is_not_named_where_another_may_be_later(transfer: float | None) -> None:
    found = judged(FindingKind.STRAGGLER, 0.3, transfer)
    assert found.findings == ()
    kinds = [one.kind for one in found.abstentions]
    assert kinds == [FindingKind.STRAGGLER, FindingKind.LOAD_IMBALANCE, FindingKind.INPUT_PIPELINE]


def test_long_transfers_may_be_waits_for_those_that_were_not_read() -> None:
    found = judged(FindingKind.EXPOSED_COMMUNICATION, 0.3, 0.3)
    assert found.findings == ()
    kinds = [one.kind for one in found.abstentions]
    assert kinds[:2] == [FindingKind.EXPOSED_COMMUNICATION, FindingKind.STRAGGLER]
    assert "one of 28 ranks that were not read may be late" in found.abstentions[1].reason


def test_what_a_rank_does_by_itself_holds() -> None:
    found = judged(FindingKind.HOST_BOUND, 0.3, 0.01)
    assert [one.kind for one in found.findings] == [FindingKind.HOST_BOUND]
    assert found.abstentions == ()


def test_short_transfers_leave_no_room_for_a_late_rank() -> None:
    found = diagnosis_of_sample(Diagnosis(findings=(), abstentions=()), signals(0.01), 28)
    assert found.abstentions == ()
