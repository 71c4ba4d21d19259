"""A watched job on the terminal."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from tests.analysis.job.jobs import START_NS, job
from tests.jobs.folders import write_job
from torchscale.jobs.job import WatchedJob
from torchscale.report.terminal.watch import print_watch
from torchscale.schema.watch.report import WatchReport


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
    assert "waits for ranks" in text
    assert "of the wall time in steps" in text


def test_a_sound_job_has_no_bottleneck_of_a_rank(tmp_path: Path) -> None:
    text = _text(_report(write_job(tmp_path, job(2, 400, transfer=0.1))))

    assert "No bottleneck found." in text


def test_a_job_without_steps_says_what_was_missing(tmp_path: Path) -> None:
    text = _text(_report(tmp_path))

    assert text.startswith("No step was seen in")
    assert "note: no rank reported" in text
    assert "bottleneck" not in text
