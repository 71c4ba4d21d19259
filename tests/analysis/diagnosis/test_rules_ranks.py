"""Ranks that wait for data or for one another: at the limits, and what is said of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.analysis.diagnosis.test_diagnose import BATCHES, found, quiet, why_not
from torchscale.analysis.diagnosis.signals import LengthLoad, Pauses, SignalOrigin
from torchscale.schema.profiles.finding import Confidence, Finding, FindingKind

INPUT = FindingKind.INPUT_PIPELINE


def loading(
    seconds: float, *, others: float = 0.0, ranks: int = 4, **changes: Any
) -> Finding | None:
    """What is found where the last rank waits so long for data."""
    data = np.full((ranks, BATCHES), others)
    data[-1] = seconds
    return found(quiet(ranks, data_wait=data, **changes)).get(INPUT)


def waited_for(seconds: float) -> dict[str, Any]:
    """A watched job on devices whose first three ranks wait so long for the last one."""
    wait = np.full((4, BATCHES), seconds)
    wait[3] = 0.0
    return {
        "origin": SignalOrigin.LENGTHS,
        "wait": wait,
        "blame": np.array([0.0, 0.0, 0.0, 1.0]),
    }


@pytest.mark.parametrize(
    ("seconds", "others", "rank"),
    [(3.01, 0.0, 3), (3.0, 0.0, None), (4.01, 1.0, 3), (4.0, 1.0, None)],
)
def test_a_rank_whose_loader_takes_three_hundredths_of_the_step_longer_is_named(
    seconds: float, others: float, rank: int | None
) -> None:
    finding = loading(seconds, others=others, step_seconds=100.0)
    assert (None if finding is None else finding.rank) == rank


@pytest.mark.parametrize(
    ("ranks", "changes"), [(4, {"trusted": False}), (4, {"steps": 19}), (1, {})]
)
def test_a_rank_is_not_named_where_it_cannot_be_compared(
    ranks: int, changes: dict[str, Any]
) -> None:
    """That all wait is told all the same."""
    finding = loading(0.03, others=0.01, ranks=ranks, **changes)
    assert finding is not None
    assert finding.rank is None


def test_twenty_steps_are_enough_to_name_the_rank_that_waits_for_data() -> None:
    finding = loading(0.03, others=0.0001, steps=20)
    assert finding is not None
    assert finding.rank == 3
    assert finding.summary == (
        "rank 3 waits 30.0 ms a step for data, the others 100 µs; all wait for it"
    )
    assert finding.evidence == ("29.9 ms (29.9 to 29.9 ms) more, over 20 steps",)


@pytest.mark.parametrize(("seconds", "is_told"), [(1.0, True), (0.99, False)])
def test_a_late_loader_on_a_device_costs_what_the_others_wait(
    seconds: float, is_told: bool
) -> None:
    """Of 5 s that it is late the device hides most; a fiftieth of the step is told."""
    finding = loading(5.0, step_seconds=50.0, **waited_for(seconds))
    assert (finding is not None) is is_told
    if finding is not None:
        assert (finding.rank, finding.cost_seconds) == (3, 1.0)
        assert finding.cost_percent == pytest.approx(2.0)


@pytest.mark.parametrize("missing", ["origin", "wait", "blame"])
def test_a_late_loader_costs_what_it_takes_where_waits_for_it_are_not_known(missing: str) -> None:
    """Nor are they asked where each rank's own time is known."""
    other = SignalOrigin.LAUNCH if missing == "origin" else None
    finding = loading(5.0, step_seconds=50.0, **{**waited_for(0.5), missing: other})
    assert finding is not None
    assert finding.cost_seconds == 5.0


@pytest.mark.parametrize(
    ("origin", "on_device", "confidence"),
    [
        (SignalOrigin.JOB, True, Confidence.LOW),
        (SignalOrigin.JOB, False, Confidence.HIGH),
        (SignalOrigin.LAUNCH, True, Confidence.HIGH),
    ],
)
@pytest.mark.parametrize("others", [0.0001, 0.03])
def test_a_host_that_waits_for_data_may_have_a_device_that_is_busy(
    others: float, origin: SignalOrigin, on_device: bool, confidence: Confidence
) -> None:
    finding = loading(0.03, others=others, origin=origin, on_device=on_device)
    assert finding is not None
    assert finding.confidence is confidence
    doubts = [line for line in finding.evidence if line.startswith("by the host: ")]
    assert bool(doubts) is (confidence is Confidence.LOW)


