"""Programs with roles that are one job: a folder, and one report."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from tests.features.watch.analysis.jobs import START_NS, job
from tests.features.watch.job.folders import write_job
from torchscale.config.choices import ReportFormat
from torchscale.errors import StoreError
from torchscale.features.watch.job.job import WatchedJob
from torchscale.features.watch.job.liveness import RUNS, this_run
from torchscale.features.watch.roles import has_roles, listed_roles, read_roles, state_of
from torchscale.read.report import read_report
from torchscale.read.serve import RunPage
from torchscale.schema.profiles.finding import FindingKind
from torchscale.schema.watch.attempt import JobRuns
from torchscale.schema.watch.report import JobState
from torchscale.schema.watch.roles import WatchedRoles
from torchscale.store.locations import WATCH_REPORT
from torchscale.util.files import atomic_write_model
from torchscale.util.roles import role_folder

_STARTED = START_NS * 1e-9 - 4.0


def _slow(rank: int, step: int) -> float:
    del step
    return 8.0 * (rank == 1)


def _program(directory: Path, role: str, ranks: int, code: int | None = 0) -> Path:
    """A program of the job, with a straggler where it has two ranks."""
    folder = role_folder(directory, role)
    write_job(folder, job(ranks, 200, extra=_slow) if ranks == 2 else job(ranks, 120))
    atomic_write_model(folder / RUNS, JobRuns(runs=(this_run(_STARTED),)))
    if code is not None:
        watched = WatchedJob(folder, (f"{role}.py",), _STARTED, role=role)
        watched.advance()
        watched.judge()
        atomic_write_model(folder / WATCH_REPORT, watched.report(_STARTED + 60, code))
    return folder


@pytest.fixture
def rlhf(tmp_path: Path) -> Path:
    """A trainer of two ranks, a rollout of three, and a reward model that has just begun."""
    directory = tmp_path / "rlhf"
    _program(directory, "trainer", 2)
    _program(directory, "rollout", 3)
    _program(directory, "reward", 1, code=None)
    return directory


def test_ranks_of_each_role_are_kept_and_judged_apart(rlhf: Path) -> None:
    assert has_roles(rlhf)
    assert not has_roles(rlhf / "trainer")
    found = read_roles(rlhf)

    assert [(one.role, one.world_size, one.steps) for one in found.roles] == [
        ("rollout", 3, 121),
        ("trainer", 2, 201),
    ]
    stragglers = [
        [item.finding.rank for item in one.findings if item.finding.kind is FindingKind.STRAGGLER]
        for one in found.roles
    ]
    assert stragglers == [[], [1]]
    assert found.unjudged == ("reward",)
    assert WatchedRoles.model_validate_json(found.model_dump_json()) == found


def test_the_worst_state_is_the_jobs(rlhf: Path) -> None:
    assert state_of(read_roles(rlhf)) is JobState.DONE
    _program(rlhf, "critic", 1, code=3)
    assert state_of(read_roles(rlhf)) is JobState.FAILED
    state, told = listed_roles(rlhf)
    assert state == "failed"
    assert told.startswith("critic: 121 steps")
    assert "; trainer: 201 steps on 2 ranks" in told


def test_before_any_is_judged_nothing_is_shown(tmp_path: Path) -> None:
    _program(tmp_path, "trainer", 2, code=None)
    with pytest.raises(StoreError, match="none of its roles was judged yet"):
        read_roles(tmp_path)


def test_the_report_names_the_roles(rlhf: Path) -> None:
    found = read_report(rlhf)
    text = found.render(ReportFormat.MARKDOWN).decode()
    out = io.StringIO()
    found.print_to(Console(file=out, width=200))

    for role, name in (("rollout", "rollout.py"), ("trainer", "trainer.py")):
        assert f"{role}: {name}: " in text
        assert f"- {role}: Ended? **done**" in text
        assert f"## {role}: Over the job" in text
    assert "Straggler: rank 1** (up to" in text
    assert "Not judged yet: reward." in text
    lines = out.getvalue().splitlines()
    assert [line.partition(" steps")[0] for line in lines if " steps on " in line] == [
        "rollout: 121",
        "trainer: 201",
    ]
    assert lines[-1] == "Not judged yet: reward."
    assert WatchedRoles.model_validate_json(found.render(ReportFormat.JSON)) == read_roles(rlhf)
    html = found.render(ReportFormat.HTML).decode()
    assert 'id="watched-trainer"' in html
    assert 'href="#watched-trainer"' in html


def test_its_page_and_its_figures_follow_all_roles(rlhf: Path) -> None:
    page = RunPage(rlhf)
    first = page.version()
    assert "trainer: trainer.py" in page.render(first)
    figures = page.metrics(first, openmetrics=False)
    assert 'role="rollout"' in figures
    assert 'role="trainer"' in figures
    assert page.running() == ""
    _program(rlhf, "critic", 1, code=0)
    assert page.version() != first
    (rlhf / "roles.json").unlink()  # a folder of jobs that have nothing to do with each other
    assert page.version() == "waiting"
