"""Stalls of the loader: with a period, rare, and none."""

from __future__ import annotations

import pytest

from tests.features.watch.analysis.everyday.made import MS, Job, line
from torchscale.features.watch.analysis.everyday.loading import find_stalls
from torchscale.schema.profiles.finding import FindingKind

LOOP = line("train.py:17 main", "__next__")


@pytest.mark.parametrize("period", [2, 4, 8, 50])
def test_a_stall_every_few_steps_is_named_with_its_rank(period: int) -> None:
    job = Job().add("data", 2, slice(period - 1, None, period), 120 * MS).at("data", LOOP)
    (cause,) = find_stalls(job.watched())
    found = cause.finding

    assert (found.kind, found.rank) == (FindingKind.INPUT_PIPELINE, 2)
    assert found.period_steps == period
    assert found.cost_seconds == pytest.approx(120 * MS / period, rel=0.1)
    assert f"longer for data every {period} steps, and all wait for it" in found.summary
    assert "num_workers" in found.advice


def test_stalls_of_all_ranks_are_nobodys() -> None:
    (cause,) = find_stalls(Job().add("data", slice(None), slice(7, None, 8), 120 * MS).watched())

    assert cause.finding.rank is None
    assert cause.finding.summary.startswith("every rank waits 1")


@pytest.mark.parametrize("steps", [[61], [61, 300, 420]])
def test_a_rare_stall_is_a_wait_for_data_and_not_a_pause(steps: list[int]) -> None:
    job = Job(2).add("data", 1, steps, 8.0).at("data", LOOP)
    (cause,) = find_stalls(job.watched())
    found = cause.finding

    assert (found.kind, found.rank, found.period_steps) == (FindingKind.INPUT_PIPELINE, 1, None)
    assert f"waits for data in {len(steps)} step" in found.summary
    assert f"in step {', '.join(map(str, steps))}" in found.evidence
    assert "at train.py:17 (main)" in found.evidence
    assert cause.by_column.sum() == pytest.approx(8.0 * len(steps), rel=0.3)


def test_a_loader_that_starts_anew_is_told() -> None:
    job = Job(2).add("data", slice(None), [130, 260, 390, 520], 3.0)
    (cause,) = find_stalls(job.at("data", line("train.py:16 main", "__iter__")).watched())

    assert cause.finding.period_steps == 130
    assert "persistent_workers=True" in cause.finding.advice
    assert "prefetch" not in cause.finding.advice


def test_a_rare_stall_of_a_long_job_is_found_in_averaged_steps() -> None:
    watched = Job(2, 40_000).add("data", 1, [9_000, 20_000, 31_000], 30.0).watched()
    assert watched.log.per_column > 1
    (cause,) = find_stalls(watched)

    assert cause.finding.rank == 1
    assert "in step 9,000, 20,000, 31,000" in cause.finding.evidence
    assert cause.finding.cost_seconds == pytest.approx(90 / 40_000, rel=0.3)


@pytest.mark.parametrize("seed", range(5))
def test_a_steady_loader_has_no_stalls(seed: int) -> None:
    assert find_stalls(Job(seed=seed).watched()) == []
    assert find_stalls(Job(seed=seed).add("data", 1, slice(None), 10 * MS).watched()) == []


def test_a_wait_that_costs_little_is_none() -> None:
    assert find_stalls(Job().add("data", 1, [61], 0.3).watched()) == []
