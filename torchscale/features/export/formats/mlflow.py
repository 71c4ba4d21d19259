"""MLflow: a run per cell under one of the sweep, in any store that MLflow knows (a database, a
directory, a server).

A run is complete once it has the tag ``torchscale.digest``, which is set last: what was cut short
is written anew by the next export, and what is there already in the same form is left alone. In a
directory, MLflow empties or creates the file ``meta.yaml`` of a run, and the file of a metric,
before it writes it: a process that is killed in between leaves a run with which MLflow can no
longer list the experiment. The next export removes such a run if it is of the same sweep or holds
nothing.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from torchscale.errors import MachineError, OutputError
from torchscale.features.export.formats.store import (
    RunToStore,
    Stored,
    cells_to_store,
    content_digest,
    measured_values,
    missing_library,
    one_line,
    outcome_tags,
)
from torchscale.report.figures.figure import ExportedCell
from torchscale.schema.state import State
from torchscale.util.installation import library_command
from torchscale.util.redaction import redact_text

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Param, Run

_DIGEST = "torchscale.digest"
_CELL = "torchscale.cell"
_RUN = "torchscale.run"
_SWEEP = "(sweep)"
"""Stands for the cell of the run that all cells' runs belong to; no cell has such an id."""
_PARENT = "mlflow.parentRunId"
_MOST_PARAMETERS = 100
"""MLflow takes that many in a request, whatever the store."""
_LONGEST_VALUE = 500
"""Characters of a parameter: servers before 2.10 refuse longer ones."""
_LONGEST_TAG = 5000
_PAGE = 1000
_WRITTEN_WITHIN_SECONDS = 2.0
"""MLflow writes the 400 bytes of a run's ``meta.yaml`` in about a millisecond, a metric in less:
the writer of a file that stays empty was killed."""
_BOUNDS = {
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
}
"""Where the user has not set them. MLflow's own (120 s, 7 retries, each after twice the time of the
one before) wait for 20 minutes for a server that does not answer."""
_DATABASES = ("sqlite:", "postgresql", "mysql", "mssql")
"""What addresses of databases begin with, a driver after ``+`` aside."""


def store(run: RunToStore, place: str | None) -> Stored:
    """Write a run to a tracking store: by default the one of ``MLFLOW_TRACKING_URI``, else MLflow's
    own.

    Raises:
        MachineError: MLflow, or the library of the store, is not installed.
        OutputError: the store cannot be written or reached.
    """
    try:
        import mlflow  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise missing_library("mlflow", "mlflow") from error
    from mlflow.exceptions import MlflowException  # noqa: PLC0415
    from mlflow.utils.file_utils import local_file_uri_to_path  # noqa: PLC0415
    from mlflow.utils.uri import is_local_uri  # noqa: PLC0415

    address = place
    if address is None:
        address = str(mlflow.get_tracking_uri())
    if address.startswith(_DATABASES) and find_spec("sqlalchemy") is None:
        raise missing_library(
            "mlflow", "sqlalchemy"
        )  # which mlflow-skinny does not bring; its own error hides that
    shown = redact_text(address)
    if address.startswith("sqlite:") and address.partition("://")[2].strip("/") in ("", ":memory:"):
        raise OutputError(
            f"the MLflow store {shown} is in memory and would be lost", hint="sqlite:///FILE.db"
        )
    for name, value in _BOUNDS.items():
        os.environ.setdefault(name, value)
    try:
        if address.startswith("sqlite:///"):
            _open_once(Path(address.removeprefix("sqlite:///")))
        client = mlflow.MlflowClient(tracking_uri=address)
        experiment = _experiment_id(client, run.summary.experiment.config.experiment_name)
        if is_local_uri(address):
            _remove_cut_short(Path(local_file_uri_to_path(address)) / experiment, run.exported.id)
        sweep = _Sweep(client, experiment, run)
        changed, unchanged = sweep.write()
    except ModuleNotFoundError as error:  # the driver of a database
        raise MachineError(
            f"the MLflow store {shown} needs {error.name}, which is not installed",
            hint=library_command(str(error.name)),
        ) from error
    except (MlflowException, OSError, sqlite3.Error, *_database_errors()) as error:
        raise OutputError(f"cannot write to the MLflow store {shown}: {one_line(error)}") from error
    return Stored(shown, (f"{changed} runs", f"{unchanged} were there already"))


def _database_errors() -> tuple[type[Exception], ...]:
    """What MLflow lets pass of the library of its databases; mlflow-skinny comes without it."""
    try:
        from sqlalchemy.exc import SQLAlchemyError  # noqa: PLC0415 - an extra's
    except ImportError:
        return ()
    return (SQLAlchemyError,)


def _open_once(path: Path) -> None:
    """MLflow tries for 100 s to open a database that cannot be opened.

    Raises:
        sqlite3.Error: it cannot.
    """
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA schema_version")


