"""``torchscale watch``: what it refuses and what it shows; programs are started in
``tests/integration/test_watch.py``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.cli.program import torchscale
from torchscale.schema.watch.attempt import CommandRun, JobRuns
from torchscale.schema.watch.report import JobState, WatchReport


def test_without_a_program_it_says_what_to_type(tmp_path: Path) -> None:
    done = torchscale(tmp_path, "watch")

    assert done.returncode == 2
    assert "torchscale watch -- torchrun" in done.stderr


def test_nothing_after_the_dashes_is_an_error(tmp_path: Path) -> None:
    done = torchscale(tmp_path, "watch", "--")

    assert done.returncode == 2
    assert "nothing follows --" in done.stderr


def test_a_program_that_does_not_exist_is_one_line(tmp_path: Path) -> None:
    done = torchscale(tmp_path, "watch", "-o", "out", "--", "no-such-program-here")

    assert done.returncode == 3
    assert "no such program" in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_folder_with_something_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("")
    done = torchscale(tmp_path, "watch", "-o", "out", "--", "true")

    assert done.returncode == 2
    assert "is not empty" in done.stderr
    assert "--append" not in done.stderr  # it holds no job
    appended = torchscale(tmp_path, "watch", "-o", "out", "--append", "--", "true")
    assert appended.returncode == 0
    assert "holds no watched job" in appended.stderr
    assert (tmp_path / "out.2" / "watch.json").is_file()
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine"]


@pytest.mark.slow
def test_a_job_is_added_to_where_that_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    run = CommandRun(started=1.0, ended=2.0)
    (tmp_path / "out" / "runs.json").write_text(JobRuns(runs=(run,)).model_dump_json())
    refused = torchscale(tmp_path, "watch", "-o", "out", "--", "true")
    assert refused.returncode == 2
    assert "--append" in refused.stderr
    assert torchscale(tmp_path, "watch", "-o", "out", "--append", "--", "true").returncode == 0
    report = json.loads((tmp_path / "out" / "watch.json").read_text())
    assert report["runs"] == 2


def test_without_a_folder_there_is_nothing_to_add_to(tmp_path: Path) -> None:
    done = torchscale(tmp_path, "watch", "--append", "--", "true")

    assert done.returncode == 2
    assert "-o results/tuesday" in done.stderr


@pytest.mark.parametrize("price", ["0", "-1", "1e9"])
def test_a_price_that_is_none_is_refused(tmp_path: Path, price: str) -> None:
    done = torchscale(tmp_path, "watch", "--cost", price, "--", "true")

    assert done.returncode == 2
    assert "--cost" in done.stderr


def test_the_folder_of_a_job_is_shown_and_printed_as_json(tmp_path: Path) -> None:
    report = WatchReport(
        tool_version="1", command=("python", "train.py"), started_at="2026-01-01", seconds=3
    )
    (tmp_path / "results" / "mine").mkdir(parents=True)
    (tmp_path / "results" / "mine" / "watch.json").write_text(report.model_dump_json())

    shown = torchscale(tmp_path, "watch", "results/mine")
    assert "No step was seen in 3 s" in shown.stdout
    printed = torchscale(tmp_path, "watch", "results/mine", "--json", "--cost", "2.5")
    assert json.loads(printed.stdout)["kind"] == "watch"
    assert json.loads(printed.stdout)["cost"]["price"] == 2.5


def test_another_folder_is_an_error(tmp_path: Path) -> None:
    done = torchscale(tmp_path, "watch", str(tmp_path))

    assert done.returncode == 2
    assert "holds no watched job" in done.stderr


def test_watched_jobs_are_listed_and_shown_by_name(tmp_path: Path) -> None:
    report = WatchReport(
        tool_version="1",
        command=("python", "train.py"),
        started_at="2026-01-01",
        seconds=3,
        state=JobState.DONE,
    )
    (tmp_path / "results" / "mine").mkdir(parents=True)
    (tmp_path / "results" / "mine" / "watch.json").write_text(report.model_dump_json())

    listed = torchscale(tmp_path, "runs")
    assert "mine" in listed.stdout
    assert "done" in listed.stdout
    assert "No step was seen" in torchscale(tmp_path, "watch", "mine").stdout
    assert torchscale(tmp_path, "report", "mine").returncode == 0
    assert "No step was seen" in (tmp_path / "results" / "mine" / "report.html").read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", [("--set", "api_key"), ("login", "bob"), ("--hub-password",), ("-s", "key")]
)
def test_a_secret_of_the_programs_command_is_in_no_file(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    """The program repeats it in an error of its own, without its name."""
    secret = "hunter-2bee"  # noqa: S105 - made up
    program = tmp_path / "program.py"
    program.write_text("import sys; sys.exit('refused ' + sys.argv[-1])")
    done = torchscale(
        tmp_path, "watch", "-o", "out", "--", sys.executable, "program.py", *words, secret
    )
    assert done.returncode == 1
    files = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert "watch.json" in {path.name for path in files}
    assert not [path for path in files if secret.encode() in path.read_bytes()]


def test_a_role_needs_the_folder_of_its_job(tmp_path: Path) -> None:
    done = torchscale(tmp_path, "watch", "--role", "trainer", "--", "true")

    assert done.returncode == 2
    assert "the role trainer is one of a job's" in done.stderr
    assert not (tmp_path / "results").exists()


@pytest.mark.slow
def test_programs_with_roles_are_shown_together(tmp_path: Path) -> None:
    for role, program in (("trainer", "true"), ("rollout", "false")):
        torchscale(tmp_path, "watch", "--role", role, "-o", "job", "--", program)
    again = torchscale(tmp_path, "watch", "--role", "trainer", "-o", "job", "--", "true")
    shown = torchscale(tmp_path, "watch", "job")
    printed = torchscale(tmp_path, "watch", "job", "--json")

    assert again.returncode == 2
    assert "job/trainer is not empty" in again.stderr
    assert shown.stdout.index("rollout: Failed before its first step") < shown.stdout.index(
        "trainer: No step was seen"
    )
    roles = json.loads(printed.stdout)["roles"]
    assert [(one["role"], one["state"]) for one in roles] == [
        ("rollout", "failed"),
        ("trainer", "done"),
    ]
