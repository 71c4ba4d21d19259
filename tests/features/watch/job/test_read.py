"""The report of a job, from its folder."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from torchscale.errors import StoreError
from torchscale.features.watch.job.liveness import RUNS, SILENT_SECONDS, this_run
from torchscale.features.watch.job.read import read_watch
from torchscale.schema.watch.attempt import CommandRun, JobRuns
from torchscale.schema.watch.report import JobState, WatchReport
from torchscale.store.locations import WATCH_REPORT


def test_a_report_is_read_as_it_was_written(tmp_path: Path) -> None:
    report = WatchReport(
        tool_version="1", command=("python", "train.py"), started_at="2026-01-01", seconds=3
    )
    (tmp_path / WATCH_REPORT).write_text(report.model_dump_json())

    assert read_watch(tmp_path) == report


def test_a_folder_without_a_job_says_what_to_type(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="holds no watched job") as caught:
        read_watch(tmp_path)
    assert caught.value.hint is not None
    assert "torchscale watch --" in caught.value.hint


@pytest.mark.parametrize("content", ["", "{", "[]", '{"kind": "other"}'])
def test_a_damaged_report_is_one_error(tmp_path: Path, content: str) -> None:
    (tmp_path / WATCH_REPORT).write_text(content)

    with pytest.raises(StoreError, match=WATCH_REPORT):
        read_watch(tmp_path)


_NOTE = "watch ended without a result; last written 2026-01-01 00:00:03 UTC"


def _written(directory: Path, run: CommandRun | None, **changes: object) -> Path:
    """A job whose report is from some time ago, and whose last run is this one."""
    report = WatchReport(
        tool_version="1", command=("python",), started_at="2026-01-01T00:00:00", seconds=3
    ).model_copy(update=changes)
    (directory / WATCH_REPORT).write_text(report.model_dump_json())
    if run is not None:
        (directory / RUNS).write_text(JobRuns(runs=(run,)).model_dump_json())
    return directory


def _touched(path: Path, seconds_ago: float) -> None:
    os.utime(path, (time.time() - seconds_ago,) * 2)


def test_a_job_runs_while_the_process_that_watches_it_is_there(tmp_path: Path) -> None:
    _written(tmp_path, this_run(time.time()))
    _touched(tmp_path / RUNS, 10 * SILENT_SECONDS)  # it may be stopped by a debugger

    assert read_watch(tmp_path).state is JobState.RUNNING
    assert read_watch(tmp_path).notes == ()


def test_a_job_whose_command_was_killed_says_so_at_once(tmp_path: Path) -> None:
    gone = this_run(time.time()).model_copy(update={"pid": 1 << 22})
    report = read_watch(_written(tmp_path, gone, notes=("another",)))

    assert report.state is JobState.LOST
    assert report.notes[0].startswith(_NOTE)
    assert report.notes[1] == "another"


@pytest.mark.parametrize("place", [{"host": "far-away"}, {"namespace": "pid:[1]"}])
def test_a_job_that_is_watched_elsewhere_runs_while_it_gives_signs(
    tmp_path: Path, place: dict[str, str]
) -> None:
    elsewhere = this_run(time.time()).model_copy(update={"pid": 1 << 22, **place})
    _written(tmp_path, elsewhere)
    _touched(tmp_path / WATCH_REPORT, 10 * SILENT_SECONDS)  # judgements may be far apart
    assert read_watch(tmp_path).state is JobState.RUNNING

    _touched(tmp_path / RUNS, SILENT_SECONDS + 5)
    assert read_watch(tmp_path).state is JobState.LOST


def test_a_run_that_noted_its_end_and_could_not_write_its_result_is_lost(tmp_path: Path) -> None:
    ended = this_run(time.time()).model_copy(update={"ended": time.time()})

    assert read_watch(_written(tmp_path, ended)).state is JobState.LOST


@pytest.mark.parametrize("changes", [{"state": JobState.DONE}, {"state": JobState.FAILED}])
def test_a_job_with_a_result_has_ended_whatever_became_of_its_command(
    tmp_path: Path, changes: dict[str, object]
) -> None:
    gone = this_run(time.time()).model_copy(update={"pid": 1 << 22})
    report = read_watch(_written(tmp_path, gone, **changes))

    assert report.state is not JobState.LOST
    assert report.notes == ()


@pytest.mark.parametrize("runs", [None, "{"])
def test_without_a_list_of_runs_the_age_of_the_report_decides(
    tmp_path: Path, runs: str | None
) -> None:
    _written(tmp_path, None)
    if runs is not None:
        (tmp_path / RUNS).write_text(runs)
    assert read_watch(tmp_path).state is JobState.RUNNING

    _touched(tmp_path / WATCH_REPORT, SILENT_SECONDS + 5)
    assert read_watch(tmp_path).state is JobState.LOST


def test_a_report_whose_start_is_no_time_is_damaged(tmp_path: Path) -> None:
    gone = this_run(time.time()).model_copy(update={"pid": 1 << 22})
    with pytest.raises(StoreError, match=WATCH_REPORT):
        read_watch(_written(tmp_path, gone, started_at="some day"))
