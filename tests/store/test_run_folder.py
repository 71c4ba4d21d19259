from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.factories import cells, experiment, experiment_file, launch_record, trained
from torchscale.errors import OutputError, StoreError
from torchscale.schema.profiles.analysis import ProfileAnalysis, Window, WindowKind
from torchscale.schema.run.content import Run
from torchscale.schema.run.experiment_file import PlannedCell
from torchscale.schema.state import State
from torchscale.schema.watch.report import WatchReport
from torchscale.store.run_folder import PROFILED_ONLY, RunFolder, load_run
from torchscale.util.files import atomic_write_text


def folder_with(path: Path, **content: object) -> RunFolder:
    plan = [PlannedCell(cell=cell) for cell in cells(**content)]
    return RunFolder.create(path, experiment_file(experiment(**content), plan))


def measured(path: Path) -> RunFolder:
    """A folder in which the first cell has been launched."""
    folder = folder_with(path)
    cell = trained(folder.experiment.plan[0])
    folder.begin_launch(cell, 0)
    folder.finish_launch(cell, launch_record(cell))
    return folder


def record_path(folder: RunFolder) -> Path:
    return folder.launch_directory(trained(folder.experiment.plan[0]), 0) / "record.json"


def test_a_record_comes_back_as_it_was(tmp_path: Path) -> None:
    folder = measured(tmp_path / "run")
    cell = trained(folder.experiment.plan[0])
    run = load_run(tmp_path / "run")
    assert isinstance(run, Run)
    assert run.experiment == folder.experiment
    assert run.cells[0].launches == (launch_record(cell),)
    assert run.cells[1].launches == ()
    assert run.problems == ()


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ('{"schema_version": 2, "cell_id"', "Invalid JSON"),
        ('{"schema_version": 99, "new_field": 1}', "schema version 99"),
        (
            '{"schema_version": 1, "ranks": []}',
            "written by torchscale 0.1.0 (format 1); this version reads format 2",
        ),
        ("{}", "Field required"),
        ('{"schema_version": 2, "seconds": NaN}', "record.json"),
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
    cell = trained(folder.experiment.plan[0])
    assert folder.record(cell, 0) is None
    kept = tmp_path / "run" / "quarantine" / f"{cell.id}-launch-0-damaged-0" / "record.json"
    assert kept.read_text() == content
    (note,) = folder.set_aside_notes
    assert told in note
    assert f"moved to quarantine/{cell.id}-launch-0-damaged-0, and measured again" in note
    assert load_run(tmp_path / "run").problems == ()


def test_a_record_of_another_cell_is_not_taken(tmp_path: Path) -> None:
    folder = measured(tmp_path / "run")
    other = trained(folder.experiment.plan[1])
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
    cell = trained(folder.experiment.plan[0])
    first = folder.set_aside(cell, 0, "replaced")
    folder.begin_launch(cell, 0)
    folder.finish_launch(cell, launch_record(cell, seconds=99.0))
    second = folder.set_aside(cell, 0, "replaced")
    assert [place.name.rpartition("-")[2] for place in (first, second)] == ["0", "1"]
    assert (first / "record.json").exists()
    assert (second / "record.json").exists()


def test_a_partial_launch_is_set_aside_when_it_starts_again(tmp_path: Path) -> None:
    folder = folder_with(tmp_path / "run")
    cell = trained(folder.experiment.plan[0])
    (folder.begin_launch(cell, 0) / "steps-rank-0.jsonl").write_text("{}\n")
    assert list(folder.begin_launch(cell, 0).iterdir()) == []
    assert list((tmp_path / "run" / "quarantine").glob("*-partial-0/steps-rank-0.jsonl"))


def test_axes_may_grow_and_what_was_measured_stays_in_the_plan(tmp_path: Path) -> None:
    measured(tmp_path / "run")
    folder = folder_with(tmp_path / "run", batch_sizes=[16], benchmark={"repeats": 3})
    assert [trained(entry).batch_size for entry in folder.experiment.plan] == [16, 16, 8]
    assert load_run(tmp_path / "run").experiment == folder.experiment