def test_of_many_ranks_the_first_sixteen_are_shown() -> None:
    loader = loading(0.02, others=0.02, ranks=17)
    assert loader is not None
    assert loader.evidence[0] == f"mean wait by rank: {', '.join(['20.0 ms'] * 16)}"
    uneven = quiet(17, lengths=LengthLoad(0.01, (1000.0,) * 17), wait=np.full((17, BATCHES), 0.01))
    (line,) = found(uneven)[FindingKind.UNEVEN_LENGTHS].evidence
    assert line.startswith("tokens of a step with padding, mean: rank 0: 1,000, rank 1: ")
    assert line.count("rank") == 16
    assert line.endswith("rank 15: 1,000")


def uneven(explained: float, waited: float, **changes: Any) -> Finding | None:
    signals = quiet(
        step_seconds=50.0,
        wait=np.full((4, BATCHES), waited),
        lengths=LengthLoad(explained, (1.0,) * 4),
        **changes,
    )
    return found(signals).get(FindingKind.UNEVEN_LENGTHS)


@pytest.mark.parametrize(("seconds", "is_told"), [(1.0, True), (0.99, False)])
def test_long_samples_are_told_from_a_fiftieth_of_the_step_on(
    seconds: float, is_told: bool
) -> None:
    finding = uneven(seconds, 2.0)
    assert (finding is not None) is is_told
    if finding is not None:
        assert (finding.cost_seconds, finding.cost_percent) == (1.0, 2.0)


@pytest.mark.parametrize(
    ("waited", "confidence"), [(2.0, Confidence.HIGH), (1.99, Confidence.MEDIUM)]
)
def test_samples_that_explain_twice_what_ranks_wait_are_less_certain(
    waited: float, confidence: Confidence
) -> None:
    finding = uneven(4.0, waited)
    assert finding is not None
    assert finding.confidence is confidence


def test_lengths_of_few_steps_explain_nothing() -> None:
    signals = quiet(steps=19, lengths=LengthLoad(0.01, (1.0,) * 4), wait=np.full((4, 12), 0.01))
    assert FindingKind.UNEVEN_LENGTHS not in found(signals)
    assert "fewer than 20" in why_not(signals, FindingKind.UNEVEN_LENGTHS)


def test_what_is_left_beside_a_named_rank_is_an_imbalance() -> None:
    """Rank 3 has pauses, half of the waiting is for it, and its pauses count there."""
    pauses = Pauses((0, 0, 0, 6), 0.006, 0.0, (0.0, 0.0, 0.0, 0.006))
    blame = np.array([0.2, 0.2, 0.1, 0.5])
    findings = found(quiet(wait=np.full((4, BATCHES), 0.04), blame=blame, pauses=pauses))
    assert findings[FindingKind.PAUSES].rank == 3
    left = findings[FindingKind.LOAD_IMBALANCE]
    assert left.cost_seconds == pytest.approx(0.02)
    assert left.cost_percent == pytest.approx(20.0)
    assert left.evidence == (
        "last to arrive, share of waiting: rank 0: 20 %, rank 1: 20 %, rank 2: 10 %, rank 3: 50 %",
    )


@pytest.mark.parametrize(("others", "told"), [((0.03, 0.02, 0.0), True), ((0.05, 0.0, 0.0), False)])
def test_beside_a_named_rank_that_has_nearly_all_blame_others_may_take_turns(
    others: tuple[float, ...], told: bool
) -> None:
    """A single one of them takes none."""
    pauses = Pauses((0, 0, 0, 6), 0.006, 0.0, (0.0, 0.0, 0.0, 0.006))
    blame = np.array([*others, 0.95])
    findings = found(quiet(wait=np.full((4, BATCHES), 0.3), blame=blame, pauses=pauses))
    costs = [
        one.cost_seconds for kind, one in findings.items() if kind is FindingKind.LOAD_IMBALANCE
    ]
    assert costs == ([pytest.approx(0.015)] if told else [])