class _Sweep:
    """The runs of one sweep in a store."""

    def __init__(self, client: MlflowClient, experiment: str, run: RunToStore) -> None:
        self._client, self._experiment, self._run = client, experiment, run
        self._there = self._stored_runs()

    def write(self) -> tuple[int, int]:
        """How many cells were written, and how many were there already."""
        cells = cells_to_store(self._run)
        parent = self._parent()
        changed = sum(self._write_cell(cell, parent) for cell in cells)
        if self._run.report is not None:
            self._add_report(parent, self._run.report())
        self._client.set_terminated(parent, "FINISHED")
        return changed, len(cells) - changed

    def _stored_runs(self) -> Mapping[str, Sequence[Run]]:
        """Cell id → its runs, of an earlier export."""
        wanted = f"tags.`{_RUN}` = '{self._run.exported.id}'"
        runs: dict[str, list[Run]] = defaultdict(list)
        token = None
        while True:
            page = self._client.search_runs(
                [self._experiment], wanted, max_results=_PAGE, page_token=token
            )
            for stored in page:
                runs[stored.data.tags.get(_CELL, "")].append(stored)
            token = page.token
            if not token:
                return runs

    def _parent(self) -> str:
        """The run of the sweep: what changes in it as the sweep goes on are tags and artefacts."""
        known = self._there.get(_SWEEP, ())
        if known:
            return str(known[0].info.run_id)
        return self._begin(self._run.exported.name, {_RUN: self._run.exported.id, _CELL: _SWEEP})

    def _write_cell(self, cell: ExportedCell, parent: str) -> bool:
        """Whether it had to be written. Parameters of a run cannot be changed: what differs gets a
        new run, and the old one is deleted, which MLflow can undo."""
        tags = {
            f"torchscale.{name}": value[:_LONGEST_TAG]
            for name, value in outcome_tags(self._run.exported, cell).items()
        }
        values = measured_values(cell)
        parameters = {name: value[:_LONGEST_VALUE] for name, value in cell.parameters.items()}
        digest = content_digest(tags, values, parameters)
        earlier = self._there.get(cell.id, ())
        same = [stored for stored in earlier if stored.data.tags.get(_DIGEST) == digest]
        if not same:
            self._write_run(cell, {**tags, _PARENT: parent}, values, parameters, digest)
        for stored in earlier:
            if stored not in same[:1]:
                self._client.delete_run(stored.info.run_id)
        return not same

    def _write_run(
        self,
        cell: ExportedCell,
        tags: Mapping[str, str],
        values: Mapping[str, float],
        parameters: Mapping[str, str],
        digest: str,
    ) -> None:
        from mlflow.entities import Metric, Param, RunTag  # noqa: PLC0415 - an extra

        run_id = self._begin(cell.id, tags)
        now = int(time.time() * 1000)
        for some in _portions([Param(_key(name), value) for name, value in parameters.items()]):
            self._client.log_batch(run_id, params=some)
        self._client.log_batch(
            run_id, metrics=[Metric(_key(name), value, now, 0) for name, value in values.items()]
        )
        self._client.set_terminated(run_id, "FINISHED" if cell.state is State.OK else "FAILED")
        self._client.log_batch(run_id, tags=[RunTag(_DIGEST, digest)])

    def _add_report(self, parent: str, report: bytes) -> None:
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "report.html"
            path.write_bytes(report)
            self._client.log_artifact(parent, str(path))

    def _begin(self, name: str, tags: Mapping[str, str]) -> str:
        return str(
            self._client.create_run(self._experiment, tags=dict(tags), run_name=name).info.run_id
        )


def _experiment_id(client: MlflowClient, name: str) -> str:
    known = client.get_experiment_by_name(name)
    if known is None:
        return str(client.create_experiment(name))
    return str(known.experiment_id)


def _remove_cut_short(experiment: Path, run: str) -> None:
    """Remove runs with an empty file that MLflow cannot read, whose writer was killed: those of
    ``run``, and those that hold nothing.

    Raises:
        OutputError: such a run holds what something else has written.
    """
    for meta in experiment.glob("*/meta.yaml"):
        directory = meta.parent
        empty = next(
            (path for path in (meta, *directory.glob("metrics/**/*")) if _stays_empty(path)), None
        )
        if empty is None:
            continue
        tags = list((directory / "tags").glob("*"))
        if tags and not any(
            tag.name == _RUN and tag.read_text(encoding="utf-8") == run for tag in tags
        ):
            raise OutputError(
                f"MLflow cannot list the runs of the experiment in {experiment}: {empty} is empty, "
                f"because what wrote it was killed; remove the directory {directory}, or restore "
                "the file"
            )
        shutil.rmtree(directory)


def _stays_empty(path: Path) -> bool:
    deadline = time.monotonic() + _WRITTEN_WITHIN_SECONDS
    while _is_empty(path):
        if time.monotonic() >= deadline:
            return True
        time.sleep(0.05)
    return False


def _is_empty(path: Path) -> bool:
    return path.is_file() and path.stat().st_size == 0


def _portions(items: Sequence[Param]) -> Iterator[Sequence[Param]]:
    left = iter(items)
    while some := list(islice(left, _MOST_PARAMETERS)):
        yield some


def _key(name: str) -> str:
    """What MLflow takes as a name: letters, digits, and some marks."""
    return "".join(
        mark if (mark.isalnum() and mark.isascii()) or mark in "_-. /" else "_" for mark in name
    )[:250]
