"""Results directories read by one process or several: the same summary, and nothing left behind."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.factories import failed_record, launch_record, run, trained
from torchscale.errors import StoreError
from torchscale.results import reader as reading
from torchscale.results.reader import read_summary
from torchscale.schema.state import State
from torchscale.store.run_folder import RunFolder

pytestmark = pytest.mark.slow


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """Nine cells: one failed, one whose record is damaged, one not run."""
    planned = run({}, gpu_counts=[1], batch_sizes=[1, 2, 3, 4, 5, 6, 7, 8, 9])
    folder = RunFolder.create(tmp_path / "results", planned.experiment)
    for number, entry in enumerate(folder.experiment.plan[:-1]):
        cell = trained(entry)
        folder.begin_launch(cell, 0)
        failed = failed_record(cell, State.OOM, "out of memory")
        folder.finish_launch(
            cell, failed if number == 3 else launch_record(cell, batches=[1.0 + number / 10] * 10)
        )
    damaged = folder.launch_directory(trained(folder.experiment.plan[5]), 0) / "record.json"
    damaged.write_text(damaged.read_text()[:-10])
    return folder


@pytest.fixture
def helpers(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Two helpers for the nine cells; the commands of those that were started."""
    monkeypatch.setattr(reading, "_HEAD_START", 2)
    monkeypatch.setattr(reading, "_RANKS_PER_PROCESS", 3)
    monkeypatch.setattr("os.cpu_count", lambda: 3)
    started: list[list[str]] = []
    start = subprocess.Popen

    def counted(command: Sequence[str], **options: Any) -> Any:
        started.append(list(command))
        return start(command, **options)

    monkeypatch.setattr(subprocess, "Popen", counted)
    return started


def test_several_processes_find_what_one_does(
    folder: RunFolder, helpers: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = read_summary(folder.path)
    assert [command[-2:] for command in helpers] == [["3", "3"], ["4", "3"]]
    states = [cell.state for cell in found.cells]
    assert states == [State.OK] * 3 + [
        State.OOM,
        State.OK,
        State.WAITING,
        State.OK,
        State.OK,
        State.WAITING,
    ]
    assert len(found.problems) == 1
    helpers.clear()
    monkeypatch.setattr(reading, "_HEAD_START", 500)
    assert read_summary(folder.path) == found
    assert helpers == [], "few cells are not worth a process"


def test_few_cells_of_many_ranks_are_shared_too(
    folder: RunFolder, helpers: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is read grows with ranks, not with cells: here the head start is two cells of eight
    ranks."""
    monkeypatch.setattr(reading, "_HEAD_START", 17)
    wide = tuple(
        entry.model_copy(update={"cell": trained(entry).model_copy(update={"world_size": 8})})
        for entry in folder.experiment.plan
    )
    assert reading._head_start(folder.experiment) == (9, 0)
    assert reading._head_start(folder.experiment.model_copy(update={"plan": wide})) == (2, 56)
    assert reading._head_start(folder.experiment.model_copy(update={"plan": ()})) == (0, 0)


def test_cells_of_a_plan_that_grew_meanwhile_are_read_again(
    folder: RunFolder, helpers: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = read_summary(folder.path)
    monkeypatch.setattr(
        reading, "_fingerprint", lambda experiment: ("another plan", len(experiment.plan))
    )
    assert read_summary(folder.path) == alone
    assert len(helpers) == 4


def test_a_helper_that_dies_is_told_and_the_other_ended(
    folder: RunFolder, helpers: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(StoreError, match="a process that read a share of the results ended with 1"):
        read_summary(folder.path)
    assert helpers
    assert [child for child in psutil.Process().children() if child.name() == "false"] == []


def test_a_helper_that_hangs_is_given_up(
    folder: RunFolder, helpers: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_LIMIT_SECONDS", 0.01)
    with pytest.raises(StoreError, match="took over"):
        read_summary(folder.path)
    assert helpers
    running = [child.cmdline() for child in psutil.Process().children()]
    assert not any("torchscale.results.reader" in command for command in running)
