"""Files of a cell's folder, and what is said where its file system fails."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import NoReturn

import pytest

from tests.factories import cells, launch_record
from torchscale.errors import OutputError
from torchscale.schema.cells.hardware import HardwareResult
from torchscale.schema.run.experiment_file import PlannedCell
from torchscale.store.cell_files import (
    launch_directories,
    make_cell_directory,
    number_of,
    read_cell,
    read_cell_run,
    read_launch,
    recording_directories,
    set_aside,
)
from torchscale.store.json_files import DamagedFileError, UnreadableFileError

CELL, OTHER = cells()[:2]
REASONS = [
    (OSError(errno.EIO, "Input/output error", "/mnt/run"), "Input/output error"),
    (OSError("the server is gone"), "the server is gone"),
]
"""Errors, and what is said of them: the path is named already."""


def launches(root: Path, *names: str) -> Path:
    """A cell's folder with these directories."""
    folder = root / "cells" / CELL.id
    for name in names:
        (folder / name).mkdir(parents=True)
    return folder


def failing(monkeypatch: pytest.MonkeyPatch, method: str, error: OSError) -> None:
    def fail(*_: object, **__: object) -> NoReturn:
        raise error

    monkeypatch.setattr(Path, method, fail)


@pytest.mark.parametrize(("error", "reason"), REASONS)
def test_a_folder_that_cannot_be_listed_is_a_problem_of_its_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError, reason: str
) -> None:
    launches(tmp_path, "launch-0")
    failing(monkeypatch, "iterdir", error)
    found, problems = read_cell_run(tmp_path, PlannedCell(cell=CELL))
    assert (found.launches, found.profile) == ((), None)
    assert problems == [f"cells/{CELL.id}: {reason}"]


@pytest.mark.parametrize(("error", "reason"), REASONS)
def test_a_record_that_its_file_system_does_not_give_is_not_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError, reason: str
) -> None:
    folder = launches(tmp_path, "launch-0")
    failing(monkeypatch, "lstat", error)
    with pytest.raises(UnreadableFileError) as raised:
        read_launch(tmp_path, folder / "launch-0", CELL)
    assert str(raised.value) == f"cells/{CELL.id}/launch-0/record.json: {reason}"


@pytest.mark.parametrize(("error", "reason"), REASONS)
def test_a_directory_that_cannot_be_made_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError, reason: str
) -> None:
    failing(monkeypatch, "mkdir", error)
    directory = tmp_path / "cells" / CELL.id / "launch-0"
    with pytest.raises(OutputError) as raised:
        make_cell_directory(directory, CELL)
    assert raised.value.message == f"cannot create {directory}: {reason}"


@pytest.mark.parametrize(("error", "reason"), REASONS)
def test_a_launch_that_cannot_be_moved_stays_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError, reason: str
) -> None:
    folder = launches(tmp_path, "launch-0")
    failing(monkeypatch, "rename", error)
    with pytest.raises(OutputError) as raised:
        set_aside(tmp_path, folder / "launch-0", "damaged")
    assert raised.value.message == f"cannot set aside a launch of {CELL.id}: {reason}"
    assert (folder / "launch-0").is_dir()


def test_launches_and_recordings_stand_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    names = ("launch-10", "launch-2", "profile-11", "profile-3", "launch-x", "launch-1-copy")
    folder = launches(tmp_path, *names, "launch-1234567", "launch-999999")
    assert [number_of(path) for path in launch_directories(folder)] == [2, 10, 999_999]
    assert [number_of(path) for path in recording_directories(folder)] == [3, 11]
    assert launch_directories(tmp_path / "nowhere") == []
    (tmp_path / "file").write_text("")
    assert launch_directories(tmp_path / "file") == []


def test_a_folder_says_of_which_cell_it_is_once(tmp_path: Path) -> None:
    folder = tmp_path / "cells" / CELL.id
    with pytest.raises(DamagedFileError, match=r"cell\.json: not there"):
        read_cell(folder)
    make_cell_directory(folder / "launch-0", CELL)
    make_cell_directory(folder / "launch-1", OTHER)
    assert read_cell(folder) == CELL


def test_logs_are_cleaned_of_a_launch_that_was_killed_alone(tmp_path: Path) -> None:
    """Those of a launch that ended were cleaned then, and what is replaced stays as it was."""
    text = "https://bob:correct-horse-7@hub/x\n"
    for why, kept in (("partial", "https://<redacted>@hub/x\n"), ("replaced", text)):
        folder = launches(tmp_path, "launch-0")
        log = folder / "launch-0" / "logs" / "none" / "attempt_0" / "0" / "stderr.log"
        log.parent.mkdir(parents=True)
        log.write_text(text)
        target = set_aside(tmp_path, folder / "launch-0", why)
        assert target.name == f"{CELL.id}-launch-0-{why}-0"
        assert (target / log.relative_to(folder / "launch-0")).read_text() == kept


def test_a_recording_whose_analysis_is_a_link_to_nowhere_is_a_problem(tmp_path: Path) -> None:
    folder = launches(tmp_path, "profile-0")
    (folder / "profile-0" / "analysis.json").symlink_to("gone.json")
    found, (problem,) = read_cell_run(tmp_path, PlannedCell(cell=CELL))
    assert found.profile is None
    assert "profile-0/analysis.json" in problem


def test_a_record_of_another_kind_of_cell_is_not_taken(tmp_path: Path) -> None:
    """Its figures would be read as what they are not."""
    folder = launches(tmp_path, "launch-0")
    record = launch_record(CELL, payload=HardwareResult())
    (folder / "launch-0" / "record.json").write_text(record.model_dump_json())
    with pytest.raises(DamagedFileError) as raised:
        read_launch(tmp_path, folder / "launch-0", CELL)
    assert str(raised.value).endswith(
        "record.json: its payload is of kind hardware, but its cell is of kind training"
    )


def test_of_an_id_that_is_not_the_cells_the_beginning_is_told(tmp_path: Path) -> None:
    folder = launches(tmp_path, "launch-0")
    record = launch_record(CELL, cell_id="x" * 101)
    (folder / "launch-0" / "record.json").write_text(record.model_dump_json())
    with pytest.raises(DamagedFileError, match=rf"belongs to launch 0 of '{'x' * 100}'$"):
        read_launch(tmp_path, folder / "launch-0", CELL)
