"""Attempts of a job over all runs of the command."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.features.watch.analysis.jobs import START_NS, job
from tests.features.watch.job.folders import write_job
from torchscale.errors import OutputError
from torchscale.features.watch.job.attempt_log import AttemptLog
from torchscale.features.watch.job.attempts import Attempt
from torchscale.features.watch.job.follow import JobFollower
from torchscale.features.watch.job.runs import Past
from torchscale.schema.watch.attempt import AttemptRecord, CommandRun
from torchscale.schema.watch.failure import FailureCause, JobFailure

BEGAN = START_NS * 1e-9


def _history(directory: Path) -> AttemptLog:
    return AttemptLog(directory, Past((CommandRun(started=BEGAN - 4.0),)))


def _attempt(directory: Path, number: int) -> Attempt:
    write_job(directory, job(2, 19), attempt=number)
    attempt = Attempt(number, JobFollower(directory, number))
    attempt.advance()
    return attempt


def test_an_attempt_that_could_not_be_kept_is_written_with_the_next_one(tmp_path: Path) -> None:
    history = _history(tmp_path)
    (tmp_path / "attempts").write_text("a file where the folder should be")
    first, second = _attempt(tmp_path, 0), _attempt(tmp_path, 1)
    with pytest.raises(OutputError):
        history.keep(first, BEGAN + 9.0, is_last=False)
    (tmp_path / "attempts").unlink()
    history.keep(second, BEGAN + 9.0, is_last=True)

    kept = sorted((tmp_path / "attempts").iterdir())
    records = [AttemptRecord.model_validate_json(path.read_bytes()) for path in kept]
    assert [record.attempt.number for record in records] == [0, 1]
    assert history.records(second, BEGAN + 99.0) == records


def test_the_last_attempt_is_shown_as_it_is_until_it_is_over(tmp_path: Path) -> None:
    history, attempt = _history(tmp_path), _attempt(tmp_path, 0)
    (now,) = history.records(attempt, BEGAN + 1.0)
    assert now.attempt.steps == 20
    assert not (tmp_path / "attempts").exists()
    history.keep(attempt, BEGAN + 9.0, is_last=True)
    history.keep(attempt, BEGAN + 99.0, is_last=True)  # again, after what failed

    assert len(history.records(attempt, BEGAN + 99.0)) == 1


def test_an_attempt_whose_ranks_ended_before_they_reported_is_kept_with_its_reason(
    tmp_path: Path,
) -> None:
    history, nobody = _history(tmp_path), Attempt(0, JobFollower(tmp_path, 0))
    failure = JobFailure(cause=FailureCause.EXCEPTION, summary="rank 1 raised OSError: no")
    history.keep(nobody, BEGAN, is_last=False, failure=failure)

    (record,) = history.records(Attempt(1, JobFollower(tmp_path, 1)), BEGAN)
    assert (record.attempt.failure, record.attempt.steps) == (failure, 0)
    assert record.attempt.time.start == pytest.approx(4.0)


def test_an_attempt_without_ranks_leaves_nothing(tmp_path: Path) -> None:
    history, nobody = _history(tmp_path), Attempt(0, JobFollower(tmp_path, 0))
    history.keep(nobody, BEGAN, is_last=True)

    assert history.records(nobody, BEGAN) == []
    assert not (tmp_path / "attempts").exists()
