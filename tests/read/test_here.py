"""What is here, without reading a record."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest

from tests.read.test_runs import make_run
from torchscale.measure.summary_file import write_summary_file
from torchscale.read import here
from torchscale.read.here import look_around
from torchscale.read.runs import list_runs
from torchscale.schema.state import State
from torchscale.store.locations import WATCH_REPORT
from torchscale.store.lock import locked_folder
from torchscale.store.run_folder import RunFolder


class FakeNvml:
    """A driver with these GPUs; one without a name has stopped to answer."""

    class NVMLError(Exception):
        """NVML's."""

    def __init__(self, names: tuple[str, ...] | None, waits_for: threading.Event | None = None):
        self._names, self._waits_for = names, waits_for

    def nvmlInit(self) -> None:
        if self._waits_for is not None:
            self._waits_for.wait(60)
        if self._names is None:
            raise self.NVMLError

    def nvmlShutdown(self) -> None:
        pass

    def nvmlDeviceGetCount(self) -> int:
        return len(self._names or ())

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
        assert self._names is not None
        return self._names[index]

    def nvmlDeviceGetName(self, handle: str) -> str:
        return handle


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(here, "_AMD", tmp_path / "no-kfd")
    return tmp_path


def test_gpus_are_counted_by_their_names(place: Path) -> None:
    found = look_around(FakeNvml(("NVIDIA H200", "NVIDIA H200", "", "NVIDIA L4")))
    assert (found.gpus, found.has_gpus) == ("2 × NVIDIA H200, 1 × NVIDIA L4", True)


def test_without_a_gpu_ranks_are_on_cpu_cores(place: Path) -> None:
    for names in (None, ()):
        found = look_around(FakeNvml(names))
        assert (found.gpus, found.has_gpus) == ("none: ranks run on CPU cores, over gloo", False)
    (place / "no-kfd").touch()
    assert look_around(FakeNvml(None)).gpus == "of AMD"


def test_a_driver_that_takes_its_time_is_not_waited_for(place: Path) -> None:
    answer = threading.Event()
    try:
        found = look_around(FakeNvml(("NVIDIA H200",), answer))
    finally:
        answer.set()
    assert (found.gpus, found.has_gpus) == ("the driver has not answered yet", None)


@pytest.mark.parametrize(
    "states", [(State.OK, State.OK), (State.OK,), (), (State.OK, State.CRASHED)], ids=str
)
def test_the_state_is_the_one_that_runs_lists(place: Path, states: tuple[State, ...]) -> None:
    folder = make_run(place / "results" / "demo", states, 1000.0)
    if states:  # a sweep writes it after every launch
        write_summary_file(RunFolder.open(folder))
    assert look_around(FakeNvml(None)).state == list_runs()[0].state
    with locked_folder(folder):
        assert look_around(FakeNvml(None)).state == "running"


def test_recordings_and_watched_jobs_have_their_states(place: Path) -> None:
    recording = place / "results" / "recording"
    recording.mkdir(parents=True)
    (recording / "analysis.json").write_text("{}")
    assert look_around(FakeNvml(None)).state == "recording"
    job = place / "results" / "job"
    job.mkdir()
    report = job / WATCH_REPORT
    report.write_text(json.dumps({"state": "failed"}))
    assert look_around(FakeNvml(None)).state == "failed"
    report.write_text(json.dumps({"state": "running"}))
    assert look_around(FakeNvml(None)).state == "running"
    os.utime(report, (3e9, report.stat().st_mtime - 1000))
    os.utime(recording / "analysis.json", (1000, 1000))
    assert look_around(FakeNvml(None)).state == "without a result"
    report.write_text("{")
    assert look_around(FakeNvml(None)).state == "unreadable"


def test_the_config_is_the_newest_that_names_models(place: Path) -> None:
    for number, name in enumerate(["a.yaml", "b.yml", "other.yaml"]):
        (place / name).write_text("values: 1\n" if name == "other.yaml" else "models: x\n")
        os.utime(place / name, (1000 + number, 1000 + number))
    os.mkfifo(place / "pipe.yaml")
    assert look_around(FakeNvml(None)).config == Path("b.yml")


@pytest.mark.parametrize("content", ["[]", "null", '"x"', "[" * 100_000])
def test_a_report_of_another_shape_is_unreadable(place: Path, content: str) -> None:
    folder = place / "results" / "watched"
    folder.mkdir(parents=True)
    (folder / WATCH_REPORT).write_text(content)
    assert look_around(FakeNvml(None)).state == "unreadable"


@pytest.mark.parametrize("table", ["state\nok\rx\n", "state\n" + "x" * 140_000])
def test_a_damaged_table_is_unreadable(place: Path, table: str) -> None:
    run = make_run(place / "results" / "run", (State.OK,), 1e9)
    (run / "summary.csv").write_bytes(table.encode())
    assert look_around(FakeNvml(None)).state == "unreadable"


def test_a_file_in_place_of_the_results_holds_no_run(place: Path) -> None:
    (place / "results").touch()
    assert look_around(FakeNvml(None)).runs == []
