"""Copies of results at an address: at the end of a sweep and of a command, and later."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.factories import experiment
from tests.fake_launches import FakeLaunches, Recorder
from tests.features.export.formats.stores import run_folder
from tests.object_stores import Files, empty_store, objects, use
from torchscale.config.choices import ExportTarget
from torchscale.errors import ExitCode, UsageError
from torchscale.features.export import cell_exports, copies
from torchscale.features.export.cell_exports import CellExports
from torchscale.features.export.copies import copy_results
from torchscale.features.export.export import export_to_store
from torchscale.launch.control import StopRequest
from torchscale.measure.benchmark import benchmark
from torchscale.results.reader import read_summary
from torchscale.util.processes.bounded import Finished

PLACE = "memory://bucket/runs"


@pytest.fixture(autouse=True)
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty one; commands between launches are not started."""
    done = Finished(0, "", "", timed_out=False, seconds=0.1)
    monkeypatch.setattr(cell_exports, "run_bounded", lambda *_, **__: done)
    with empty_store():
        yield


@pytest.fixture
def denied(monkeypatch: pytest.MonkeyPatch) -> Files:
    """A store that denies access."""

    def deny(key: str) -> None:
        raise PermissionError("Access Denied")

    files = Files({})
    files.on["open"] = deny
    use(monkeypatch, files)
    return files


def test_a_folder_is_copied_later_and_once(tmp_path: Path, recorder: Recorder) -> None:
    folder = run_folder(tmp_path / "demo")
    stored = export_to_store(ExportTarget.STORAGE, folder, PLACE, observer=recorder)
    assert stored.place == "memory://bucket/runs/demo"
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert set(objects("memory://bucket/runs/demo")) == files - {".copied.json"}
    again = export_to_store(ExportTarget.STORAGE, folder, PLACE)
    assert again.written == ("0 files, 0 B",)


def test_what_is_no_run_is_copied_too(tmp_path: Path) -> None:
    (tmp_path / "watched").mkdir()
    (tmp_path / "watched" / "watch.json").write_text("{}")
    export_to_store(ExportTarget.STORAGE, tmp_path / "watched", PLACE)
    assert objects(PLACE) == {"watched/watch.json": b"{}"}


@pytest.mark.parametrize(
    ("place", "error"),
    [
        (None, "--to storage needs an address"),
        ("elsewhere", "elsewhere is a local path; expected an address such as s3://bucket/runs"),
        ("foo://a/b", "unknown scheme foo"),
    ],
)
def test_a_place_that_is_none_is_refused(tmp_path: Path, place: str | None, error: str) -> None:
    with pytest.raises(UsageError, match=error):
        export_to_store(ExportTarget.STORAGE, run_folder(tmp_path / "demo"), place)


def test_a_file_is_no_folder_of_results(tmp_path: Path) -> None:
    (tmp_path / "node.json").write_text("{}")
    with pytest.raises(UsageError, match="takes a folder of results, not the file"):
        export_to_store(ExportTarget.STORAGE, tmp_path / "node.json", PLACE)


def test_a_copy_that_fails_says_why_and_what_to_type(
    tmp_path: Path, denied: Files, recorder: Recorder
) -> None:
    folder = run_folder(tmp_path / "demo")
    assert not copy_results(folder, PLACE, recorder)
    assert recorder.notes == [
        "warning: not copied: memory://bucket/runs/demo: access denied (Access Denied); set "
        "AZURE_STORAGE_CONNECTION_STRING, or AZURE_STORAGE_ACCOUNT_NAME and a key",
        f"The results are in {folder}. To copy them: torchscale export --to storage {folder} -o "
        f"{PLACE}",
    ]
    denied.on.clear()
    assert copy_results(folder, PLACE, recorder)
    assert recorder.notes[-1] == "Copied to memory://bucket/runs/demo"