def test_what_a_folder_was_begun_under_is_kept_when_it_goes_on_under_another(
    tmp_path: Path,
) -> None:
    first = measured(tmp_path / "run").experiment
    assert RunFolder.create(tmp_path / "run", first).experiment == first
    upgraded = first.environment.model_copy(update={"command": ("torchscale", "benchmark", "-v")})
    going_on = first.model_copy(update={"created_at": "2026-03-01", "environment": upgraded})
    found = RunFolder.create(tmp_path / "run", going_on).experiment
    assert (found.created_at, found.environment) == (first.created_at, first.environment)
    assert [(one.started_at, one.environment) for one in found.later] == [("2026-03-01", upgraded)]
    assert RunFolder.join(tmp_path / "run", going_on).experiment == found
    back = RunFolder.join(
        tmp_path / "run", first.model_copy(update={"created_at": "2026-04-01"})
    ).experiment
    assert [one.started_at for one in back.sessions] == [
        first.created_at,
        "2026-03-01",
        "2026-04-01",
    ]
    same = back.model_copy(update={"created_at": "2026-05-01", "later": ()})
    resumed = RunFolder.create(tmp_path / "run", same).experiment
    assert [one.started_at for one in resumed.later] == ["2026-03-01", "2026-04-01", "2026-05-01"]
    back = resumed
    assert load_run(tmp_path / "run").experiment == back


def test_the_folder_of_a_watched_job_is_told_with_its_command(tmp_path: Path) -> None:
    (tmp_path / "watch.json").write_text("{}")
    with pytest.raises(StoreError, match="no experiment") as caught:
        RunFolder.open(tmp_path)
    assert caught.value.hint == f"it holds a watched job: torchscale watch {tmp_path}"


