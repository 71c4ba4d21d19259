"""Files of waits, there as long as the wait."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from torchscale.features.watch.ends.files import read_waits
from torchscale.worker.watch import waits
from torchscale.worker.watch.waits import Waiting


@pytest.fixture(autouse=True)
def job(tmp_path: Path) -> Iterator[Path]:
    waits.note_waits(str(tmp_path))
    yield tmp_path
    waits.note_waits("")


def test_a_wait_is_there_until_it_ends(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "4")
    waiting = Waiting()
    waiting.begin("group", {"address": "here:29500"})

    (wait,) = read_waits(job)
    assert (wait.rank, wait.world_size, wait.address) == (2, 4, "here:29500")
    assert any(frame[2] == "test_a_wait_is_there_until_it_ends" for frame in wait.frames)
    waiting.end()
    assert read_waits(job) == []
    waiting.end()  # once more does nothing


def test_what_becomes_known_is_added(job: Path) -> None:
    waiting = Waiting()
    waiting.begin("rendezvous", {"least_nodes": 2})
    waiting.change({"joined_nodes": 1})

    assert read_waits(job)[0].joined_nodes == 1
    waiting.end()
    waiting.change({"joined_nodes": 2})  # it is over
    assert read_waits(job) == []


def test_without_a_job_nothing_is_written(job: Path) -> None:
    waits.note_waits("")
    Waiting().begin("group", {})
    assert list(job.iterdir()) == []


def test_a_folder_that_is_gone_is_not_made(job: Path) -> None:
    waits.note_waits(str(job / "gone"))
    with pytest.raises(OSError):
        Waiting().begin("group", {})
    assert not (job / "gone").exists()