def test_a_sweep_is_complete_at_the_address_when_it_ends(
    tmp_path: Path, launches: FakeLaunches, recorder: Recorder
) -> None:
    config = experiment(export={"storage": PLACE})
    outcome = benchmark(config, output_dir=tmp_path / "demo", observer=recorder)
    assert outcome.exit_code is ExitCode.OK
    there = objects("memory://bucket/runs/demo")
    assert there["summary.csv"] == (tmp_path / "demo" / "summary.csv").read_bytes()
    assert sum(name.endswith("record.json") for name in there) == len(launches.ran)
    assert recorder.notes[-1] == "Copied to memory://bucket/runs/demo"


def test_each_cell_is_copied_by_a_command_when_it_ends(
    tmp_path: Path, launches: FakeLaunches, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []

    def run(argv: list[str], **how: object) -> Finished:
        commands.append(argv[argv.index("export") :])
        assert how["timeout_seconds"] == 60
        return Finished(0, "", "", timed_out=False, seconds=0.1)

    monkeypatch.setattr(cell_exports, "_SHARE", float("inf"))
    monkeypatch.setattr(cell_exports, "run_bounded", run)
    config = experiment(export={"storage": PLACE})
    benchmark(config, output_dir=tmp_path / "demo")
    folder = str(tmp_path / "demo")
    command = ["export", "--to", "storage", "--source", folder, "--no-report", "--output", PLACE]
    assert commands == [command], "of two cells the first; the last comes with the end"


def test_a_sweep_whose_copy_failed_keeps_all_and_ends_with_1(
    tmp_path: Path, launches: FakeLaunches, denied: Files, recorder: Recorder
) -> None:
    config = experiment(export={"storage": PLACE})
    outcome = benchmark(config, output_dir=tmp_path / "demo", observer=recorder)
    assert outcome.exit_code is ExitCode.FAILED
    assert not outcome.has_failed, "no cell did"
    assert len(list((tmp_path / "demo").rglob("record.json"))) == len(launches.ran)
    assert recorder.notes[-1].endswith(f"{tmp_path / 'demo'} -o {PLACE}")


def test_an_interrupted_sweep_is_copied_all_the_same(
    tmp_path: Path, launches: FakeLaunches
) -> None:
    launches.stop_after = 1
    config = experiment(export={"storage": PLACE})
    outcome = benchmark(config, output_dir=tmp_path / "demo")
    assert outcome.exit_code is ExitCode.INTERRUPTED
    there = objects("memory://bucket/runs/demo")
    assert sum(name.endswith("record.json") for name in there) == 1


def test_a_second_interrupt_ends_the_copy(
    tmp_path: Path, launches: FakeLaunches, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    benchmark(experiment(), output_dir=tmp_path / "demo")
    stop = StopRequest()
    stop.count = 1
    asked: list[bool] = []

    def copy(folder: Path, place: str, observer: Recorder, cancelled: object) -> bool:
        assert callable(cancelled)
        asked.append(cancelled())
        stop.count += 1
        asked.append(cancelled())
        return False

    monkeypatch.setattr(cell_exports, "copy_results", copy)
    config = experiment(export={"storage": PLACE})
    exports = CellExports(config, tmp_path / "demo", recorder, stop)
    exports.sweep_ended(read_summary(tmp_path / "demo"))
    assert asked == [False, True]
    assert exports.has_failed


def test_a_cancelled_copy_is_told(
    tmp_path: Path, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copies, "copy_folder", lambda *_: None)
    assert not copy_results(tmp_path, PLACE, recorder)
    assert recorder.notes[0] == "warning: not copied: interrupted"


def test_an_address_that_is_none_is_refused_before_the_first_launch(
    tmp_path: Path, launches: FakeLaunches
) -> None:
    with pytest.raises(UsageError, match="unknown scheme foo"):
        benchmark(experiment(export={"storage": "foo://a/b"}), output_dir=tmp_path / "demo")
    assert launches.ran == []
