"""A watched job that runs, served as a page."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.factories import run
from tests.features.watch.analysis.jobs import START_NS, job
from tests.features.watch.job.folders import write_job
from torchscale.errors import StoreError
from torchscale.features.watch.job.job import WatchedJob
from torchscale.features.watch.job.liveness import RUNS, this_run
from torchscale.features.watch.live_page import JobPage
from torchscale.read.serve import RunPage
from torchscale.schema.watch.attempt import JobRuns
from torchscale.store.locations import WATCH_REPORT
from torchscale.store.run_folder import RunFolder
from torchscale.util.files import atomic_write_model

_STARTED = START_NS * 1e-9 - 4.0


def judged(directory: Path, exit_code: int | None = None) -> None:
    """Write the report of a job of 201 steps."""
    if not JobPage(directory).is_there():
        write_job(directory, job(2, 200))
    watched = WatchedJob(directory, ("torchrun", "train.py"), _STARTED)
    watched.advance()
    atomic_write_model(directory / WATCH_REPORT, watched.report(_STARTED + 60, exit_code))


def test_the_page_waits_for_the_first_judgement_and_follows_the_job(tmp_path: Path) -> None:
    assert not JobPage(tmp_path).is_there()
    write_job(tmp_path, job(2, 200))
    assert JobPage(tmp_path).is_there()
    page = RunPage(tmp_path)
    assert (page.version(), page.running()) == ("waiting", "")
    assert "No measurement has begun" in page.render(page.version())

    judged(tmp_path)
    first = page.version()
    assert page.running().startswith("201 steps on 2 ranks in ")
    assert "201 steps on 2 ranks" in page.render(first)
    assert 'torchscale_watch_steps{run="' in page.metrics(first, openmetrics=False)
    assert page.metrics(first, openmetrics=True).endswith("# EOF\n")

    report = tmp_path / WATCH_REPORT
    os.utime(report, ns=(1, report.stat().st_mtime_ns + 1))
    assert page.version() != first


def test_once_the_job_has_ended_its_run_is_shown(tmp_path: Path) -> None:
    judged(tmp_path, exit_code=0)
    RunFolder.create(tmp_path, run({}).experiment)
    page = RunPage(tmp_path)
    assert not page.version().startswith("watch-")
    assert page.running() == ""


def test_a_run_that_is_added_to_a_job_is_shown_while_it_runs(tmp_path: Path) -> None:
    RunFolder.create(tmp_path, run({}).experiment)
    judged(tmp_path)
    page = RunPage(tmp_path)
    assert page.version().startswith("watch-")
    assert "201 steps" in page.running()


def _lose(directory: Path) -> None:
    """Have the command that watches the job be gone."""
    run = this_run(_STARTED).model_copy(update={"pid": 1 << 22})
    (directory / RUNS).write_text(JobRuns(runs=(run,)).model_dump_json())


def test_a_job_whose_command_was_killed_does_not_run_for_ever(tmp_path: Path) -> None:
    judged(tmp_path)
    page = RunPage(tmp_path)
    running = page.version()
    assert page.running()
    _lose(tmp_path)

    assert page.running() == ""
    assert page.version() != running, "the page is rendered again"
    assert "watch ended without a result; last written 20" in page.render(page.version())
    figures = page.metrics(page.version(), openmetrics=False)
    name = tmp_path.name
    assert f'torchscale_watch_running{{run="{name}"}} 0' in figures
    assert f'torchscale_watch_lost{{run="{name}"}} 1' in figures


def test_a_run_that_was_added_to_a_job_and_lost_is_shown(tmp_path: Path) -> None:
    RunFolder.create(tmp_path, run({}).experiment)
    judged(tmp_path)
    _lose(tmp_path)
    page = RunPage(tmp_path)

    assert page.running() == ""
    assert "watch ended without a result" in page.render(page.version())


def test_a_damaged_report_is_an_error(tmp_path: Path) -> None:
    (tmp_path / WATCH_REPORT).write_text("{")
    page = JobPage(tmp_path)
    assert page.version()
    with pytest.raises(StoreError, match="not the report of a watched job"):
        page.figures()
