from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.factories import cells, experiment, experiment_file, launch_record
from torchscale.errors import OutputError, StoreError
from torchscale.schema.experiment import PlannedCell
from torchscale.schema.run import Run
from torchscale.store import RunFolder, atomic_write_text, load_run, locked_folder


def folder_with(path: Path, **content: object) -> RunFolder:
    plan = [PlannedCell(cell=cell) for cell in cells(**content)]
    return RunFolder.create(path, experiment_file(experiment(**content), plan))


def measured(path: Path) -> RunFolder:
    """A folder in which the first cell has been launched."""
    folder = folder_with(path)
    cell = folder.experiment.plan[0].cell
    folder.begin_launch(cell, 0)
    folder.finish_launch(cell, launch_record(cell))
    return folder


def record_path(folder: RunFolder) -> Path:
    return folder.launch_directory(folder.experiment.plan[0].cell, 0) / "record.json"


def test_a_record_comes_back_as_it_was(tmp_path: Path) -> None:
    folder = measured(tmp_path / "run")
    cell = folder.experiment.plan[0].cell
    run = load_run(tmp_path / "run")
    assert isinstance(run, Run)
    assert run.experiment == folder.experiment
    assert run.cells[0].launches == (launch_record(cell),)
    assert run.cells[1].launches == ()
    assert run.problems == ()


@pytest.mark.parametrize("function", ["replace", "fsync"])
def test_a_write_that_fails_leaves_the_old_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    path = tmp_path / "file.json"
    atomic_write_text(path, "old")

    def no_space(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os if function == "fsync" else Path, function, no_space)
    with pytest.raises(OutputError, match="No space left on device"):
        atomic_write_text(path, "new")
    monkeypatch.undo()
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file.json"]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ('{"schema_version": 1, "cell_id"', "Invalid JSON"),
        ('{"schema_version": 99, "new_field": 1}', "schema version 99"),
        ("{}", "Field required"),
        ('{"schema_version": 1, "seconds": NaN}', "record.json"),
        ("", "Invalid JSON"),
    ],
)
def test_a_damaged_record_is_named_on_reading_and_quarantined_on_resume(
    tmp_path: Path, content: str, told: str
) -> None:
    folder = measured(tmp_path / "run")
    record_path(folder).write_text(content)
    run = load_run(tmp_path / "run")
    assert run.cells[0].launches == ()
    assert len(run.problems) == 1
    assert "record.json" in run.problems[0]
    assert told in run.problems[0]
    cell = folder.experiment.plan[0].cell
    assert folder.record(cell, 0) is None
    kept = tmp_path / "run" / "quarantine" / f"{cell.id}-launch-0-damaged-0" / "record.json"
    assert kept.read_text() == content
    assert load_run(tmp_path / "run").problems == ()


def test_a_record_of_another_cell_is_not_taken(tmp_path: Path) -> None:
    folder = measured(tmp_path / "run")
    other = folder.experiment.plan[1].cell
    record_path(folder).write_text(launch_record(other).model_dump_json())
    assert "belongs to launch 0" in load_run(tmp_path / "run").problems[0]


def test_a_link_that_leads_outside_is_not_followed(tmp_path: Path) -> None:
    folder = measured(tmp_path / "run")
    secret = tmp_path / "secret.json"
    record_path(folder).rename(secret)
    record_path(folder).symlink_to(secret)
    assert "leads out of the results directory" in load_run(tmp_path / "run").problems[0]


def test_nothing_set_aside_is_overwritten(tmp_path: Path) -> None:
    folder = measured(tmp_path / "run")
    cell = folder.experiment.plan[0].cell
    first = folder.set_aside(cell, 0, "replaced")
    folder.begin_launch(cell, 0)
    folder.finish_launch(cell, launch_record(cell, seconds=99.0))
    second = folder.set_aside(cell, 0, "replaced")
    assert first != second
    assert (first / "record.json").exists()
    assert (second / "record.json").exists()


def test_a_partial_launch_is_set_aside_when_it_starts_again(tmp_path: Path) -> None:
    folder = folder_with(tmp_path / "run")
    cell = folder.experiment.plan[0].cell
    (folder.begin_launch(cell, 0) / "steps-rank-0.jsonl").write_text("{}\n")
    assert list(folder.begin_launch(cell, 0).iterdir()) == []
    assert list((tmp_path / "run" / "quarantine").glob("*-partial-0/steps-rank-0.jsonl"))


def test_axes_may_grow_and_what_was_measured_stays_in_the_plan(tmp_path: Path) -> None:
    measured(tmp_path / "run")
    folder = folder_with(tmp_path / "run", batch_sizes=[16], benchmark={"repeats": 3})
    assert [entry.cell.batch_size for entry in folder.experiment.plan] == [16, 16, 8]
    assert load_run(tmp_path / "run").experiment == folder.experiment


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ({"training": {"seed": 3}}, r"training.seed \(0 there, 3 here\)"),
        ({"scaling": "strong"}, r"scaling \(weak there, strong here\)"),
        ({"benchmark": {"warmup_steps": 3}}, r"benchmark.warmup_steps \(20 there, 3 here\)"),
    ],
)
def test_another_setting_is_refused_by_name(tmp_path: Path, content: dict[str, object], told: str) -> None:
    folder_with(tmp_path / "run")
    before = (tmp_path / "run" / "experiment.json").read_text()
    with pytest.raises(StoreError, match=told):
        folder_with(tmp_path / "run", **content)
    assert (tmp_path / "run" / "experiment.json").read_text() == before


def test_another_machine_is_refused(tmp_path: Path) -> None:
    first = folder_with(tmp_path / "run").experiment
    with pytest.raises(StoreError, match=r"threads per rank \(1 there, 4 here\)"):
        RunFolder.create(tmp_path / "run", first.model_copy(update={"threads_per_rank": 4}))
    versions = first.environment.versions.model_copy(update={"torch": "9.9"})
    moved = first.environment.model_copy(update={"versions": versions})
    with pytest.raises(StoreError, match=r"torch \(2.13.0 there, 9.9 here\)"):
        RunFolder.create(tmp_path / "run", first.model_copy(update={"environment": moved}))


def test_what_is_no_run_folder(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is not a directory"):
        load_run(tmp_path / "none")
    with pytest.raises(StoreError, match=r"has no experiment\.json"):
        load_run(tmp_path)
    (tmp_path / "experiment.json").write_text('{"schema_version": 7}')
    with pytest.raises(StoreError, match="schema version 7"):
        load_run(tmp_path)


def test_the_lock_excludes_another_process_and_goes_with_it(tmp_path: Path) -> None:
    code = f"""
import pathlib, sys, time
from torchscale.store import locked_folder
with locked_folder(pathlib.Path({str(tmp_path / "run")!r})):
    print("held", flush=True)
    time.sleep(60)
"""
    holder = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(StoreError, match="another torchscale"), locked_folder(tmp_path / "run"):
        pass
    holder.kill()
    holder.communicate()
    with locked_folder(tmp_path / "run"):
        pass


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot create"), locked_folder(tmp_path / "file" / "run"):
        pass
