"""All steps in bounded memory."""

from __future__ import annotations

import numpy as np
import pytest

from tests.features.watch.analysis.jobs import job, log_of, steps_of
from torchscale.features.watch.analysis import step_log
from torchscale.features.watch.analysis.step_log import StepLog


def test_a_short_job_is_kept_step_by_step() -> None:
    events = job(2, 60)
    log, steps = log_of(events), steps_of(events)

    assert log.table is not None
    assert np.allclose(log.table.own, steps.own)
    assert log.per_column == 1
    assert log.steps == 60


def test_a_long_job_is_averaged_over_pairs_and_its_means_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(step_log, "MAX_COLUMNS", 32)
    steps = steps_of(job(2, 200))
    log = StepLog((0, 1))
    for begin in range(0, 200, 7):  # as a follower hands them over
        log.add(step_log.part_of(steps, begin, min(begin + 7, 200)))

    table = log.table
    assert table is not None
    assert len(table) <= 32
    assert log.per_column == 8
    assert log.steps == 200
    kept = len(table) * log.per_column
    assert np.allclose(table.own.mean(axis=1), steps.own[:, :kept].mean(axis=1))


def test_steps_between_two_are_found_after_averaging(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_log, "MAX_COLUMNS", 64)
    log = log_of(job(2, 200, lambda rank, step: 5.0 * (rank == 1 and step >= 120), noise=0.0))

    before, after = log.between(0, 120), log.between(120, 200)
    assert before is not None
    assert after is not None
    assert before.own[1].mean() * 1e3 == pytest.approx(11.0)
    assert after.own[1].mean() * 1e3 == pytest.approx(16.0)
    assert log.between(199, 200) is None


def test_long_steps_are_kept_with_their_number_and_rank() -> None:
    log = log_of(job(2, 100, saving=lambda rank, step: 40.0 * (rank == 1 and step % 25 == 24)))

    # What comes after a step is part of the next one.
    assert [(item.step, item.row) for item in log.long_steps] == [(25, 1), (50, 1), (75, 1)]
    assert log.long_steps[0].excess == pytest.approx(0.04, abs=0.002)


def test_steps_that_are_all_longer_are_no_interruptions() -> None:
    log = log_of(job(2, 100, lambda rank, step: 20.0 * (step % 2)))

    assert not log.long_steps