def test_what_is_no_run_folder(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is not a directory"):
        load_run(tmp_path / "none")
    with pytest.raises(StoreError, match=r"has no experiment\.json"):
        load_run(tmp_path)
    (tmp_path / "experiment.json").write_text('{"schema_version": 7}')
    with pytest.raises(StoreError, match="schema version 7"):
        load_run(tmp_path)


def test_what_would_wait_for_ever_or_go_round_in_circles_is_not_opened(tmp_path: Path) -> None:
    folder = measured(tmp_path / "run")
    path = record_path(folder)
    path.unlink()
    os.mkfifo(path)
    assert "not a regular file" in load_run(tmp_path / "run").problems[0]
    path.unlink()
    path.symlink_to(path.name)
    assert "record.json" in load_run(tmp_path / "run").problems[0]
    path.unlink()
    path.symlink_to("nowhere.json")
    assert "record.json" in load_run(tmp_path / "run").problems[0]
    path.unlink()
    path.mkdir()
    assert "record.json" in load_run(tmp_path / "run").problems[0]
    assert folder.record(trained(folder.experiment.plan[0]), 0) is None


def test_a_launch_directory_that_is_a_link_to_another_place_is_not_followed(tmp_path: Path) -> None:
    folder = measured(tmp_path / "run")
    launch = folder.launch_directory(trained(folder.experiment.plan[0]), 0)
    launch.rename(tmp_path / "elsewhere")
    launch.symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    run = load_run(tmp_path / "run")
    assert run.cells[0].launches == ()
    assert "leads out of the results directory" in run.problems[0]


def test_a_huge_record_is_not_read(tmp_path: Path) -> None:
    folder = measured(tmp_path / "run")
    with record_path(folder).open("r+b") as file:
        file.truncate(65 * 2**20)
    assert "larger than 64 MiB" in load_run(tmp_path / "run").problems[0]


def test_a_record_with_a_field_that_nobody_knows_is_damaged(tmp_path: Path) -> None:
    folder = measured(tmp_path / "run")
    content = json.loads(record_path(folder).read_text())
    record_path(folder).write_text(json.dumps({**content, "samples_per_second": 1e9}))
    assert "samples_per_second" in load_run(tmp_path / "run").problems[0]


def test_a_record_that_was_moved_to_another_repeat_is_not_taken(tmp_path: Path) -> None:
    folder = measured(tmp_path / "run")
    launch = folder.launch_directory(trained(folder.experiment.plan[0]), 0)
    launch.rename(launch.with_name("launch-1"))
    assert "belongs to launch 0" in load_run(tmp_path / "run").problems[0]


def test_damage_to_one_launch_leaves_the_others(tmp_path: Path) -> None:
    folder = measured(tmp_path / "run")
    cell = trained(folder.experiment.plan[0])
    folder.begin_launch(cell, 1)
    folder.finish_launch(cell, launch_record(cell, 1))
    record_path(folder).write_text("{")
    run = load_run(tmp_path / "run")
    assert [record.launch for record in run.cells[0].launches] == [1]
    assert len(run.problems) == 1


def profile_of(folder: RunFolder, number: int = 0, stall: float = 12.5) -> Path:
    """A recording of the first cell, analyzed."""
    directory = folder.begin_profile(folder.experiment.plan[number].cell)
    window = Window(kind=WindowKind.STEPS, steps=20, seconds=1.0)
    analysis = ProfileAnalysis(
        recorder="nsys",
        sources=("x.sqlite",),
        world_size=2,
        sync_stall_percent=stall,
        window=window,
        step_seconds=0.05,
        per_rank=(),
        collectives=(),
        kernels=(),
        findings=(),
        abstentions=(),
    )
    atomic_write_text(directory / "analysis.json", analysis.model_dump_json())
    return directory


def test_the_last_profile_of_a_cell_is_the_one_that_is_shown(tmp_path: Path) -> None:
    folder = measured(tmp_path / "run")
    cell = trained(folder.experiment.plan[0])
    assert not folder.has_profile(cell)
    first, second = profile_of(folder), profile_of(folder, stall=3.0)
    assert (first.name, second.name) == ("profile-0", "profile-1")
    third = folder.begin_profile(cell)  # a recording that failed leaves no analysis
    assert third.name == "profile-2"
    loaded = load_run(tmp_path / "run")
    assert loaded.cells[0].profile is not None
    assert loaded.cells[0].profile.sync_stall_percent == 3.0
    assert loaded.cells[1].profile is None
    (second / "analysis.json").write_text("{")
    damaged = load_run(tmp_path / "run")
    assert damaged.cells[0].profile is None
    assert "profile-1/analysis.json" in damaged.problems[0]
    assert damaged.cells[0].launches == loaded.cells[0].launches


def test_a_profile_joins_a_folder_of_another_experiment(tmp_path: Path) -> None:
    folder = measured(tmp_path / "run")
    other = cells(models="tiny-gpt2")[0]
    described = experiment_file(
        experiment(models="tiny-gpt2"), [PlannedCell(cell=other, skip_reason=PROFILED_ONLY)]
    )
    joined = RunFolder.join(tmp_path / "run", described)
    assert [entry.cell.id for entry in joined.experiment.plan][:-1] == [
        entry.cell.id for entry in folder.experiment.plan
    ]
    assert joined.experiment.plan[-1].skip_reason == "profiled, not measured"
    assert joined.experiment.config == folder.experiment.config
    profile_of(joined, -1)
    again = RunFolder.join(tmp_path / "run", described)
    assert len(again.experiment.plan) == len(joined.experiment.plan)
    # The sweep that is resumed keeps what was profiled in its folder.
    resumed = folder_with(tmp_path / "run")
    assert other.id in {entry.cell.id for entry in resumed.experiment.plan}

    alone = RunFolder.join(tmp_path / "new", described)
    assert [entry.skip_reason for entry in alone.experiment.plan] == ["profiled, not measured"]


@pytest.mark.parametrize("linked", ["cells", "cell", "launch", "quarantine"])
def test_nothing_is_written_where_a_link_leads_out(tmp_path: Path, linked: str) -> None:
    folder = measured(tmp_path / "run")
    cell = trained(folder.experiment.plan[0])
    launch = folder.launch_directory(cell, 0)
    if linked == "quarantine":
        (launch / "record.json").write_text("{}")
        (tmp_path / "other").mkdir()
        (tmp_path / "run" / "quarantine").symlink_to(tmp_path / "other")
    else:
        moved = {"cells": tmp_path / "run" / "cells", "cell": launch.parent, "launch": launch}[
            linked
        ]
        moved.rename(tmp_path / "other")
        moved.symlink_to(tmp_path / "other")
    before = sorted(str(path) for path in (tmp_path / "other").rglob("*"))
    with pytest.raises(StoreError, match="a link that leads out"):
        folder.record(cell, 0)
    if linked != "quarantine":
        with pytest.raises(StoreError, match="a link that leads out"):
            folder.begin_launch(cell, 1 if linked != "launch" else 0)
    assert sorted(str(path) for path in (tmp_path / "other").rglob("*")) == before


def test_the_results_directory_itself_may_be_a_link(tmp_path: Path) -> None:
    measured(tmp_path / "disk")
    (tmp_path / "run").symlink_to(tmp_path / "disk")
    folder = RunFolder.open(tmp_path / "run")
    cell = trained(folder.experiment.plan[0])
    assert folder.record(cell, 0) == launch_record(cell)
    folder.begin_launch(trained(folder.experiment.plan[1]), 0)


def test_secrets_in_records_of_others_are_not_shown(tmp_path: Path) -> None:
    folder = measured(tmp_path / "run")
    cell = trained(folder.experiment.plan[0])
    reason = "cannot fetch https://bob:correct-horse-7@hub/x"
    record = launch_record(cell, state=State.CRASHED, reason=reason)
    record_path(folder).write_text(record.model_dump_json())
    (launch,) = load_run(tmp_path / "run").cells[0].launches
    assert launch.reason == "cannot fetch https://<redacted>@hub/x"
    assert "correct-horse-7" not in launch.model_dump_json()


def test_a_killed_launch_leaves_no_secret_in_its_logs(tmp_path: Path) -> None:
    folder = folder_with(tmp_path / "run")
    cell = trained(folder.experiment.plan[0])
    log = folder.begin_launch(cell, 0) / "logs" / "none" / "attempt_0" / "0" / "stderr.log"
    log.parent.mkdir(parents=True)
    log.write_text("https://bob:correct-horse-7@hub/x\n")
    folder.begin_launch(cell, 0)
    (kept,) = (tmp_path / "run" / "quarantine").rglob("stderr.log")
    assert kept.read_text() == "https://<redacted>@hub/x\n"


def test_a_model_that_removes_its_folder_does_not_end_the_sweep(tmp_path: Path) -> None:
    folder = folder_with(tmp_path / "run")
    cell = trained(folder.experiment.plan[0])
    shutil.rmtree(folder.begin_launch(cell, 0).parent)
    folder.finish_launch(cell, launch_record(cell))
    assert folder.record(cell, 0) == launch_record(cell)


def test_what_a_killed_command_left_half_written_goes_with_the_next_launch(tmp_path: Path) -> None:
    folder = measured(tmp_path / "run")
    cell = trained(folder.experiment.plan[0])
    unfinished = folder.launch_directory(cell, 0).parent / ".cell.json.0123456789ab.tmp"
    unfinished.write_text("{")
    folder.begin_launch(cell, 1)
    assert not unfinished.exists()
    assert (unfinished.parent / "cell.json").exists()


def test_the_steps_of_a_rank_are_those_of_its_file(tmp_path: Path) -> None:
    folder = measured(tmp_path / "run")
    cell = trained(folder.experiment.plan[0])
    step = {"step": 0, "seconds": 0.5, "data_wait": 0.0, "forward": 0.1, "backward": 0.3}
    step |= {"optimizer": 0.1}
    (folder.launch_directory(cell, 0) / "steps-rank-1.jsonl").write_text(json.dumps(step) + "\n{")
    (found,) = folder.steps(cell, 0, 1)
    assert (found.step, found.seconds) == (0, 0.5)
    assert folder.steps(cell, 0, 0) == ()
    assert folder.readings(cell, 0) == ()


def test_a_launch_whose_directory_cannot_be_made_is_one_clear_line(tmp_path: Path) -> None:
    folder = folder_with(tmp_path / "run")
    cell = trained(folder.experiment.plan[0])
    (tmp_path / "run" / "cells" / cell.id).write_text("")
    with pytest.raises(OutputError, match=r"^cannot create .*/launch-0: Not a directory$"):
        folder.begin_launch(cell, 0)


def test_nothing_is_measured_into_a_folder_that_was_moved(tmp_path: Path) -> None:
    """Its place would hold launches without an ``experiment.json``, which no report finds."""
    folder = measured(tmp_path / "run")
    cell = trained(folder.experiment.plan[0])
    (tmp_path / "run").rename(tmp_path / "moved")
    for write in (
        lambda: folder.begin_launch(cell, 1),
        lambda: folder.finish_launch(cell, launch_record(cell, 1)),
        lambda: folder.begin_profile(cell),
    ):
        with pytest.raises(OutputError, match=r"run was moved or removed while it was measured"):
            write()
    assert [path.name for path in tmp_path.iterdir()] == ["moved"]
    assert load_run(tmp_path / "moved").cells[0].launches == (launch_record(cell),)


def test_a_folder_of_a_watched_job_is_told_how_to_read_it(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"it has no experiment\.json") as raised:
        RunFolder.open(tmp_path)
    assert raised.value.hint is None
    (tmp_path / "watch.json").write_text("{}")
    with pytest.raises(StoreError, match=r"it has no experiment\.json") as raised:
        RunFolder.open(tmp_path)
    assert raised.value.hint == f"it holds a watched job: torchscale watch {tmp_path}"


def test_what_was_seen_of_a_script_is_the_report_of_its_last_launch(tmp_path: Path) -> None:
    script = {"script": "train.py {batch_size}"}
    folder = folder_with(tmp_path / "run", models=[script], batch_sizes=[8], gpu_counts=[1])
    cell = trained(folder.experiment.plan[0])
    report = WatchReport(tool_version="1", command=("train.py",), started_at="", seconds=1.0)
    for launch, text in ((0, report.model_dump_json()), (1, "{")):
        path = folder.begin_launch(cell, launch) / "watch" / "watch.json"
        folder.finish_launch(cell, launch_record(cell, launch))
        assert folder.load().cells[0].watched == (None if launch == 0 else report)
        path.parent.mkdir()
        path.write_text(text)
        assert folder.load().cells[0].watched == report, "a damaged one is left out"
