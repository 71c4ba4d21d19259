"""What can be compared: results directories, single records and baselines, as result sets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic_core import from_json

from torchscale.analysis.summary.result_set import result_set, single_result
from torchscale.analysis.summary.scripts import differing_arguments
from torchscale.errors import StoreError, UsageError
from torchscale.features.compare.baseline_files import (
    BASELINES,
    find_baseline,
    list_baselines,
    read_baseline,
)
from torchscale.read.folders import no_such_run, run_by_name
from torchscale.results.reader import read_summary
from torchscale.schema.cells.kinds import AnyCell, as_kind
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.launch.record import LaunchRecord
from torchscale.schema.run.content import CellRun
from torchscale.schema.run.experiment_file import PlannedCell
from torchscale.schema.run.result_set import ResultCell, ResultSet
from torchscale.store.cell_files import read_cell
from torchscale.store.json_files import DamagedFileError, UnreadableFileError, read_model
from torchscale.util.files import read_bounded

_MAX_BYTES = 64 * 2**20


@dataclass(frozen=True)
class Side:
    """A side of a comparison: ``source`` as it was given, or the run's path where
    ``from_directory`` is set: then a directory that holds it was given."""

    source: str
    results: ResultSet
    from_directory: bool = False


def load_sides(sources: Sequence[str], baselines: Path = BASELINES) -> tuple[list[Side], list[str]]:
    """Every source by :func:`load_source`; a directory of results directories stands for these, the
    oldest first. Also a sentence on each of them that cannot be read.

    Raises:
        UsageError: a source does not exist.
        StoreError: a source that was named by itself cannot be read.
    """
    directories = [Path(source) for source in sources if Path(source).is_dir()]
    named = {directory.resolve() for directory in directories if not runs_in(directory)}
    sides, left_out = [], []
    for source in sources:
        runs = runs_in(Path(source))
        if not runs:
            sides.append(Side(source, load_source(source, baselines)))
            continue
        found = []
        for run in runs:
            if run.resolve() in named:
                continue
            try:
                found.append(Side(str(run), load_source(str(run), baselines), from_directory=True))
            except StoreError as error:
                left_out.append(f"Left out: {error.message}.")
        sides += sorted(found, key=lambda side: side.results.created_at)
    return sides, left_out


def told_apart(sides: Sequence[ResultSet]) -> list[ResultSet]:
    """The sides with scripts of one name told apart by the arguments in which those of any side
    differ, so that a cell has one name on all of them."""
    trained = [as_kind(one.cell, TrainingCell) for side in sides for one in side.cells]
    apart = differing_arguments(cell for cell in trained if cell is not None)

    def named(one: ResultCell) -> ResultCell:
        cell = as_kind(one.cell, TrainingCell)
        if cell is None or cell.script is None:
            return one
        return one.model_copy(update={"cell": cell.told_apart(apart.get(cell.id, ""))})

    return [
        side.model_copy(update={"cells": tuple(named(one) for one in side.cells)}) for side in sides
    ]


def runs_in(directory: Path) -> list[Path]:
    """The results directories in a directory that is none itself."""
    if not directory.is_dir() or (directory / "experiment.json").exists():
        return []
    return sorted(file.parent for file in directory.glob("*/experiment.json"))


def load_source(text: str, baselines: Path = BASELINES) -> ResultSet:
    """Read a results directory, a ``record.json``, a baseline's file, or a baseline by its name.

    Args:
        text: The source as a user gives it.
        baselines: Where baselines are kept.

    Raises:
        UsageError: there is no such thing.
        StoreError: it is there and cannot be read.
    """
    path = Path(text)
    if path.is_dir():
        summary = read_summary(path)
        return result_set(summary, summary.name)
    if path.is_file():
        return _load_file(path)
    baseline = find_baseline(text, baselines)
    if baseline is not None:
        return read_baseline(baseline)
    raise no_such_run(path, [file.stem for file in list_baselines(baselines)])


def _load_file(path: Path) -> ResultSet:
    """A record or a baseline, as its content says."""
    try:
        content = from_json(read_bounded(path, _MAX_BYTES) or b"null")
    except (OSError, ValueError) as error:
        raise StoreError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    if isinstance(content, dict) and "cell_id" in content and "launch" in content:
        return _load_record(path)
    if isinstance(content, dict) and ("cells" in content or "machines" in content):
        return read_baseline(path)
    raise StoreError(
        f"{path} is neither a record nor a baseline",
        hint="name a record.json, or what `torchscale compare --save` wrote",
    )


def _load_record(path: Path) -> ResultSet:
    try:
        record = read_model(path.parent, path, LaunchRecord)
    except DamagedFileError as error:
        raise error.refusal(str(error)) from error
    try:
        cell: AnyCell = read_cell(path.resolve().parent.parent)
    except UnreadableFileError as error:
        raise error.refused() from error
    except DamagedFileError as error:
        raise StoreError(
            str(error), hint="a record is read with the cell.json in the directory above it"
        ) from error
    if cell.id != record.cell_id:
        raise StoreError(
            f"{path} belongs to cell {record.cell_id[:100]!r}, but the cell.json in the directory "
            f"above it describes {cell.id!r}"
        )
    return single_result(
        CellRun(PlannedCell(cell=cell), (record,)), f"{cell.id} launch {record.launch + 1}"
    )


def meant_source(text: str, baselines: Path = BASELINES) -> str:
    """The source that a user means: a run in ``./results`` may be named as ``runs`` lists it.

    Raises:
        UsageError: a run and a baseline have that name.
    """
    run, baseline = run_by_name(Path(text)), find_baseline(text, baselines)
    if str(run) == str(Path(text)):
        return text
    if baseline is not None:
        raise UsageError(
            f"{text} is a run and a baseline", hint=f"name its path: {run} or {baseline}"
        )
    return str(run)
