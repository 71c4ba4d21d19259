"""Runs of the command that are one job: what stays of each, and what is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.features.watch.analysis.jobs import START_NS, job
from tests.features.watch.job.folders import write_job
from tests.features.watch.job.test_attempts import _call, _checkpoints, _later
from torchscale.errors import StoreError, UsageError
from torchscale.features.watch.job.job import WatchedJob
from torchscale.features.watch.job.liveness import this_run
from torchscale.features.watch.job.runs import begin_run, end_run, is_job, write_record
from torchscale.schema.watch.attempt import AttemptRecord, JobRuns
from torchscale.schema.watch.report import WatchedAttempt, WatchReport

BEGAN = START_NS * 1e-9


def _run(directory: Path, started: float, ended: float) -> WatchReport:
    """A run of the command whose ranks have written already; the moments go at its end."""
    past = begin_run(directory, started, starts_program=False)
    watched = WatchedJob(directory, ("train",), started, past=past)
    watched.advance()
    watched.judge()
    watched.close(ended)
    end_run(directory, past, ended)
    for path in directory.glob("ranks/*/*.bin"):
        path.unlink()
    return watched.report(ended, 0)


def test_a_second_run_adds_to_what_is_kept_of_the_first(tmp_path: Path) -> None:
    write_job(tmp_path, job(2, 49))
    _checkpoints(tmp_path, 0, saves=[_call(40, 0.5)])
    first = _run(tmp_path, BEGAN - 4.0, BEGAN + 6.0)
    write_job(tmp_path, _later(job(2, 29), 100.0), attempt=1, began=BEGAN + 99.0)
    _checkpoints(tmp_path, 1, loads=[_call(0, 99.5)])
    second = _run(tmp_path, BEGAN + 90.0, BEGAN + 110.0)

    assert (first.runs, second.runs) == (1, 2)
    assert (first.steps, second.steps) == (50, 80)
    assert second.repeated_steps == 10
    assert second.time.idle == pytest.approx(84.0)
    assert second.seconds == pytest.approx(114.0)
    assert second.time.total == pytest.approx(114.0)
    assert second.time.restarts == 0
    assert [attempt.run for attempt in second.attempts] == [0, 1]


def test_a_run_whose_command_was_killed_is_read_from_its_ranks(tmp_path: Path) -> None:
    write_job(tmp_path, job(2, 49))
    gone = this_run(BEGAN - 4.0).model_copy(update={"pid": 1 << 22})
    (tmp_path / "runs.json").write_text(JobRuns(runs=(gone,)).model_dump_json())
    past = begin_run(tmp_path, BEGAN + 60.0)

    assert past.next_attempt == 1
    assert past.records[0].attempt.steps == 50
    assert past.runs[0].ended == pytest.approx(BEGAN + 49 * 0.0131, abs=0.05)
    assert past.runs[1].ended is None


def test_a_job_that_is_watched_now_is_refused(tmp_path: Path) -> None:
    begin_run(tmp_path, BEGAN)
    runs = JobRuns.model_validate_json((tmp_path / "runs.json").read_bytes()).runs
    parent = runs[0].model_copy(update={"pid": os.getppid(), "started": 4e9})
    (tmp_path / "runs.json").write_text(JobRuns(runs=(parent,)).model_dump_json())

    with pytest.raises(UsageError, match=f"process {os.getppid()} watches this job"):
        begin_run(tmp_path, 4e9 + 1)


def test_the_number_of_a_process_that_is_gone_may_be_anothers(tmp_path: Path) -> None:
    old = this_run(1.0).model_copy(update={"pid": os.getppid()})
    (tmp_path / "runs.json").write_text(JobRuns(runs=(old,)).model_dump_json())

    assert len(begin_run(tmp_path, BEGAN).runs) == 2


@pytest.mark.parametrize("content", ["", "{", '{"kind": "other"}'])
def test_a_damaged_list_of_runs_is_one_error(tmp_path: Path, content: str) -> None:
    begin_run(tmp_path, BEGAN)
    (tmp_path / "runs.json").write_text(content)

    with pytest.raises(StoreError, match=r"runs\.json"):
        begin_run(tmp_path, BEGAN + 60.0)


@pytest.mark.parametrize("content", ["", "{", '{"kind": "other"}'])
def test_a_damaged_attempt_is_left_out_and_its_number_is_not_used_again(
    tmp_path: Path, content: str
) -> None:
    begin_run(tmp_path, BEGAN)
    (tmp_path / "attempts").mkdir()
    (tmp_path / "attempts" / "000003.json").write_text(content)

    past = begin_run(tmp_path, BEGAN + 60.0)
    assert (past.records, past.next_attempt) == ((), 4)
    assert "an attempt is left out" in past.notes[0]
    assert "000003.json" in past.notes[0]


def test_an_attempt_of_a_run_that_never_was_is_left_out(tmp_path: Path) -> None:
    begin_run(tmp_path, BEGAN)
    attempt = WatchedAttempt(number=1, run=7, began=BEGAN, last_seen=BEGAN)
    write_record(tmp_path, AttemptRecord(attempt=attempt))

    past = begin_run(tmp_path, BEGAN + 60.0)
    assert past.records == ()
    assert "is of run 7 of 1" in past.notes[0]


@pytest.mark.parametrize("name", ["marks-000001.bin", "names.jsonl", "rank.json"])
def test_what_a_killed_run_left_damaged_is_left_out(tmp_path: Path, name: str) -> None:
    gone = this_run(BEGAN - 4.0).model_copy(update={"pid": 1 << 22})
    (tmp_path / "runs.json").write_text(JobRuns(runs=(gone,)).model_dump_json())
    write_job(tmp_path, job(2, 49))
    damaged = tmp_path / "ranks" / "1.0" / name
    damaged.unlink()
    os.mkfifo(damaged)

    past = begin_run(tmp_path, BEGAN + 60.0)
    assert past.next_attempt == 1
    if name != "rank.json":  # a rank without has not begun
        assert "attempt 0 is left out" in past.notes[0]


def test_numbers_of_attempts_that_end_are_one_error(tmp_path: Path) -> None:
    begin_run(tmp_path, BEGAN)
    (tmp_path / "ranks" / "0.9999999").mkdir(parents=True)

    with pytest.raises(StoreError, match="numbers end there"):
        begin_run(tmp_path, BEGAN + 60.0)


def test_another_folder_is_no_job(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("")

    assert not is_job(tmp_path)


def test_a_run_that_ends_leaves_one_that_began_meanwhile(tmp_path: Path) -> None:
    first = begin_run(tmp_path, BEGAN)
    begin_run(tmp_path, BEGAN + 5.0, starts_program=False)
    end_run(tmp_path, first, BEGAN + 6.0)

    runs = JobRuns.model_validate_json((tmp_path / "runs.json").read_bytes()).runs
    assert [run.started for run in runs] == [BEGAN, BEGAN + 5.0]
