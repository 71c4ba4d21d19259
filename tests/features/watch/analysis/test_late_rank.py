"""A rank that nearly all waits are for."""

from __future__ import annotations

import numpy as np
import pytest

from tests.features.watch.analysis.jobs import Extra, job, steps_of
from torchscale.features.watch.analysis.late_rank import late_rank
from torchscale.schema.profiles.finding import Abstention, Confidence, Finding, FindingKind

STEPS = 400
RANDOM = np.random.default_rng(4)
LATE = RANDOM.random(STEPS) < 0.2


def late(rank: int, step: int) -> float:
    """Rank 1 is late in one of five steps, by chance, and by very different times."""
    return 4.0 + 30.0 * ((step * 37) % 10) / 10 if rank == 1 and LATE[step] else 0.0


def finding_of(kind: FindingKind, rank: int | None, cost: float) -> Finding:
    return Finding(
        kind=kind,
        rank=rank,
        cost_percent=0,
        cost_seconds=cost,
        confidence=Confidence.HIGH,
        summary="",
        advice="",
    )


@pytest.mark.parametrize("ranks", [2, 4])
def test_it_is_named_however_its_lateness_is_spread(ranks: int) -> None:
    found = late_rank(steps_of(job(ranks, STEPS, late)), tuple(range(ranks)), (), ())
    assert found is not None
    assert (found.kind, found.rank) == (FindingKind.STRAGGLER, 1)
    mean = np.mean([late(1, step) for step in range(STEPS)])
    assert found.cost_seconds * 1e3 == pytest.approx(mean, rel=0.1)
    assert found.confidence is Confidence.MEDIUM


@pytest.mark.parametrize("seed", range(10))
def test_nobody_is_named_in_a_sound_job(seed: int) -> None:
    assert late_rank(steps_of(job(2, STEPS, noise=1.0, seed=seed)), (0, 1), (), ()) is None


def test_a_disturbance_that_passes_names_nobody() -> None:
    once: Extra = lambda rank, step: 20.0 * (rank == 1 and 100 <= step < 180)  # noqa: E731
    assert late_rank(steps_of(job(2, STEPS, once)), (0, 1), (), ()) is None


@pytest.mark.parametrize(
    "known",
    [
        finding_of(FindingKind.PAUSES, 1, 0.0001),
        finding_of(FindingKind.CHECKPOINTS, None, 0.01),
    ],
    ids=["of the rank", "as large"],
)
def test_what_a_rule_has_found_is_not_said_again(known: Finding) -> None:
    assert late_rank(steps_of(job(2, STEPS, late)), (0, 1), (known,), ()) is None


def test_a_finding_of_another_rank_or_a_small_one_says_nothing_of_it() -> None:
    known = (
        finding_of(FindingKind.PAUSES, 0, 0.01),
        finding_of(FindingKind.EXPOSED_COMMUNICATION, None, 0.0001),
    )
    assert late_rank(steps_of(job(2, STEPS, late)), (0, 1), known, ()) is not None


def test_a_rank_that_the_rules_doubt_is_not_named() -> None:
    doubt = Abstention(kind=FindingKind.STRAGGLER, reason="rank 1 is slower, but not steadily")
    assert late_rank(steps_of(job(2, STEPS, late)), (0, 1), (), (doubt,)) is None
