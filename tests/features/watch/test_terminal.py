"""A watched job on the terminal."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from tests.features.watch.analysis.jobs import START_NS, job
from tests.features.watch.job.device_jobs import DeviceJob, watched
from tests.features.watch.job.folders import write_job, write_start
from torchscale.features.watch.analysis.goodput import with_price
from torchscale.features.watch.job.job import WatchedJob
from torchscale.features.watch.terminal import print_watch
from torchscale.schema.watch.failure import FailureCause, JobFailure
from torchscale.schema.watch.report import JobTime, WatchReport


def _text(report: WatchReport) -> str:
    out = io.StringIO()
    print_watch(report, Console(file=out, width=100))
    return out.getvalue()


def _report(directory: Path) -> WatchReport:
    watched = WatchedJob(directory, ("python", "train.py"), START_NS * 1e-9)
    watched.advance()
    watched.judge()
    return watched.report(START_NS * 1e-9 + 60)


def test_a_job_is_shown_with_what_limits_it_and_each_ranks_step(tmp_path: Path) -> None:
    slow = lambda rank, step: 4.0 * (rank == 1 and step >= 200)  # noqa: E731 - a cause, as in other tests
    text = _text(_report(write_job(tmp_path, job(2, 400, slow))))

    assert text.startswith("401 steps on 2 ranks in")
    assert "Straggler, since step" in text
    assert "rank 1 arrives" in text
    assert "the others wait for it most at all_reduce of 1.00 MiB" in text
    assert "what to do:" in text
    assert re.search(r"\brank +own\b", text)
    assert re.search(r"\bwaits\b", text)
    assert "goodput" in text
    assert "Where the wall time went" in text
    assert "productive steps" in text


def test_a_job_on_devices_has_no_waits_unless_their_lengths_are_known(tmp_path: Path) -> None:
    texts = []
    for is_timed in (True, False):
        made = DeviceJob(2, slow=lambda rank, _: 4.0 * (rank == 1))
        made.is_timed = is_timed
        job = watched(made.write(tmp_path / str(is_timed)))
        texts.append(_text(job.report(START_NS * 1e-9 + 60)))
    told, untold = texts

    assert "the others wait 4.0" in told
    assert "torchscale watch --timing" in untold
    for text in (told, untold):
        assert "None" not in text
        assert "nan" not in text


def test_a_sound_job_has_no_bottleneck_of_a_rank(tmp_path: Path) -> None:
    text = _text(_report(write_job(tmp_path, job(2, 400, transfer=0.1))))

    assert "No bottleneck found." in text
    assert text.count("Not judged: ") == 1
    for of_devices in ("throttling", "copy-bound", "idle GPUs"):
        assert of_devices not in text, "its ranks run on CPUs"


def test_hours_shares_and_money_of_each_part() -> None:
    report = WatchReport(
        tool_version="1",
        command=(),
        started_at="2026-01-01",
        seconds=36_000,
        world_size=8,
        restarts=2,
        steps=90_000,
        step_seconds=0.3,
        time=JobTime(steps=27_000.0, recomputed=1_800.0, stalls=7_200.0),
        device_time=JobTime(steps=216_000.0, recomputed=14_400.0, stalls=57_600.0),
        goodput=0.75,
        repeated_steps=6_000,
    )
    text = _text(with_price(report, 2.5))

    assert "goodput 75.0 %" in text
    rows = [" ".join(line.split()) for line in text.splitlines()]
    assert "part time share cost" in rows
    assert "productive steps 7 h 30 min 75.0 % $150" in rows
    assert "recomputed steps (6,000) 30 min 5.0 % $10.00" in rows
    assert "stalls 2 h 00 min 20.0 % $40.00" in rows
    assert "all 10 h 00 min 100.0 % $200" in rows
    assert not any(row.startswith("idle") for row in rows)
    unknown = _text(report.model_copy(update={"repeated_steps": None}))
    assert "goodput at most 75.0 %" in unknown
    assert "recomputed steps not known" in " ".join(unknown.split())


def test_a_job_without_steps_says_what_was_missing(tmp_path: Path) -> None:
    text = _text(_report(tmp_path))

    assert text.startswith("No step was seen in")
    assert "note: no rank reported" in text
    assert "bottleneck" not in text


def test_a_rank_that_the_others_wait_for_as_the_job_starts_is_told_without_a_share_of_a_step(
    tmp_path: Path,
) -> None:
    write_job(tmp_path, job(2, 60))
    write_start(tmp_path, 6.0, 26.0)
    report = _report(tmp_path)
    text = _text(report)

    flat = " ".join(text.split())
    assert (
        "Slow start: as the job starts, once, the other ranks wait 20 s for rank 1: until" in flat
    )
    assert "on the others (high confidence)" in flat
    assert "Start-up by rank" in text
    table = text.partition("Start-up by rank")[2].partition("Mean step")[0]
    rows = [" ".join(line.split()) for line in table.splitlines()]
    assert "0 5.0 s 1.0 s 22 s 2.0 s 30 s" in rows
    assert "1 5.0 s 21 s 2.0 s 2.0 s 30 s" in rows
    assert report.startup[1].before_group == pytest.approx(21)
    assert "Slow start" in _text(with_price(report, 2.5))


def test_a_short_start_that_is_alike_on_all_ranks_has_no_table(tmp_path: Path) -> None:
    write_job(tmp_path, job(2, 60))
    assert "Start-up by rank" not in _text(_report(tmp_path))


def test_why_a_job_failed_comes_before_what_limits_it(tmp_path: Path) -> None:
    slow = lambda rank, step: 4.0 * (rank == 1)  # noqa: E731 - a cause, as in other tests
    report = _report(write_job(tmp_path, job(2, 400, slow)))
    failure = JobFailure(
        cause=FailureCause.EXCEPTION, summary="rank 1 raised ValueError: no", evidence=("then",)
    )
    lines = _text(report.model_copy(update={"failure": failure, "exit_code": 1})).splitlines()

    assert lines[0] == "Failed after 401 steps (exit code 1): rank 1 raised ValueError: no"
    assert lines[1].strip() == "then"
    assert lines[2].startswith("401 steps on 2 ranks in")
    assert lines[3].startswith("Found")
