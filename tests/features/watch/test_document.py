"""A watched job while it runs: its page, and its figures for Prometheus."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.features.export.formats.exposition import parse
from tests.features.watch.analysis.jobs import START_NS, job
from tests.features.watch.job.folders import write_job, write_start
from torchscale.features.watch.document import watched_document, watched_figures
from torchscale.features.watch.job.job import WatchedJob
from torchscale.features.watch.text import job_name
from torchscale.report.document import Paragraph
from torchscale.report.figures.figure import ExportedRun
from torchscale.report.figures.prometheus import render
from torchscale.report.formats.html import render_html
from torchscale.report.table import Table
from torchscale.schema.watch.failure import FailureCause, JobFailure
from torchscale.schema.watch.report import WatchReport

_STARTED = START_NS * 1e-9 - 4.0


@pytest.fixture(scope="module")
def late(tmp_path_factory: pytest.TempPathFactory) -> WatchReport:
    """A job that runs, whose rank 1 is 6 ms late."""
    directory = tmp_path_factory.mktemp("job")
    write_job(directory, job(2, 400, lambda rank, step: 6.0 * rank))
    watched = WatchedJob(directory, ("torchrun", "src/train.py", "--lr", "1"), _STARTED)
    watched.advance()
    watched.judge()
    return watched.report(_STARTED + 60)


def test_the_page_says_what_limits_the_job_and_where_its_time_goes(late: WatchReport) -> None:
    document = watched_document(late)
    assert document.title == "train.py"
    assert document.overview is not None
    assert document.overview.causes[0].text.startswith("The whole job: rank 1 arrives ")
    tables = {
        block.caption: block
        for section in document.sections
        for block in section.blocks
        if isinstance(block, Table)
    }
    ranks = tables["Mean step of each rank"]
    headings = ["rank", "own", "data", "waits for ranks", "transfer", "came last", "memory"]
    assert [column.title for column in ranks.columns] == headings, "no bubble: it was 0"
    assert "401 steps on 2 ranks in " in render_html(document, version="1")


def test_figures_for_prometheus(late: WatchReport) -> None:
    samples = parse(render(ExportedRun("tuesday", figures=watched_figures(late))).text)
    run = {"run": "tuesday"}
    found = {(one.name, tuple(sorted(one.labels.items()))): one.value for one in samples}

    def value(name: str, **labels: str) -> float:
        return found[f"torchscale_watch_{name}", tuple(sorted({**run, **labels}.items()))]

    assert (value("running"), value("lost")) == (1, 0)
    assert value("steps") == 401
    assert value("goodput") == pytest.approx(late.goodput)
    assert value("rank_wait_seconds", rank="0") == pytest.approx(0.006, rel=0.05)
    assert value("rank_wait_seconds", rank="1") == pytest.approx(0, abs=1e-4)
    late_by = value("finding_seconds", kind="straggler", rank="1", since_step="0")
    assert late_by == pytest.approx(0.006, rel=0.05)
    assert value("hung") == 0


def test_a_job_of_which_nothing_is_known_yet_has_a_page_and_no_step(tmp_path: Path) -> None:
    report = WatchedJob(tmp_path, ("python", "-m", "train"), _STARTED).report(_STARTED + 1)
    assert job_name(report) == "python"
    overview = watched_document(report).overview
    assert overview is not None
    assert overview.headline.text == "python: No step was seen in 1 s."
    assert [row.answer for row in overview.statuses] == ["running", "no figure", "0.0 %"]
    names = {figure.name for figure in watched_figures(report)}
    assert "watch_step_seconds" not in names
    assert {"watch_running", "watch_steps"} <= names


def test_a_job_without_findings_says_so(late: WatchReport) -> None:
    clean = late.model_copy(update={"findings": ()})
    overview = watched_document(clean).overview
    assert overview is not None
    assert {row.question: row.answer for row in overview.statuses}["Limited by?"] == "nothing found"
    assert overview.causes == ()


def test_two_findings_of_one_kind_and_rank_are_one_sample(late: WatchReport) -> None:
    twice = late.model_copy(update={"findings": late.findings * 2})
    costs = [figure for figure in watched_figures(twice) if "finding" in figure.name]
    assert len(costs) == len({tuple(figure.labels.items()) for figure in costs})


def test_a_slow_start_is_about_the_start_and_costs_no_share_of_a_step(tmp_path: Path) -> None:
    write_job(tmp_path, job(2, 60))
    write_start(tmp_path, 6.0, 26.0)
    watched = WatchedJob(tmp_path, ("torchrun", "train.py"), _STARTED)
    watched.advance()
    document = watched_document(watched.report(_STARTED + 60))
    tables = {
        block.caption: block
        for section in document.sections
        for block in section.blocks
        if isinstance(block, Table)
    }
    (row,) = tables["What limits it over time: train.py"].rows
    assert [value.text for value in row[:4]] == ["the start", "Slow start", "1", ""]
    assert [column.title for column in tables["Start-up by rank"].columns] == [
        "rank",
        "interpreter and imports",
        "until the process group",
        "process group",
        "first step",
        "all",
    ]


def test_why_a_job_failed_is_the_first_sentence(late: WatchReport) -> None:
    failure = JobFailure(
        cause=FailureCause.SIGNAL, summary="rank 1 was ended by SIGKILL", evidence=("a line",)
    )
    document = watched_document(late.model_copy(update={"failure": failure, "exit_code": 1}))

    overview = document.overview
    assert overview is not None
    assert overview.headline.text.startswith("train.py: Failed after ")
    assert ": rank 1 was ended by SIGKILL; 401 steps on 2 ranks" in overview.headline.text
    texts = [block.text for block in document.sections[0].blocks if isinstance(block, Paragraph)]
    assert "a line." in texts
