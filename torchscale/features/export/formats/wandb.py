"""W&B: a run per cell and one with the report, always offline; ``wandb sync`` uploads them.

An offline run is made in a temporary directory and takes its name when it is complete, so that
nobody finds half of one. Ids are made of the run's and the cell's: W&B knows what it has already.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import psutil

from torchscale.errors import OutputError
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
from torchscale.features.export.formats.wandb_log import has_ended
from torchscale.report.values import only_if
from torchscale.util.files import fsync_directory
from torchscale.util.processes.subprocesses import wait_until

_MARK = "torchscale.json"
"""Beside the files of an offline run: the digest of what it holds."""
_REPORT = "(report)"
_WRITE_SECONDS = 30.0
"""Time limit for the file of a run, half of what an export may take in a sweep by default: its
kilobytes take milliseconds."""


@dataclass(frozen=True)
class _Entry:
    """A run of W&B's."""

    id: str
    name: str
    kind: str
    config: Mapping[str, str]
    values: Mapping[str, float]
    outcome: Mapping[str, str]
    html: bytes | None = None

    @property
    def digest(self) -> str:
        page = "" if self.html is None else hashlib.sha256(self.html).hexdigest()
        return content_digest(self.config, self.values, self.outcome, {"html": page})


def store(run: RunToStore, place: str | None) -> Stored:
    """Write a run below ``place``/wandb: by default below ``WANDB_DIR``, else the current
    directory.

    Raises:
        MachineError: wandb is not installed.
        OutputError: it cannot be written.
    """
    try:
        import wandb  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise missing_library("wandb", "wandb") from error
    root = Path(place or os.environ.get("WANDB_DIR") or ".").absolute()
    project = os.environ.get("WANDB_PROJECT") or run.summary.experiment.config.experiment_name
    written = 0
    entries = list(_entries(run))
    try:
        root.mkdir(parents=True, exist_ok=True)
        writer = _Writer(wandb, root, project, run.exported.name)
        with _log_that_may_fail():
            written = sum(writer.write(entry) for entry in entries)
    except Exception as error:  # errors of wandb have no common base
        raise OutputError(f"cannot write W&B runs to {root}: {one_line(error)}") from error
    notes = only_if(written, f"to upload them: wandb sync {root}/wandb/offline-run-*")
    return Stored(
        str(root / "wandb"),
        (f"{written} runs", f"{len(entries) - written} were there already"),
        notes,
    )


@contextmanager
def _log_that_may_fail() -> Iterator[None]:
    """Without a traceback on standard error for each line that W&B's own log has no room for."""
    before, logging.raiseExceptions = logging.raiseExceptions, False
    try:
        yield
    finally:
        logging.raiseExceptions = before


def _entries(run: RunToStore) -> Iterator[_Entry]:
    exported = run.exported
    for cell in cells_to_store(run):
        outcome = outcome_tags(exported, cell)
        yield _Entry(
            _id(exported.id, cell.id),
            cell.id,
            cell.kind,
            cell.parameters,
            measured_values(cell),
            outcome,
        )
    if run.report is not None:
        name = f"{exported.name} report"
        yield _Entry(
            _id(exported.id, _REPORT), name, "report", {}, {}, {"run": exported.id}, run.report()
        )


def _id(run_id: str, part: str) -> str:
    return hashlib.sha256(f"{run_id} {part}".encode()).hexdigest()[:16]


class _Writer:
    def __init__(self, wandb: ModuleType, root: Path, project: str, group: str) -> None:
        self._wandb, self._root, self._project, self._group = wandb, root, project, group
        _remove_left_over(root)

    def write(self, entry: _Entry) -> bool:
        """Whether it had to be written."""
        earlier = sorted((self._root / "wandb").glob(f"offline-run-*-{entry.id}"))
        if any(_digest_in(path) == entry.digest for path in earlier):
            return False
        with _temporary_directory(self._root) as directory:
            self._run(entry, directory)
            (made,) = (directory / "wandb").glob(f"offline-run-*-{entry.id}")
            _wait_until_written(made / f"run-{entry.id}.wandb")
            (made / _MARK).write_text(json.dumps({"digest": entry.digest}))
            (self._root / "wandb").mkdir(exist_ok=True)
            for path in earlier:
                shutil.rmtree(path)
            made.rename(self._root / "wandb" / made.name)
            fsync_directory(self._root / "wandb")
        return True

    def _run(self, entry: _Entry, directory: Path) -> None:
        settings = self._wandb.Settings(
            console="off",
            disable_code=True,
            disable_git=True,
            save_code=False,
            silent=True,
            x_disable_meta=True,
            x_disable_machine_info=True,
            x_disable_stats=True,
            x_save_requirements=False,
        )
        with self._wandb.init(
            project=self._project,
            group=self._group,
            job_type=entry.kind,
            id=entry.id,
            name=entry.name,
            config={
                **entry.config,
                **{f"torchscale.{name}": value for name, value in entry.outcome.items()},
            },
            dir=str(directory),
            mode="offline",
            settings=settings,
        ) as made:
            made.summary.update(dict(entry.values))
            if entry.html is not None:
                made.log({"report": self._wandb.Html(entry.html.decode(), inject=False)})


def _wait_until_written(log: Path) -> None:
    """Wait for W&B's service, which writes the file of a run after the run has ended here.

    Raises:
        TimeoutError: it is not complete within :data:`_WRITE_SECONDS`.
    """
    if not wait_until(lambda: has_ended(log), timeout_seconds=_WRITE_SECONDS):
        raise TimeoutError(
            f"W&B's service has not written {log.name} within {_WRITE_SECONDS:g} s; export again"
        )
    with log.open("rb") as file:
        os.fsync(file.fileno())


def _digest_in(directory: Path) -> str:
    try:
        return str(json.loads((directory / _MARK).read_text())["digest"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


_TEMPORARY = ".torchscale-"


@contextmanager
def _temporary_directory(root: Path) -> Iterator[Path]:
    """A directory beside the results, so that renaming works, named after this process."""
    prefix = f"{_TEMPORARY}{socket.gethostname()}-{os.getpid()}-"
    with tempfile.TemporaryDirectory(
        prefix=prefix, dir=root, ignore_cleanup_errors=True
    ) as directory:
        yield Path(directory)


def _remove_left_over(root: Path) -> None:
    """What an export that was killed left, on this machine: processes of others cannot be looked
    for."""
    for path in root.glob(f"{_TEMPORARY}{socket.gethostname()}-*"):
        process = path.name.rpartition("-")[0].rpartition("-")[2]
        if process.isdigit() and not psutil.pid_exists(int(process)):
            shutil.rmtree(path, ignore_errors=True)
