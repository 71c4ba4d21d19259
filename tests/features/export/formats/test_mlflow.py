"""MLflow, read back through its own client from a local store."""

from __future__ import annotations

import os
import resource
import socket
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.features.export.formats.stores import PAGE, finish, run_folder, run_to_store
from torchscale.errors import MachineError, OutputError
from torchscale.features.export.formats import mlflow as exporter
from torchscale.schema.state import State
from torchscale.store.run_folder import RunFolder

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module", autouse=True)
def imported() -> None:
    """MLflow, where its tests run: to import it takes seconds, and its own imports warn."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import mlflow  # noqa: F401


def client_of(place: str) -> MlflowClient:
    """MLflow's own reader of a store."""
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=place)


@pytest.fixture(
    params=["files", pytest.param("SQLite", marks=pytest.mark.campaign)]
)  # new tables take ten seconds
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """The address of a new store."""
    monkeypatch.chdir(tmp_path)  # where MLflow puts the artefacts of a database
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    return (
        (tmp_path / "store").as_uri()
        if request.param == "files"
        else f"sqlite:///{tmp_path}/mlflow.db"
    )


def stored(place: str) -> dict[str, Run]:
    """Cell → its run."""
    client = client_of(place)
    experiments = [each.experiment_id for each in client.search_experiments()]
    runs = list(client.search_runs(experiments, max_results=1000))
    found = {run.data.tags["torchscale.cell"]: run for run in runs}
    assert len(found) == len(runs)
    return found


def test_a_cell_is_a_run_with_parameters_figures_and_intervals(tmp_path: Path, place: str) -> None:
    path = run_folder(tmp_path / "nightly", states={1: State.OOM})
    result = exporter.store(run_to_store(path), place)
    assert result.written == ("2 runs", "0 were there already")
    run = run_to_store(path).exported
    found = stored(place)
    assert found.keys() == {"(sweep)", *(cell.id for cell in run.cells)}
    good, failed = (found[cell.id] for cell in run.cells)
    figures = {figure.name: figure for figure in run.cells[0].figures}
    rate = figures["samples_per_second"]
    assert good.data.metrics["samples_per_second"] == rate.value
    assert rate.bounds is not None
    assert good.data.metrics["samples_per_second_lower_95"] == rate.bounds[0]
    assert good.data.metrics["samples_per_second_upper_95"] == rate.bounds[1]
    assert good.data.params["cell.batch_size"] == "8"
    assert good.data.params["config.training.learning_rate"]
    assert good.data.params["environment.versions.torch"] == "2.13.0"
    assert (good.info.status, failed.info.status) == ("FINISHED", "FAILED")
    assert failed.data.metrics == {}
    assert (failed.data.tags["torchscale.state"], failed.data.tags["torchscale.reason"]) == (
        "oom",
        "why",
    )
    parent = found["(sweep)"]
    assert {run.data.tags["mlflow.parentRunId"] for run in (good, failed)} == {parent.info.run_id}
    assert parent.info.run_name == "nightly"
    client = client_of(place)
    assert (
        Path(
            client.download_artifacts(parent.info.run_id, "report.html", str(tmp_path))
        ).read_bytes()
        == PAGE
    )


def test_exporting_twice_writes_nothing_twice(tmp_path: Path, place: str) -> None:
    path = run_folder(tmp_path / "nightly", only=0)
    exporter.store(run_to_store(path, report=False), place)
    before = stored(place)
    assert len(before) == 2
    assert {run.info.status for run in before.values()} == {"FINISHED"}
    finish(RunFolder.open(path), 1)
    path.rename(tmp_path / "renamed")
    again = exporter.store(run_to_store(tmp_path / "renamed"), place)
    after = stored(place)
    assert before["(sweep)"].info.run_id == after["(sweep)"].info.run_id
    assert len(after) == 3
    assert exporter.store(run_to_store(tmp_path / "renamed"), place).written == (
        "0 runs",
        "2 were there already",
    )
    assert {cell: run.info.run_id for cell, run in stored(place).items()} == {
        cell: run.info.run_id for cell, run in after.items()
    }
    assert again.written[0] in ("1 runs", "2 runs")


