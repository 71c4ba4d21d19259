"""Rare long steps: whose they are, what causes them, and how certain that is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.analysis.diagnosis.test_diagnose import found, quiet
from torchscale.analysis.diagnosis.rules_pauses import _rank_with_all
from torchscale.analysis.diagnosis.signals import Pauses, SignalOrigin
from torchscale.schema.profiles.finding import Confidence, Finding, FindingKind

ON_FIRST = Pauses((6, 0, 0, 0), 0.006, None, (0.006, 0.0, 0.0, 0.0))


def told(pauses: Pauses, ranks: int = 4, **changes: Any) -> Finding:
    return found(quiet(ranks, pauses=pauses, **changes))[FindingKind.PAUSES]


@pytest.mark.parametrize(
    ("ranks", "count", "rank"), [(2, 5, 0), (2, 4, None), (3, 4, 0), (3, 3, None), (1, 9, None)]
)
def test_a_rank_is_named_where_chance_rarely_puts_all_pauses_on_one(
    ranks: int, count: int, rank: int | None
) -> None:
    """Of two ranks, five of five fall on the same one in 6 % of cases, of three four of four in
    4 %. A rank alone has all of them whatever they are of."""
    none = (0,) * (ranks - 1)
    pauses = Pauses((count, *none), 0.01, 0.0, (0.01, *map(float, none)))
    assert told(pauses, ranks).rank == rank


@pytest.mark.parametrize(("share", "rank"), [(0.9, 0), (0.89, None)])
def test_a_rank_that_has_nine_tenths_of_what_pauses_cost_is_named(
    share: float, rank: int | None
) -> None:
    pauses = Pauses((9, 1), 0.01, 0.0, (share, 1 - share))
    assert told(pauses, 2).rank == rank


@pytest.mark.parametrize(
    ("counts", "ranks_and_ways"),
    [((9, 1), 2 * (10 * 1 + 1) / 2**10), ((5, 1, 0), 3 * (6 * 2 + 1) / 3**6)],
)
def test_the_chance_is_that_of_as_many_or_more_on_any_rank(
    counts: tuple[int, ...], ranks_and_ways: float
) -> None:
    """All pauses or all but one, on any rank: the binomial distribution."""
    by_rank = (0.9, 0.1, *(0.0,) * (len(counts) - 2))
    row, chance = _rank_with_all(Pauses(counts, 0.9, None, by_rank))
    assert row == 0
    assert chance == pytest.approx(ranks_and_ways)


@pytest.mark.parametrize("by_rank", [None, (0.0, 0.0, 0.0, 0.0)])
def test_pauses_whose_cost_by_rank_is_not_known_are_nobodys(
    by_rank: tuple[float, ...] | None,
) -> None:
    assert told(Pauses((6, 0, 0, 0), 0.006, 0.0, by_rank)).rank is None


def test_pauses_of_one_rank_are_told_with_what_they_cost_all() -> None:
    finding = told(ON_FIRST, step_seconds=0.05)
    assert finding.rank == 0
    assert finding.cost_percent == pytest.approx(12.0)
    assert finding.summary == (
        "rare long steps (6 of 120 on rank 0, slight ones or none on the others) cost 6.00 ms a "
        "step on average, and all wait, from a cause that was not recorded"
    )
    assert finding.evidence == (
        "long steps by rank: 0: 6 (6.00 ms a step), 1: 0 (0 µs a step), 2: 0 (0 µs a step), "
        "3: 0 (0 µs a step)",
    )
    assert "now and then on rank 0 or its host only: checkpoints" in finding.advice


def test_the_pauses_of_a_rank_are_its_own_where_another_has_more_slight_ones() -> None:
    finding = told(Pauses((9, 7), 0.2, 0.0, (0.001, 0.2)), 2, step_seconds=0.2)
    assert finding.rank == 1
    assert finding.summary.startswith("rare long steps (7 of 120 on rank 1, slight ones or none")
    assert finding.evidence[0] == "long steps by rank: 0: 9 (1.00 ms a step), 1: 7 (200 ms a step)"


def test_pauses_of_all_ranks_are_told_by_the_one_with_most() -> None:
    finding = told(Pauses((6, 3, 4, 5), 0.006, 0.0001))
    assert finding.summary == (
        "rare long steps (6 of 120 on the rank with most) cost 6.00 ms a step on average, from "
        "something other than garbage collection"
    )
    assert finding.evidence[1] == "garbage collection: 100 µs a step"
    assert "now and then: checkpoints" in finding.advice


@pytest.mark.parametrize(
    ("busy", "rank"), [((0.3, 0.0, 0.0, 0.0), None), ((0.0, 0.3, 0.0, 0.0), 0)]
)
def test_pauses_that_other_processes_explain_are_not_the_ranks_own(
    busy: tuple[float, ...], rank: int | None
) -> None:
    finding = told(ON_FIRST, other_processes=np.array(busy))
    assert finding.rank == rank
    assert ("on rank 0" in finding.summary) is (rank == 0)


@pytest.mark.parametrize(("collection", "is_cause"), [(1.5, False), (1.51, True)])
def test_collections_of_more_than_half_of_the_cost_are_the_cause(
    collection: float, is_cause: bool
) -> None:
    finding = told(Pauses((3, 3, 3, 3), 3.0, collection), step_seconds=50.0)
    assert ("from Python's garbage collection" in finding.summary) is is_cause
    assert ("gc.freeze" in finding.advice) is is_cause


@pytest.mark.parametrize(
    ("origin", "on_device", "collection", "confidence"),
    [
        (SignalOrigin.JOB, True, 0.0, Confidence.LOW),
        (SignalOrigin.LENGTHS, True, 0.0, Confidence.LOW),
        (SignalOrigin.JOB, False, 0.0, Confidence.HIGH),
        (SignalOrigin.LAUNCH, True, 0.0, Confidence.HIGH),
        (SignalOrigin.TRACE, True, 0.0, Confidence.HIGH),
        (SignalOrigin.JOB, True, 0.005, Confidence.HIGH),
    ],
)
def test_steps_of_a_host_whose_device_is_behind_may_look_like_pauses(
    origin: SignalOrigin, on_device: bool, collection: float, confidence: Confidence
) -> None:
    """Of a watched job only the host's steps are seen; what the host itself collects is certain."""
    pauses = Pauses((6, 6, 6, 6), 0.006, collection)
    finding = told(pauses, origin=origin, on_device=on_device)
    assert finding.confidence is confidence
    doubts = [line for line in finding.evidence if line.startswith("by the host's steps")]
    assert bool(doubts) is (confidence is Confidence.LOW)


@pytest.mark.parametrize(("count", "confidence"), [(6, Confidence.MEDIUM), (8, Confidence.HIGH)])
def test_a_rank_that_chance_may_have_picked_is_less_certain(
    count: int, confidence: Confidence
) -> None:
    """Six of six on one of two ranks: 3 % of cases; eight of eight: 0.8 %."""
    finding = told(Pauses((count, 0), 0.006, 0.0, (0.006, 0.0)), 2)
    assert (finding.rank, finding.confidence) == (0, confidence)
