"""Garbage collections of one rank, of all together, and of all in turn."""

from __future__ import annotations

import pytest

from tests.features.watch.analysis.everyday.made import MS, Job, line
from torchscale.features.watch.analysis.everyday.garbage import find_collections
from torchscale.schema.profiles.finding import FindingKind


def test_ranks_that_collect_in_different_steps_cost_the_sum() -> None:
    job = Job()
    for row in range(4):
        job.add("collection", row, slice(10 + 5 * row, None, 20), 60 * MS)
    (cause,) = find_collections(job.watched())
    found = cause.finding

    assert (found.kind, found.rank) == (FindingKind.GARBAGE_COLLECTION, None)
    assert found.period_steps == 20
    assert found.cost_seconds == pytest.approx(4 * 60 * MS / 20, rel=0.1)
    assert any("ranks collect in different steps" in text for text in found.evidence)
    assert "on all ranks in the same steps" in found.advice


def test_the_line_is_that_of_the_rank_with_most() -> None:
    """Not of the first one, which waits in these steps."""
    job = Job().at("collection", line("train.py:40 free_memory"))
    for row in range(4):
        job.add("collection", row, slice(10 + 5 * row, None, 20), (80 if row == 2 else 60) * MS)
    (cause,) = find_collections(job.watched())

    assert "mostly at train.py:40 (free_memory)" in cause.finding.evidence


def test_ranks_that_collect_together_cost_it_once() -> None:
    (cause,) = find_collections(
        Job().add("collection", slice(None), slice(10, None, 20), 60 * MS).watched()
    )

    assert cause.finding.cost_seconds == pytest.approx(60 * MS / 20, rel=0.15)
    assert not any("different steps" in text for text in cause.finding.evidence)


def test_small_collections_beside_large_ones_hide_no_period() -> None:
    job = Job(2).add("collection", 1, slice(None), 0.3 * MS)
    job.add("collection", 1, slice(30, None, 40), 90 * MS)
    (cause,) = find_collections(job.watched())

    assert (cause.finding.rank, cause.finding.period_steps) == (1, 40)


def test_the_collections_of_a_healthy_job_are_none() -> None:
    assert find_collections(Job().add("collection", 0, slice(None), 0.3 * MS).watched()) == []
