"""Pipes, devices and links in place of the files of a results directory: every command that reads
one ends soon, with a clear error or without what it cannot read, and shows nothing from outside the
directory."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.campaign import cases
from tests.cli.program import torchscale
from tests.store.test_run_folder import measured

SECRET = "correct horse battery"  # noqa: S105 - made up
COMMANDS: list[tuple[str, ...]] = [
    ("report", "run", "--format", "md", "--output", "-"),
    ("report", "run", "--format", "json", "--output", "-"),
    ("report", "run", "--format", "csv", "--output", "-"),
    ("report", "run", "--format", "terminal"),
    ("runs", "."),
    ("compare", "run", "sound"),
    ("predict", "--source", "run", "--gpus", "4"),
    ("compare", "run", "--save", "mine", "--baselines", "kept"),
    ("profile", "analyze", "run"),
    ("autopsy", "--log-dir", "run"),
]
CELL = "cells/*"
PLACES = cases(
    [
        "experiment.json",
        f"{CELL}/launch-0/record.json",
        f"{CELL}/launch-0/rank-0.json",
        f"{CELL}/profile-0/recording.json",
    ],
    [
        f"{CELL}/cell.json",
        f"{CELL}/launch-0",
        f"{CELL}/launch-0/steps-rank-0.jsonl",
        f"{CELL}/launch-0/telemetry.jsonl",
        f"{CELL}/launch-0/progress.jsonl",
        f"{CELL}/profile-0/analysis.json",
        f"{CELL}/profile-0/trace-rank-0.json",
        "summary.csv",
        "cells",
        "quarantine",
        ".lock",
        "trace_0",
    ],
)


def pipe(path: Path) -> None:
    os.mkfifo(path)


def endless_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def link_out(path: Path) -> None:
    path.symlink_to(outside(path))


def directory_out(path: Path) -> None:
    path.symlink_to(outside(path).parent)


def outside(path: Path) -> Path:
    """A file with a secret beside the results directory, whose first line every reader would quote
    in an error."""
    root = next(parent for parent in path.parents if parent.name == "run").parent
    (root / "private").mkdir(exist_ok=True)
    secret = root / "private" / "secret.json"
    secret.write_text(f'"{SECRET}"\n{SECRET}\n')
    return secret


def loop(path: Path) -> None:
    path.symlink_to(path.name)


def directory(path: Path) -> None:
    path.mkdir()


def listening_socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # its address has at most 107 characters
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


KINDS: list[Callable[[Path], None]] = [
    pipe,
    *cases([], [endless_device, link_out, directory_out, loop, directory, listening_socket]),
]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A measured run with everything that a run folder may hold."""
    root = tmp_path_factory.mktemp("sound")
    folder = measured(root / "run")
    (cell,) = (path for path in (folder.path / "cells").iterdir() if (path / "launch-0").exists())
    (cell / "profile-0").mkdir()
    return root


@pytest.mark.timeout(120)
@pytest.mark.parametrize("make", KINDS, ids=lambda make: make.__name__)
@pytest.mark.parametrize("place", PLACES)
def test_no_command_hangs_fails_or_looks_outside(
    sound: Path, tmp_path: Path, place: str, make: Callable[[Path], None]
) -> None:
    shutil.copytree(sound / "run", tmp_path / "run")
    shutil.copytree(sound / "run", tmp_path / "sound")
    parent, _, name = place.rpartition("/")
    (target,) = (
        path / name
        for path in ([tmp_path / "run"] if not parent else first(tmp_path / "run", parent))
    )
    if target.is_dir():
        shutil.rmtree(target)
    target.unlink(missing_ok=True)
    make(target)
    for command in COMMANDS:
        done = torchscale(tmp_path, *command)
        assert done.returncode in (0, 1, 2, 3), (command, done.stderr)
        assert SECRET not in done.stdout + done.stderr, command
        if done.returncode > 1:
            assert done.stderr.strip(), command


def first(run: Path, pattern: str) -> list[Path]:
    """The launched cell's directory of this pattern."""
    return [
        path
        for path in run.glob(pattern)
        if any(run.glob("cells/*/launch-0")) and _is_launched(path)
    ][:1]


def _is_launched(path: Path) -> bool:
    return any((folder / "launch-0").exists() for folder in (path, path.parent))
