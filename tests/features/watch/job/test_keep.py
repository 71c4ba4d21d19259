"""The run folder of a watched job, with the machine and its table."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from tests.factories import machine
from tests.features.watch.analysis.jobs import START_NS, job
from tests.features.watch.job.folders import write_job
from torchscale.errors import MachineError
from torchscale.features.watch.job import keep as watch
from torchscale.features.watch.job.job import WatchedJob
from torchscale.features.watch.job.run import Watched

_STARTED = START_NS * 1e-9 - 4.0


def _watched(directory: Path) -> Watched:
    watched = WatchedJob(directory, ("torchrun", "train.py"), _STARTED)
    watched.advance()
    return Watched(directory, watched, watched.report(_STARTED + 60, 0))


def test_a_job_leaves_a_table_of_its_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "detect_machine", lambda: machine(cores=2))
    write_job(tmp_path, job(2, 200))

    assert watch.keep_run(_watched(tmp_path)) == ""

    with (tmp_path / "summary.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert (row["model"], row["state"], row["gpu_count"]) == ("train.py", "ok", "2")


def test_a_machine_that_cannot_be_examined_leaves_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise MachineError("PyTorch cannot be used here")

    monkeypatch.setattr(watch, "detect_machine", fail)
    write_job(tmp_path, job(2, 200))

    assert watch.keep_run(_watched(tmp_path)) == "PyTorch cannot be used here"
    assert not (tmp_path / "experiment.json").exists()


def test_a_program_that_trained_nothing_leaves_no_run(tmp_path: Path) -> None:
    assert watch.keep_run(_watched(tmp_path)) == ""
    assert not list(tmp_path.iterdir())
