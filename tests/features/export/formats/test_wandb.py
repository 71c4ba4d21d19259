"""W&B offline, read back from the file that ``wandb sync`` uploads, with W&B's own messages."""

from __future__ import annotations

import errno
import io
import json
import logging
import os
import socket
import warnings
from pathlib import Path
from typing import Any

import pytest

from tests.features.export.formats.stores import PAGE, finish, run_folder, run_to_store
from torchscale.errors import OutputError
from torchscale.features.export.formats import wandb as exporter
from torchscale.features.export.formats.wandb_log import read_records
from torchscale.schema.state import State
from torchscale.store.run_folder import RunFolder

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module", autouse=True)
def imported() -> None:
    """W&B, where its tests run: to import it takes seconds, and its own imports warn."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import wandb.proto.wandb_internal_pb2  # noqa: F401


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings of whoever runs the tests."""
    for name in ("WANDB_MODE", "WANDB_DIR", "WANDB_PROJECT", "WANDB_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    for name in ("WANDB_CONFIG_DIR", "WANDB_CACHE_DIR", "WANDB_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "home"))


def records(directory: Path) -> list[Any]:
    """Everything in the file of a run, which is complete."""
    from wandb.proto import wandb_internal_pb2

    (path,) = directory.glob("run-*.wandb")
    assert path.read_bytes()[:4] == b":W&B"
    found = [wandb_internal_pb2.Record.FromString(record) for record in read_records(path)]
    assert found[-1].WhichOneof("record_type") == "exit"
    return found


