"""A file system that fails at any one of the calls that a command makes: a server that is gone, a
bad disk, no permission. The command says so in a line, or leaves out what it says that it leaves
out."""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from tests import factories
from tests.cli.program import torchscale
from torchscale.errors import FileSystemError
from torchscale.store.run_folder import RunFolder

CALLS = ("stat", "lstat", "open", "scandir", "listdir", "readlink", "mkdir", "replace")
ERRORS = (errno.ESTALE, errno.EIO, errno.EACCES)
COMMANDS = {
    "report": ("report", "runs/a", "--format", "json", "-o", "-"),
    "page": ("report", "runs/a"),
    "runs": ("runs", "runs"),
    "compare": ("compare", "runs/a", "runs/b"),
    "directory": ("compare", "runs"),
    "history": ("history", "runs"),
    "export": ("export", "--to", "prometheus", "runs/a"),
}


@dataclass
class FileSystem:
    """Calls below ``root``.

    Attributes:
        fails: Takes number, name and path of a call: whether it fails with ``error``.
        calls: Name and path of each, in order.
    """

    root: Path
    error: int = errno.ESTALE
    fails: Callable[[int, str, str], bool] = lambda number, name, path: False
    calls: list[tuple[str, str]] = field(default_factory=list)

    def call(self, name: str, path: Any) -> None:
        """Count it, and let it fail when it is its turn."""
        if isinstance(path, int) or not Path(os.fsdecode(path)).absolute().is_relative_to(
            self.root
        ):
            return
        self.calls.append((name, os.fsdecode(path)))
        if self.fails(len(self.calls) - 1, *self.calls[-1]):
            raise OSError(self.error, os.strerror(self.error), os.fsdecode(path))

    def run(self, command: str, fails_at: int | None = None) -> CompletedProcess[str]:
        """What a command says on it; the call of that number fails as well."""
        if fails_at is not None:
            self.fails = lambda number, name, path: number == fails_at
        self.calls = []
        return torchscale(self.root.parent, *COMMANDS[command])


@pytest.fixture
def file_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FileSystem]:
    content = factories.run()
    for name in ("a", "b"):
        folder = RunFolder.create(tmp_path / "runs" / name, content.experiment)
        for cell_run in content.cells:
            for launch in cell_run.launches:
                folder.begin_launch(cell_run.planned.cell, launch.launch)
                folder.finish_launch(cell_run.planned.cell, launch)
    made = FileSystem(tmp_path / "runs")

    def failing(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any = ".", *args: Any, **options: Any) -> Any:
            made.call(name, path)
            return real(path, *args, **options)

        return call

    for name in CALLS:
        monkeypatch.setattr(os, name, failing(name, getattr(os, name)))
    monkeypatch.setattr(io, "open", failing("open", io.open))
    yield made


@pytest.mark.parametrize("command", COMMANDS)
def test_a_call_that_fails_is_told_in_a_line(file_system: FileSystem, command: str) -> None:
    whole = file_system.run(command)
    calls = file_system.calls
    assert "Traceback" not in whole.stderr
    assert len(calls) > 15
    for place, call in enumerate(calls):
        file_system.error = error = ERRORS[place % len(ERRORS)]
        failed = file_system.run(command, fails_at=place)
        said = failed.stderr + failed.stdout
        where = f"{os.strerror(error)} at call {place}, {call}: {said}"
        assert "Traceback" not in said, where
        assert failed.returncode in (whole.returncode, 1, 2, 3), where
        if failed.returncode == 3:
            assert os.strerror(error) in failed.stderr, where
            assert "hint:" in failed.stderr, where


def test_a_cell_that_cannot_be_listed_is_named(file_system: FileSystem) -> None:
    """It is not one that was never measured."""
    file_system.run("report")
    listed = [
        place
        for place, (name, path) in enumerate(file_system.calls)
        if name in ("listdir", "scandir") and "cells/tiny" in path
    ]
    assert listed
    said = file_system.run("report", fails_at=listed[0]).stdout
    assert "Stale file handle" in said


def test_one_run_that_fails_leaves_the_others_in_the_list(file_system: FileSystem) -> None:
    file_system.fails = lambda number, name, path: "runs/b" in path
    listed = file_system.run("runs")
    assert listed.returncode == 0, listed.stderr
    assert "unreadable" in listed.stdout
    assert "Stale file handle" in listed.stdout
    assert " done " in listed.stdout


def test_a_record_that_is_not_given_is_not_set_aside(file_system: FileSystem) -> None:
    folder = RunFolder.open(file_system.root / "a")
    cell = folder.experiment.plan[0].cell
    file_system.fails = lambda number, name, path: path.endswith("record.json")
    with pytest.raises(FileSystemError, match="Stale file handle"):
        folder.record(cell, 0)
    file_system.fails = lambda number, name, path: False
    assert folder.record(cell, 0) is not None
    assert not (folder.path / "quarantine").exists()


def test_a_directory_of_runs_of_which_none_can_be_read(file_system: FileSystem) -> None:
    for path in file_system.root.glob("*/experiment.json"):
        path.write_text("{")
    compared = file_system.run("directory")
    assert compared.returncode == 2
    assert "no run to compare" in compared.stderr


@pytest.mark.parametrize(("seconds", "year"), [(1e12, "3000"), (-1e12, "1970")])
def test_a_file_of_a_year_that_cannot_be(
    file_system: FileSystem, monkeypatch: pytest.MonkeyPatch, seconds: float, year: str
) -> None:
    real = os.stat

    def stat(*args: Any, **options: Any) -> os.stat_result:
        return os.stat_result(tuple(real(*args, **options)), {"st_mtime": seconds})

    monkeypatch.setattr(os, "stat", stat)
    listed = file_system.run("runs")
    assert listed.returncode == 0, listed.stderr
    assert year in listed.stdout


def test_a_history_is_not_told_without_what_cannot_be_listed(file_system: FileSystem) -> None:
    """Its newest runs may be there."""
    file_system.fails = lambda number, name, path: name == "scandir" and path.endswith("runs")
    told = file_system.run("history")
    assert told.returncode == 3
    assert "Stale file handle" in told.stderr


def test_a_history_names_the_run_that_it_leaves_out(
    file_system: FileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Path.glob

    def glob(path: Path, pattern: str) -> Iterator[Path]:
        if path.name == "b":
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), str(path))
        return real(path, pattern)

    monkeypatch.setattr(Path, "glob", glob)
    told = file_system.run("history")
    said = " ".join((told.stdout + told.stderr).split())
    assert told.returncode == 0, said
    assert "Left out: cannot use runs/b: Stale file handle" in said


def test_a_recording_that_is_not_given_need_not_be_made_again(file_system: FileSystem) -> None:
    recording = file_system.root / "a"
    (recording / "experiment.json").rename(recording / "analysis.json")
    file_system.fails = lambda number, name, path: name == "open" and path.endswith("analysis.json")
    told = file_system.run("report")
    assert told.returncode == 3
    assert "analyze the recording again" not in told.stderr
