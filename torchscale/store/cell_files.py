"""Files of a cell's folder in a run folder: its cell, its launches and its recordings."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Sequence
from pathlib import Path

from pydantic import RootModel

from torchscale.errors import OutputError
from torchscale.schema.cells.kinds import AnyCell, as_kind
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.launch.record import LaunchRecord
from torchscale.schema.profiles.analysis import ProfileAnalysis
from torchscale.schema.run.content import CellRun
from torchscale.schema.run.experiment_file import PlannedCell
from torchscale.schema.watch.report import WatchReport
from torchscale.store.json_files import DamagedFileError, UnreadableFileError, read_model
from torchscale.store.locations import WATCH_REPORT
from torchscale.util.files import atomic_write_model, fsync_directory
from torchscale.util.logs import clean_logs

_LAUNCH_NAME = re.compile(r"^launch-(\d{1,6})$")
_PROFILE_NAME = re.compile(r"^profile-(\d{1,6})$")


def read_cell(directory: Path) -> AnyCell:
    """The cell whose directory this is.

    Raises:
        DamagedFileError: its ``cell.json`` is missing or cannot be read.
    """
    path = directory / "cell.json"
    if not path.exists():
        raise DamagedFileError(f"{path}: not there")
    return read_model(directory, path, _CellFile).root


class _CellFile(RootModel[AnyCell]):
    """``cell.json``."""


def read_cell_run(root: Path, planned: PlannedCell) -> tuple[CellRun, list[str]]:
    """A cell's launches and profile in the run folder ``root``, and what could not be read of them;
    changes nothing."""
    problems: list[str] = []
    launches = []
    try:
        entries = _entries(root / "cells" / planned.cell.id)
    except OSError as error:
        reason = f"cells/{planned.cell.id}: {error.strerror or error}"
        return CellRun(planned, ()), [reason]
    for directory in _numbered(entries, _LAUNCH_NAME):
        try:
            record = read_launch(root, directory, planned.cell)
        except DamagedFileError as error:
            problems.append(str(error))
            continue
        if record is not None:
            launches.append(record)
    try:
        profile = _last_analysis(root, _numbered(entries, _PROFILE_NAME))
    except DamagedFileError as error:
        problems.append(str(error))
        profile = None
    watched = _last_watch(root, planned.cell, [record.launch for record in launches])
    return CellRun(planned, tuple(launches), profile, watched), problems


def _last_watch(root: Path, cell: AnyCell, launches: Sequence[int]) -> WatchReport | None:
    """What ``watch`` last saw of a user's program: of a watched job, which is of all attempts, the
    report in its folder, and of a script in a sweep that of its last launch; ``None`` where there
    is none that can be read."""
    trained = as_kind(cell, TrainingCell)
    if trained is None or trained.script is None:
        return None
    folder = root / "cells" / cell.id
    paths = [folder / f"launch-{number}" / "watch" / WATCH_REPORT for number in reversed(launches)]
    for path in [root / WATCH_REPORT] if trained.is_watched else paths:
        with contextlib.suppress(DamagedFileError):
            report = read_model(root, path, WatchReport)
            if report.world_size == cell.world_size or not trained.is_watched:
                return report
    return None


def _last_analysis(root: Path, directories: Sequence[Path]) -> ProfileAnalysis | None:
    """The last recording that was analyzed."""
    for directory in reversed(directories):
        if os.path.lexists(directory / "analysis.json"):
            return read_model(root, directory / "analysis.json", ProfileAnalysis)
    return None


def read_launch(root: Path, directory: Path, cell: AnyCell) -> LaunchRecord | None:
    """The record of a launch of ``cell`` in the run folder ``root``; ``None`` where there is none.

    Raises:
        UnreadableFileError: its file system fails.
        DamagedFileError: it cannot be read, or belongs to something else.
    """
    path = directory / "record.json"
    try:
        path.lstat()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UnreadableFileError(f"{path.relative_to(root)}: {error.strerror or error}") from error
    record = read_model(root, path, LaunchRecord)
    if record.cell_id != cell.id or f"launch-{record.launch}" != directory.name:
        where = path.relative_to(root)
        raise DamagedFileError(
            f"{where}: belongs to launch {record.launch} of {record.cell_id[:100]!r}"
        )
    if record.payload.kind != cell.kind:
        where = path.relative_to(root)
        raise DamagedFileError(
            f"{where}: its payload is of kind {record.payload.kind}, but its cell is of kind "
            f"{cell.kind}"
        )
    return record


def launch_directories(folder: Path) -> list[Path]:
    """The launches in a cell's folder, by number.

    Raises:
        OSError: its file system fails.
    """
    return _numbered(_entries(folder), _LAUNCH_NAME)


def recording_directories(folder: Path) -> list[Path]:
    """The recordings in a cell's folder, by number.

    Raises:
        OSError: its file system fails.
    """
    return _numbered(_entries(folder), _PROFILE_NAME)


def make_cell_directory(directory: Path, cell: AnyCell) -> None:
    """Make a directory in the folder of ``cell``, which says which cell it is from then on.

    Raises:
        OutputError: it cannot be made.
    """
    try:
        directory.mkdir(parents=True)
    except OSError as error:
        raise OutputError(f"cannot create {directory}: {error.strerror or error}") from error
    if not (directory.parent / "cell.json").exists():
        atomic_write_model(directory.parent / "cell.json", cell)


def set_aside(root: Path, directory: Path, why: str) -> Path:
    """Move a launch of the run folder ``root`` to ``quarantine/<cell-id>-launch-K-<why>-<n>``.

    Raises:
        OutputError: it cannot be moved.
    """
    quarantine, cell_id = root / "quarantine", directory.parent.name
    try:
        quarantine.mkdir(exist_ok=True)
        number = 0
        while (target := quarantine / f"{cell_id}-{directory.name}-{why}-{number}").exists():
            number += 1
        directory.rename(target)
        fsync_directory(quarantine)
        if why == "partial":  # the command that ran it was killed before it could clean its logs
            clean_logs(target)
    except OSError as error:
        raise OutputError(
            f"cannot set aside a launch of {cell_id}: {error.strerror or error}"
        ) from error
    return target


def _numbered(entries: Sequence[Path], name: re.Pattern[str]) -> list[Path]:
    """Entries whose names match ``name``, by their number."""
    return sorted((entry for entry in entries if name.match(entry.name) is not None), key=number_of)


def number_of(directory: Path) -> int:
    """The number at the end of a directory's name."""
    return int(directory.name.rpartition("-")[2])


def _entries(directory: Path) -> list[Path]:
    """What is in a directory; nothing where it is none.

    Raises:
        OSError: its file system fails.
    """
    try:
        return list(directory.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