def content(directory: Path) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Name, config and summary of a run."""
    name, config, summary = "", {}, {}
    for record in records(directory):
        kind = record.WhichOneof("record_type")
        if kind == "run":
            name = record.run.display_name
            config.update(
                {item.key: json.loads(item.value_json) for item in record.run.config.update}
            )
        elif kind == "config":
            config.update({item.key: json.loads(item.value_json) for item in record.config.update})
        elif kind == "summary":
            keys = (
                ("/".join(item.nested_key) or item.key, item.value_json)
                for item in record.summary.update
            )
            summary.update({key: json.loads(value) for key, value in keys})
    return name, config, summary


def runs(place: Path) -> dict[str, Path]:
    """Name → directory of each run."""
    found = {content(path)[0]: path for path in (place / "wandb").glob("offline-run-*")}
    assert len(found) == len(list((place / "wandb").glob("offline-run-*")))
    return found


def test_a_cell_is_a_run_with_parameters_figures_and_intervals(tmp_path: Path) -> None:
    path, place = run_folder(tmp_path / "nightly", states={1: State.OOM}), tmp_path / "here"
    run = run_to_store(path).exported
    result = exporter.store(run_to_store(path), str(place))
    assert result.written == ("3 runs", "0 were there already")
    assert result.notes == (f"to upload them: wandb sync {place}/wandb/offline-run-*",)
    found = runs(place)
    assert found.keys() == {"nightly report", *(cell.id for cell in run.cells)}
    _, config, summary = content(found[run.cells[0].id])
    (rate,) = [figure for figure in run.cells[0].figures if figure.name == "samples_per_second"]
    assert rate.bounds is not None
    assert summary["samples_per_second"] == rate.value
    assert [summary[f"samples_per_second_{end}_95"] for end in ("lower", "upper")] == list(
        rate.bounds
    )
    assert config["cell.batch_size"] == "8"
    assert config["environment.versions.torch"] == "2.13.0"
    _, config, summary = content(found[run.cells[1].id])
    assert config["torchscale.state"] == "oom"
    assert "samples_per_second" not in summary
    (page,) = found["nightly report"].glob("files/media/html/*.html")
    assert page.read_bytes() == PAGE
    assert sorted(entry.name for entry in place.iterdir()) == ["wandb"]


def test_exporting_twice_writes_nothing_twice(tmp_path: Path) -> None:
    path = run_folder(tmp_path / "nightly", only=0)
    exporter.store(run_to_store(path, report=False), str(tmp_path))
    assert len(runs(tmp_path)) == 1
    finish(RunFolder.open(path), 1)
    exporter.store(run_to_store(path, report=False), str(tmp_path))
    before = runs(tmp_path)
    assert len(before) == 2
    again = exporter.store(run_to_store(path, report=False), str(tmp_path))
    assert (again.written, again.notes) == (("0 runs", "2 were there already"), ())
    assert runs(tmp_path) == before


def test_an_export_that_fails_leaves_no_half_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = run_folder(tmp_path / "nightly")

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(exporter, "_MARK", "no/such/directory.json")
        with pytest.raises(OutputError, match="cannot write W&B runs to"):
            exporter.store(run_to_store(path, report=False), str(tmp_path / "here"))
    assert list((tmp_path / "here").glob("wandb/*")) == []
    assert [entry.name for entry in (tmp_path / "here").iterdir() if entry.name != "wandb"] == []


def test_a_run_is_stored_once_the_service_of_wandb_has_written_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Path] = []

    def late(log: Path) -> bool:
        asked.append(log)
        assert not list((tmp_path / "here").glob("wandb/*")), "it has its name before it is written"
        return len(asked) > 3

    monkeypatch.setattr(exporter, "has_ended", late)
    path = run_folder(tmp_path / "nightly", only=0)
    exporter.store(run_to_store(path, report=False), str(tmp_path / "here"))
    assert len(asked) == 4
    (made,) = (tmp_path / "here").glob("wandb/offline-run-*")
    assert asked[0].name in {file.name for file in made.iterdir()}


def test_a_service_that_never_writes_is_named_and_leaves_no_half_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporter, "has_ended", lambda log: False)
    monkeypatch.setattr(exporter, "_WRITE_SECONDS", 0.05)
    with pytest.raises(OutputError, match=r"service has not written run-.*\.wandb within 0.05 s"):
        exporter.store(run_to_store(run_folder(tmp_path / "nightly")), str(tmp_path / "here"))
    assert list((tmp_path / "here").glob("wandb/*")) == []


def test_what_a_killed_export_left_is_removed_by_the_next(tmp_path: Path) -> None:
    hostname = socket.gethostname()
    ours = tmp_path / f".torchscale-{hostname}-4194305-abc"  # above the largest pid of Linux
    others = tmp_path / ".torchscale-elsewhere-4194305-abc"
    running = tmp_path / f".torchscale-{hostname}-{os.getpid()}-abc"
    for directory in (ours, others, running):
        (directory / "wandb").mkdir(parents=True)
    exporter._remove_left_over(tmp_path)
    assert [directory.exists() for directory in (ours, others, running)] == [False, True, True]


def test_nothing_but_the_export_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_TOKEN", "tok-verysecret-0123456789")
    monkeypatch.setenv("WANDB_API_KEY", "verysecret" * 4)
    import wandb

    monkeypatch.setenv("WANDB_MODE", "online")  # no network is used all the same
    path = run_folder(tmp_path / "nightly")
    exporter.store(run_to_store(path, report=False), str(tmp_path / "here"))
    files = [file for file in (tmp_path / "here").rglob("*") if file.is_file()]
    assert not any(b"verysecret" in file.read_bytes() for file in files)
    assert {file.name for file in files if file.parent.name == "files"} <= {
        "config.yaml",
        "wandb-summary.json",
    }
    assert wandb.run is None


def test_whatever_wandb_raises_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise RuntimeError("run ID x\nis in use")

    monkeypatch.setattr("wandb.init", refused)
    with pytest.raises(OutputError, match=r"cannot write W&B runs to .*: run ID x is in use"):
        exporter.store(
            run_to_store(run_folder(tmp_path / "nightly"), report=False), str(tmp_path / "here")
        )
    assert list((tmp_path / "here").iterdir()) == []


def test_its_log_may_have_no_room(capsys: pytest.CaptureFixture[str]) -> None:
    """It is on the same disk: the error of the export says enough."""

    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    logger = logging.Logger("as of W&B")
    logger.addHandler(logging.StreamHandler(Full()))
    with exporter._log_that_may_fail():
        logger.warning("a line")
    assert capsys.readouterr().err == ""
    logger.warning("a line after it")
    assert "No space left" in capsys.readouterr().err
