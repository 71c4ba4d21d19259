"""What can be compared: results directories, single records, baselines; and where baselines are kept.

A baseline is one JSON file, ``baselines/<name>.json`` unless told otherwise, meant to be committed.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel
from pydantic_core import from_json

from torchscale.analysis.result_set import result_set, single_result
from torchscale.analysis.results import RunSummary
from torchscale.errors import StoreError, UsageError
from torchscale.reading import read_summary
from torchscale.report.over_time import Detail
from torchscale.report.selection import detailed_cells
from torchscale.schema.experiment import PlannedCell
from torchscale.schema.record import LaunchRecord
from torchscale.schema.results import ResultSet
from torchscale.schema.run import CellRun
from torchscale.schema.task import AnyCell
from torchscale.store import DamagedFileError, RunFolder, atomic_write_model, read_cell, read_model

BASELINES = Path("baselines")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")

M = TypeVar("M", bound=BaseModel)


def load_source(text: str, baselines: Path = BASELINES) -> ResultSet:
    """A results directory, a ``record.json``, a baseline's file or the name of a baseline in ``baselines``.

    Raises:
        UsageError: there is no such thing.
        StoreError: it is there and cannot be read.
    """
    path = Path(text)
    if path.is_dir():
        return _of_directory(path)
    if path.is_file():
        return _load_file(path)
    if _NAME.fullmatch(text) and baseline_path(text, baselines).is_file():
        return load_baseline(text, baselines)
    raise UsageError(
        f"{text} is no results directory, no file and no baseline in {baselines}",
        hint="name a directory that `torchscale benchmark` wrote, or see `torchscale baseline list`",
    )


def read_details(directory: Path, summary: RunSummary) -> dict[str, Detail]:
    """The first launch in full of each cell that the report draws over time, by cell id; one that cannot be read is
    left out. ``summary`` is of the results in ``directory``."""
    folder = RunFolder(directory, summary.experiment)
    found = {}
    for cell in (one.cell for one in detailed_cells(summary)):
        run, _ = folder.load_cell(PlannedCell(cell=cell))
        if run.launches:
            record = run.launches[0]
            found[cell.id] = Detail(record, folder.readings(cell, record.launch))
    return found


def load_baseline(name: str, baselines: Path = BASELINES) -> ResultSet:
    """By name.

    Raises:
        UsageError: there is none of that name.
        StoreError: it cannot be read.
    """
    path = baseline_path(name, baselines)
    if not path.is_file():
        known = ", ".join(one.stem for one in list_baselines(baselines)) or "none"
        raise UsageError(f"no baseline {name!r} in {baselines}; there: {known}")
    return _read(path, ResultSet)


def save_baseline(results: ResultSet, name: str, baselines: Path = BASELINES, *, replace: bool = False) -> Path:
    """Keep a result set under a name (writes).

    Raises:
        UsageError: the name is no file name, is taken, or nothing was measured.
        OutputError: it could not be written.
    """
    path = baseline_path(name, baselines)
    if path.exists() and not replace:
        raise UsageError(f"{path} exists", hint="choose another name, or pass --replace")
    if not any(cell.launches for cell in results.cells):
        raise UsageError(f"nothing was measured in {results.name}, so it is no baseline")
    try:
        baselines.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot create {baselines}: {error.strerror or error}") from error
    atomic_write_model(path, results.model_copy(update={"name": name}))
    return path


def list_baselines(baselines: Path = BASELINES) -> list[Path]:
    """Files of baselines, by name."""
    return sorted(baselines.glob("*.json"))


def baseline_path(name: str, baselines: Path) -> Path:
    """Where a baseline is or would be.

    Raises:
        UsageError: the name is no plain file name.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name[:100]!r} is no name for a baseline",
            hint="letters, digits, dots, dashes and underscores, at most 80",
        )
    return baselines / f"{name}.json"


def _of_directory(path: Path) -> ResultSet:
    summary = read_summary(path)
    return result_set(summary, summary.name)


def _load_file(path: Path) -> ResultSet:
    """A record or a baseline, as its content says."""
    try:
        with path.open("rb") as file:
            content = from_json(file.read(1 << 26) or b"null")
    except (OSError, ValueError) as error:
        raise StoreError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    if isinstance(content, dict) and "cell_id" in content and "launch" in content:
        return _load_record(path)
    if isinstance(content, dict) and "cells" in content:
        return _read(path, ResultSet)
    raise StoreError(
        f"{path} is neither a record nor a baseline",
        hint="name a record.json, or what `torchscale baseline save` wrote",
    )


def _load_record(path: Path) -> ResultSet:
    record = _read(path, LaunchRecord)
    where = path.resolve().parent.parent
    try:
        cell: AnyCell = read_cell(where)
    except DamagedFileError as error:
        raise StoreError(str(error), hint="a record is read with the cell.json in the directory above it") from error
    if cell.id != record.cell_id:
        raise StoreError(f"{path} is of {record.cell_id[:100]!r}, and the cell.json above it of {cell.id!r}")
    return single_result(CellRun(PlannedCell(cell=cell), (record,)), f"{cell.id} launch {record.launch + 1}")


def _read(path: Path, model: type[M]) -> M:
    try:
        return read_model(path.parent, path, model)
    except DamagedFileError as error:
        raise StoreError(str(error)) from error
