"""Ranks, and jobs, that are slow in every so manieth step."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.features.watch.analysis.jobs import job, log_of, steps_of
from torchscale.analysis.exchanges.steps import JobSteps, WaitsBy
from torchscale.features.watch.analysis.periodic import (
    PeriodicFinding,
    latest_period,
    periodic_findings,
)
from torchscale.features.watch.analysis.verdict import judge_job
from torchscale.schema.profiles.finding import Confidence, FindingKind

STEPS = 300


def found(steps: JobSteps, *, on_device: bool = False) -> list[PeriodicFinding]:
    return periodic_findings(steps, tuple(range(len(steps.wall))), on_device=on_device)


@pytest.mark.parametrize("every", [2, 3, 4, 5, 6, 17, 60])
@pytest.mark.parametrize("ranks", [2, 3])
def test_a_rank_that_is_slow_in_every_kth_step_is_named_with_its_period(
    every: int, ranks: int
) -> None:
    events = job(ranks, STEPS, lambda rank, step: 40.0 * (rank == 1 and step % every == 1))
    (item,) = found(steps_of(events))
    finding = item.finding
    assert (finding.kind, finding.rank) == (FindingKind.STRAGGLER, 1)
    assert finding.period_steps == every
    assert finding.cost_seconds == pytest.approx(0.04 / every, rel=0.1)
    assert finding.summary.startswith(f"every {every} steps rank 1 takes ")
    assert finding.confidence is Confidence.HIGH
    assert np.flatnonzero(item.slow).tolist() == list(range(1, STEPS, every))
    assert item.first is None


@pytest.mark.parametrize("every", [4, 5, 6, 17])
def test_of_such_a_job_nothing_else_is_said(every: int) -> None:
    """Its waits are no transfers, its long steps no pauses, and nobody takes turns."""
    log = log_of(job(2, STEPS, lambda rank, step: 40.0 * (rank == 1 and step % every == 1)))
    kinds = {
        (item.finding.kind, item.finding.rank)
        for item in judge_job(log).findings
        if item.finding.kind is not FindingKind.EXPOSED_COMMUNICATION
    }
    assert kinds == {(FindingKind.STRAGGLER, 1)}


def test_what_all_ranks_do_every_so_many_steps_is_nobodys() -> None:
    (item,) = found(steps_of(job(3, STEPS, lambda _, step: 30.0 * (step % 10 == 0))))
    assert (item.finding.kind, item.finding.rank) == (FindingKind.PERIODIC_WORK, None)
    assert item.finding.period_steps == 10
    assert item.finding.cost_seconds == pytest.approx(0.003, rel=0.1)


def test_two_steps_of_a_period_are_told() -> None:
    (item,) = found(steps_of(job(2, STEPS, lambda rank, step: 30.0 * (rank and step % 10 < 2))))
    assert item.finding.summary.startswith("in 2 of every 10 steps rank 1 takes ")


def test_a_period_that_begins_within_the_job_has_a_beginning() -> None:
    late = job(2, 600, lambda rank, step: 40.0 * (rank and step >= 350 and step % 5 == 0))
    (item,) = found(steps_of(late))
    assert item.finding.period_steps == 5
    assert item.first == 350


@pytest.mark.parametrize("seed", range(5))
def test_nothing_comes_back_in_a_sound_job(seed: int) -> None:
    assert found(steps_of(job(3, STEPS, noise=2.0, seed=seed))) == []


def test_what_has_a_name_is_left_to_its_rule() -> None:
    saving = steps_of(job(2, STEPS, saving=lambda rank, step: 80.0 * (not rank and step % 20 == 9)))
    assert found(saving) == []
    unnamed = replace(saving, saving=np.zeros_like(saving.saving))
    assert [item.finding.rank for item in found(unnamed)] == [0]


def test_a_host_that_runs_ahead_of_its_device_has_no_period() -> None:
    steps = steps_of(job(2, STEPS, lambda _, step: 30.0 * (step % 10 == 0)))
    assert found(replace(steps, waits_by=WaitsBy.NOTHING), on_device=True) == []


def test_a_period_that_has_ended_is_none_of_the_last_half() -> None:
    values = np.random.default_rng(1).normal(1, 0.05, 400)
    values[:200:5] += 1
    assert latest_period(values[200:]) is None
