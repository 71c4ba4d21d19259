"""The section on a watched program."""

from __future__ import annotations

from pathlib import Path

from tests.factories import environment
from tests.features.watch.analysis.jobs import START_NS, job
from tests.features.watch.job.folders import write_job
from torchscale.analysis.summary.run import summarize
from torchscale.features.watch.job.job import WatchedJob
from torchscale.features.watch.job.watched_run import write_run
from torchscale.features.watch.section import watched_section
from torchscale.report.build import build_document
from torchscale.report.document import Paragraph
from torchscale.report.formats.markdown import render_markdown
from torchscale.report.table import Table
from torchscale.store.locations import WATCH_REPORT
from torchscale.store.run_folder import load_run
from torchscale.util.files import atomic_write_model

_STARTED = START_NS * 1e-9 - 4.0
_COMMAND = ("torchrun", "train.py")


def test_a_rank_that_became_slow_is_shown_with_its_step_and_place(tmp_path: Path) -> None:
    write_job(tmp_path, job(2, 1200, lambda rank, step: 6.0 * rank * (step > 600)))
    watched = WatchedJob(tmp_path, _COMMAND, _STARTED)
    watched.advance()
    watched.judge()
    report = watched.report(_STARTED + 60, 0)
    atomic_write_model(tmp_path / WATCH_REPORT, report)
    write_run(tmp_path, watched, report, environment())

    section = watched_section(summarize(load_run(tmp_path)))

    (text, *_) = [block for block in section.blocks if isinstance(block, Paragraph)]
    assert ", goodput " in str(text)
    table, parts = [block for block in section.blocks if isinstance(block, Table)]
    assert parts.rows[0][0].text == "productive steps"
    assert parts.rows[-1][0].text == "all"
    (row,) = [row for row in table.rows if row[1].text == "Straggler"]
    assert row[0].text.startswith("since step ")
    assert 590 <= float(str(row[0].sort)) <= 610
    assert row[2].text == "1"
    assert "all_reduce of 1.00 MiB" in row[5].text


def test_a_run_that_nobody_watched_has_no_such_section(tmp_path: Path) -> None:
    write_job(tmp_path, job(2, 200))
    watched = WatchedJob(tmp_path, _COMMAND, _STARTED)
    watched.advance()
    write_run(tmp_path, watched, watched.report(_STARTED + 60, 0), environment())

    assert watched_section(summarize(load_run(tmp_path))).blocks == ()


def test_of_a_job_the_method_says_what_was_done_alone(tmp_path: Path) -> None:
    write_job(tmp_path, job(2, 200))
    watched = WatchedJob(tmp_path, _COMMAND, _STARTED)
    watched.advance()
    report = watched.report(_STARTED + 60, 0)
    atomic_write_model(tmp_path / WATCH_REPORT, report)
    write_run(tmp_path, watched, report, environment())
    text = render_markdown(build_document(summarize(load_run(tmp_path))))

    method = text.partition("## Method")[2]
    assert "The mean step is over all steps but the first 10" in method
    for word in ("bit by bit", "Unsynchronized", "Warm-up", "Measurement:", "reset", "target"):
        assert word not in method.partition("## How to")[0]
    assert "benchmark.repeats" not in text