def test_what_an_export_left_half_written_is_written_anew(
    tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = run_folder(tmp_path / "nightly")

    def killed(*_: object, **__: object) -> None:
        raise OSError("killed")

    with monkeypatch.context() as patch:
        patch.setattr("mlflow.MlflowClient.set_terminated", killed)
        with pytest.raises(
            OutputError, match=r"cannot write to the MLflow store (file|sqlite):///.*: killed"
        ):
            exporter.store(run_to_store(path), place)
    half = {cell: run.info.run_id for cell, run in stored(place).items() if cell != "(sweep)"}
    assert len(half) == 1
    assert exporter.store(run_to_store(path), place).written == ("2 runs", "0 were there already")
    found = stored(place)
    assert len(found) == 3
    assert not set(half.values()) & {run.info.run_id for run in found.values()}
    assert all(run.info.status == "FINISHED" for run in found.values())


def test_a_store_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    path = run_folder(tmp_path / "nightly")
    with pytest.raises(
        OutputError, match="cannot write to the MLflow store nonsense://<redacted>@x: "
    ):
        exporter.store(run_to_store(path), "nonsense://user:secret@x")


def test_a_database_that_cannot_be_opened_is_tried_once(tmp_path: Path) -> None:
    """MLflow would try ten times, with pauses of 0.1 to 51 s."""
    path = run_folder(tmp_path / "nightly")
    with pytest.raises(OutputError, match=r"nowhere/x\.db: unable to open database file"):
        exporter.store(run_to_store(path), f"sqlite:///{tmp_path}/nowhere/x.db")


def test_a_database_that_has_no_room_is_one_line(tmp_path: Path) -> None:
    """MLflow lets the errors of SQLAlchemy pass."""
    path = run_folder(tmp_path / "nightly")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 15, before[1]))
    try:
        with pytest.raises(OutputError, match=r"cannot write to the MLflow store .*sqlite3\."):
            exporter.store(run_to_store(path), f"sqlite:///{tmp_path}/full.db")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_server_that_does_not_answer_is_waited_for_within_bounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user's own settings stay."""
    for name in ("TIMEOUT", "MAX_RETRIES", "BACKOFF_FACTOR"):
        monkeypatch.setenv(f"MLFLOW_HTTP_REQUEST_{name}", "")  # so that it is restored afterwards
        monkeypatch.delenv(f"MLFLOW_HTTP_REQUEST_{name}")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(
            OutputError, match=r"cannot write to the MLflow store http://127\.0\.0\.1:"
        ):
            exporter.store(run_to_store(run_folder(tmp_path / "nightly")), address)
    assert os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] == "1"
    assert os.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"] == "2"


def test_a_database_without_its_library_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporter, "find_spec", lambda name: None)
    with pytest.raises(MachineError, match="--to mlflow needs sqlalchemy, which is not installed"):
        exporter.store(
            run_to_store(run_folder(tmp_path / "nightly")), f"sqlite:///{tmp_path}/mlflow.db"
        )
    assert not (tmp_path / "mlflow.db").exists()


@pytest.mark.parametrize("place", ["files"], indirect=True)
@pytest.mark.parametrize("tagged", [True, False])
@pytest.mark.parametrize("emptied", ["meta.yaml", "metrics/samples_per_second_per_device"])
def test_a_run_whose_writer_was_killed_is_written_anew(
    tmp_path: Path, place: str, emptied: str, *, tagged: bool
) -> None:
    """MLflow itself cannot list an experiment with such a run in a directory."""
    path = run_folder(tmp_path / "nightly")
    exporter.store(run_to_store(path), place)
    cell = next(run for name, run in stored(place).items() if name != "(sweep)")
    directory = tmp_path / "store" / cell.info.experiment_id / cell.info.run_id
    assert (directory / emptied).stat().st_size
    (directory / emptied).write_text("")
    if not tagged:
        for tag in (directory / "tags").iterdir():
            tag.unlink()
    assert exporter.store(run_to_store(path), place).written == ("1 runs", "1 were there already")
    assert {run.info.status for run in stored(place).values()} == {"FINISHED"}


@pytest.mark.parametrize("place", ["files"], indirect=True)
def test_a_damaged_run_of_something_else_is_named_and_kept(tmp_path: Path, place: str) -> None:
    path = run_folder(tmp_path / "nightly")
    client = client_of(place)
    experiment = client.create_experiment(
        run_to_store(path).summary.experiment.config.experiment_name
    )
    other = client.create_run(experiment, tags={"of": "somebody"})
    meta = tmp_path / "store" / experiment / other.info.run_id / "meta.yaml"
    meta.write_text("")
    with pytest.raises(OutputError, match=f"{meta} is empty, because what wrote it was killed"):
        exporter.store(run_to_store(path), place)
    assert (meta.parent / "tags" / "of").read_text() == "somebody"


def test_a_database_without_its_driver_is_an_error_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_driver(**_: object) -> None:
        raise ModuleNotFoundError("No module named 'psycopg2'", name="psycopg2")

    monkeypatch.setattr("mlflow.MlflowClient", without_driver)
    with pytest.raises(MachineError, match="needs psycopg2, which is not installed") as refused:
        exporter.store(
            run_to_store(run_folder(tmp_path / "run")), "postgresql://somebody:secret@host/db"
        )
    assert "secret" not in refused.value.message


@pytest.mark.parametrize("address", ["sqlite://", "sqlite:///", "sqlite:///:memory:"])
def test_a_store_in_memory_is_refused(tmp_path: Path, address: str) -> None:
    with pytest.raises(OutputError, match="is in memory and would be lost"):
        exporter.store(run_to_store(run_folder(tmp_path / "run")), address)
