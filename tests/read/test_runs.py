"""The runs of a directory."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.cli.program import torchscale
from tests.factories import failed_record, launch_record, run, trained
from tests.features.trace.readers.builders import host, kineto, step
from torchscale.errors import UsageError
from torchscale.read.folders import (
    existing_run,
    find_runs,
    first_names,
    newest_run,
    run_by_name,
    run_folder,
)
from torchscale.read.runs import list_runs
from torchscale.report.sections.first_screen.headline import headline
from torchscale.results.reader import read_summary
from torchscale.schema.state import State
from torchscale.store.lock import locked_folder
from torchscale.store.run_folder import RunFolder


def make_run(path: Path, states: tuple[State, ...], changed_at: float) -> Path:
    """A run of two cells, of which as many were launched as states are given."""
    folder = RunFolder.create(path, run({}).experiment)
    for entry, state in zip(folder.experiment.plan, states, strict=False):
        cell = trained(entry)
        folder.begin_launch(cell, 0)
        ok = state is State.OK
        folder.finish_launch(
            cell, launch_record(cell) if ok else failed_record(cell, state, "it broke")
        )
    os.utime(path / "experiment.json", (changed_at, changed_at))
    return path


@pytest.fixture
def results(tmp_path: Path) -> Path:
    make_run(tmp_path / "results" / "done", (State.OK, State.OK), 3000.0)
    make_run(tmp_path / "results" / "begun", (State.OK,), 2000.0)
    make_run(tmp_path / "results" / "broken", (State.OK, State.CRASHED), 1000.0)
    (tmp_path / "results" / "no-run").mkdir()
    return tmp_path / "results"


def test_the_newest_run_is_taken_and_said(results: Path) -> None:
    assert [path.name for path in find_runs(results)] == ["done", "begun", "broken"]
    assert newest_run(results).name == "done"
    (results / "begun" / "summary.csv").touch()
    assert newest_run(results).name == "begun", "summary.csv is written after every launch"


def test_runs_are_listed_with_their_state_and_a_figure(results: Path) -> None:
    entries = list_runs(results)
    assert [(entry.id, entry.state, entry.done, entry.planned) for entry in entries] == [
        ("done", "done", 2, 2),
        ("begun", "partial", 1, 2),
        ("broken", "failed", 1, 2),
    ]
    assert entries[0].measured_at == "1970-01-01T00:50:00+00:00"
    assert entries[0].headline.endswith(
        "2 devices: 160 samples/s (160 to 160), efficiency 100.0 %"
    ), "one launch each"
    (results / "broken" / "experiment.json").write_text("{")
    assert list_runs(results)[0].state == "unreadable"
    with locked_folder(results / "begun"):
        assert {entry.id: entry.state for entry in list_runs(results)}["begun"] == "running"


def test_an_efficiency_has_its_interval_as_in_the_report(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "repeated", run({}, benchmark={"repeats": 3}).experiment)
    for entry in folder.experiment.plan:
        cell = trained(entry)
        for number, seconds in enumerate((1.0, 1.001, 0.999)):
            folder.begin_launch(cell, number)
            slower = seconds * (1.05 if cell.world_size > 1 else 1.0)
            folder.finish_launch(cell, launch_record(cell, number, [slower] * 10))
    (entry_of_run,) = list_runs(tmp_path)
    efficiency = entry_of_run.headline.partition("efficiency ")[2]
    assert efficiency == "95.2 % (95.0 to 95.5 %)"
    assert f"at {efficiency}." in headline(read_summary(folder.path)).text


def test_a_rank_that_left_early_is_a_failure_and_not_left_to_run(tmp_path: Path) -> None:
    make_run(tmp_path / "left", (State.OK, State.INCOMPLETE), 1.0)
    assert [entry.state for entry in list_runs(tmp_path)] == ["failed"]


def test_the_command_lists_them_as_a_table_and_as_json(results: Path) -> None:
    done = torchscale(results.parent, "runs")
    assert done.returncode == 0
    assert "Next: torchscale report done" in done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines() if not line.startswith("  ")] == [
        "run",
        "done",
        "begun",
        "broken",
    ]
    listed = json.loads(torchscale(results.parent, "runs", "--json").stdout)
    assert listed[0]["id"] == "done"
    assert listed[0]["directory"] == "results/done"
    assert "No run here yet" in torchscale(results.parent, "runs", str(results / "no-run")).stdout
    assert torchscale(results.parent, "runs", "elsewhere").returncode == 2


def test_report_takes_the_newest_run_or_the_one_that_is_named(results: Path) -> None:
    done = torchscale(results.parent, "report", "-f", "csv", "-o", "-")
    assert "Run: results/done, the newest of 3 in ./results" in done.stderr
    named = torchscale(results.parent, "report", "results/begun", "-f", "csv", "-o", "-")
    assert named.returncode == 0
    assert named.stdout != done.stdout
    assert (
        torchscale(
            results.parent, "report", "generate", "results/begun", "-f", "csv", "-o", "-"
        ).stdout
        == named.stdout
    )
    two = torchscale(results.parent, "report", "results/begun", "results/done")
    assert (
        two.returncode,
        "hint: torchscale compare results/begun results/done" in two.stderr,
    ) == (2, True)
    both = torchscale(results.parent, "report", "--latest", "results/done")
    assert (both.returncode, "contradict" in both.stderr) == (2, True)


@pytest.mark.parametrize("name", ["done", "results/done", "only"])
@pytest.mark.parametrize(
    "line",
    [
        "report RUN --json",
        "report --source RUN --json",
        "report RUN --cell n2 --json",
        "compare RUN begun --json --fail-on never",
        "compare RUN --save kept --replace --json",
        "history RUN --json",
        "export --to github-benchmark RUN",
        "export --to github-benchmark --source RUN",
        "predict RUN --gpus 2 --json",
        "predict --source RUN --gpus 2 --json",
        "profile analyze RUN --json",
    ],
)
def test_every_command_takes_what_runs_lists_and_a_directory_that_holds_one(
    results: Path, line: str, name: str
) -> None:
    steps = [step(0, 0, 1000), step(1, 1000, 1000), host("cpu_op", "aten::mm", 100, 400)]
    (results / "done" / "trace.json").write_text(kineto(steps, rank=0, world_size=1))
    shutil.copytree(results / "done", results.parent / "only" / "done")
    by_path = torchscale(results.parent, *line.replace("RUN", "results/done").split())
    done = torchscale(results.parent, *line.replace("RUN", name).split())
    assert by_path.returncode in (0, 3), (
        by_path.stderr
    )  # predict refuses, after it has read the run
    assert done.returncode == by_path.returncode, done.stderr
    assert json.loads(done.stdout)
    if name == "done":
        assert done.stdout == by_path.stdout


def test_several_runs_are_named_in_the_error(results: Path) -> None:
    for line in ("report results", "predict results --gpus 8", "export --to junit results"):
        done = torchscale(results.parent, *line.split())
        assert done.returncode == 2
        assert "results holds 3 runs" in done.stderr
        assert "name one: results/done, results/begun, results/broken" in done.stderr


def test_a_path_comes_before_a_name_and_a_mistyped_name_is_suggested(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(results.parent)
    assert run_by_name(Path("done")) == Path("results/done")
    assert run_by_name(Path("no-run")) == Path("no-run"), "nothing was measured in it"
    assert run_by_name(Path("./results/done")) == Path("results/done")
    with pytest.raises(UsageError, match=r"there is no run 'doen'; did you mean 'done'\?"):
        run_folder(Path("doen"))
    Path("done").mkdir()
    assert run_by_name(Path("done")) == Path("done")


def test_a_name_of_a_run_and_of_a_baseline_is_refused(results: Path) -> None:
    assert torchscale(results.parent, "compare", "done", "--save", "done").returncode == 0
    done = torchscale(results.parent, "compare", "done", "begun")
    assert done.returncode == 2
    assert "done is a run and a baseline" in done.stderr
    assert "name its path: results/done or baselines/done.json" in done.stderr


def test_a_run_elsewhere_is_listed_by_its_path(results: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    listed = torchscale(tmp_path / "elsewhere", "runs", str(results))
    assert str(results / "done") in listed.stdout
    assert f"Next: torchscale report {results / 'done'}" in listed.stderr


def test_without_a_run_there_is_a_next_step(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no run is named"):
        newest_run(tmp_path)


def test_an_error_names_the_first_and_counts_the_rest() -> None:
    assert first_names(["a", "b"]) == "a, b"
    assert first_names([str(number) for number in range(9)]) == "0, 1, 2, 3, 4, 5 and 3 more"


def test_a_run_that_is_not_there_is_told_with_what_is(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(results.parent)
    (results.parent / "empty").mkdir()
    expected = {
        "doen": "there is no run 'doen'; did you mean 'done'?",
        "results/doen": "there is no run 'results/doen'; did you mean 'results/done'?",
        "other": "there is no run 'other'",
        "no/where": "there is no run 'no/where'",
    }
    for typed, message in expected.items():
        for find in (run_folder, existing_run):
            with pytest.raises(UsageError) as caught:
                find(Path(typed))
            assert caught.value.message == message
    with pytest.raises(UsageError) as caught:
        existing_run(Path("other"))
    assert caught.value.hint == "there are: done, begun, broken"
    told = [torchscale(results.parent, *words.split()) for words in ("runs resluts", "history r")]
    assert [done.returncode for done in told] == [2, 2]
    assert "resluts is not a directory; did you mean 'results'?" in told[0].stderr
