"""Ranks, and jobs, that are slow in every so manieth step."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.features.watch.analysis.jobs import job, log_of, steps_of
from torchscale.analysis.diagnosis.periods import slow_periods
from torchscale.analysis.exchanges.steps import WaitsBy
from torchscale.features.watch.analysis.verdict import judge_job
from torchscale.schema.profiles.finding import Confidence, FindingKind

STEPS = 300


@pytest.mark.parametrize("every", [2, 3, 4, 5, 6, 17, 60])
@pytest.mark.parametrize("ranks", [2, 3])
def test_a_rank_that_is_slow_in_every_kth_step_is_found_with_its_period(
    every: int, ranks: int
) -> None:
    late = steps_of(job(ranks, STEPS, lambda rank, step: 40.0 * (rank == 1 and step % every == 1)))
    (period,) = slow_periods(late)
    assert (period.row, period.steps, period.length) == (1, every, 1)
    assert period.times == len(range(1, STEPS, every))
    assert period.excess == pytest.approx(0.04, rel=0.1)
    assert period.cost == pytest.approx(0.04 / every, rel=0.1)
    assert period.slow is not None
    assert np.flatnonzero(period.slow).tolist() == list(range(1, STEPS, every))
    assert period.first is None


@pytest.mark.parametrize("every", [2, 4, 5, 6, 17, 60])
def test_of_such_a_job_nothing_else_is_said(every: int) -> None:
    """Its waits are no transfers, its long steps no pauses, and nobody takes turns."""
    log = log_of(job(2, STEPS, lambda rank, step: 40.0 * (rank == 1 and step % every == 1)))
    (item,) = [
        item
        for item in judge_job(log).findings
        if item.finding.kind is not FindingKind.EXPOSED_COMMUNICATION
    ]
    finding = item.finding
    assert (finding.kind, finding.rank) == (FindingKind.STRAGGLER, 1)
    assert finding.period_steps == every
    assert finding.summary.startswith(f"every {every} steps rank 1 takes ")
    assert finding.confidence is Confidence.HIGH
    assert item.slow is not None
    assert item.slow.sum() == len(range(1, STEPS, every))


def test_what_all_ranks_do_every_so_many_steps_is_nobodys() -> None:
    log = log_of(job(3, STEPS, lambda _, step: 30.0 * (step % 10 == 0)))
    (period,) = slow_periods(steps_of(job(3, STEPS, lambda _, step: 30.0 * (step % 10 == 0))))
    assert (period.row, period.steps) == (None, 10)
    assert period.cost == pytest.approx(0.003, rel=0.1)
    finding = judge_job(log).findings[0].finding
    assert (finding.kind, finding.rank) == (FindingKind.PERIODIC_WORK, None)
    assert finding.summary.startswith("every 10 steps every rank takes ")


def test_two_steps_of_a_period_are_told() -> None:
    log = log_of(job(2, STEPS, lambda rank, step: 30.0 * (rank and step % 10 < 2)))
    finding = judge_job(log).findings[0].finding
    assert finding.summary.startswith("in 2 of every 10 steps rank 1 takes ")


def test_a_period_that_begins_within_the_job_has_a_beginning() -> None:
    late = job(2, 600, lambda rank, step: 40.0 * (rank and step >= 350 and step % 5 == 0))
    (period,) = slow_periods(steps_of(late))
    assert (period.steps, period.first) == (5, 350)
    assert judge_job(log_of(late)).findings[0].first == 350


@pytest.mark.parametrize("seed", range(5))
def test_nothing_comes_back_in_a_sound_job(seed: int) -> None:
    assert slow_periods(steps_of(job(3, STEPS, noise=2.0, seed=seed))) == ()


def test_what_has_a_name_is_left_to_its_rule() -> None:
    saving = steps_of(job(2, STEPS, saving=lambda rank, step: 80.0 * (not rank and step % 20 == 9)))
    assert slow_periods(saving) == ()
    unnamed = replace(saving, saving=np.zeros_like(saving.saving))
    assert [period.row for period in slow_periods(unnamed)] == [0]


def test_a_host_that_runs_ahead_of_its_device_has_no_period() -> None:
    steps = steps_of(job(2, STEPS, lambda _, step: 30.0 * (step % 10 == 0)))
    assert slow_periods(replace(steps, waits_by=WaitsBy.NOTHING), host_runs_ahead=True) == ()
