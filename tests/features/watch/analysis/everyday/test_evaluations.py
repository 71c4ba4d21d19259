"""Evaluations on all ranks, and on one that the others wait for."""

from __future__ import annotations

import pytest

from tests.features.watch.analysis.everyday.made import MS, Job, line
from torchscale.features.watch.analysis.everyday.evaluations import find_evaluations
from torchscale.schema.profiles.finding import FindingKind

EVERY_100 = slice(99, None, 100)


@pytest.mark.parametrize(
    ("row", "rank", "words"),
    [(0, 0, "on rank 0 alone, and the others wait"), (slice(None), None, "on every rank")],
)
def test_evaluations_have_their_ranks_period_and_length(
    row: int | slice, rank: int | None, words: str
) -> None:
    job = Job().add("evaluating", row, EVERY_100, 1.0)
    job.at("evaluating", line("train.py:50 evaluate", "forward"))
    (cause,) = find_evaluations(job.watched())
    found = cause.finding

    assert (found.kind, found.rank, found.period_steps) == (FindingKind.EVALUATIONS, rank, 100)
    assert found.cost_seconds == pytest.approx(6 / 590, rel=0.1)
    assert words in found.summary
    assert "mostly at train.py:50 (evaluate)" in found.evidence
    assert ("split them over all ranks" in found.advice) is (rank is not None)


def test_what_a_host_disturbs_moves_no_period() -> None:
    job = Job(seed=3).add("evaluating", slice(None), [99, 200, 299, 400, 500], 1.0)
    (cause,) = find_evaluations(job.watched())

    assert cause.finding.period_steps == 100


def test_short_evaluations_are_none() -> None:
    assert find_evaluations(Job().add("evaluating", 0, EVERY_100, 20 * MS).watched()) == []
