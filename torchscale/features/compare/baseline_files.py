"""Baselines: results kept under a name to compare with later, each one JSON file that is meant to
be committed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TypeVar

from pydantic_core import from_json

from torchscale.errors import UsageError
from torchscale.schema.run.result_set import MachineResults, ResultSet
from torchscale.store.json_files import MAX_FILE_BYTES, DamagedFileError, read_model
from torchscale.util.files import atomic_write_model, make_directory, read_bounded

BASELINES = Path("baselines")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")

M = TypeVar("M", ResultSet, MachineResults)


def load_baseline(name: str, baselines: Path = BASELINES) -> ResultSet:
    """Read a baseline by its name.

    Raises:
        UsageError: there is none of that name.
        StoreError: it cannot be read.
    """
    return read_baseline(existing_path(name, baselines))


def existing_path(name: str, baselines: Path) -> Path:
    """The file of a baseline.

    Raises:
        UsageError: there is none of that name.
    """
    path = baseline_path(name, baselines)
    if not path.is_file():
        names = ", ".join(existing.stem for existing in list_baselines(baselines)) or "none"
        raise UsageError(f"no baseline {name!r} in {baselines}; there: {names}")
    return path


def read_baseline(path: Path) -> ResultSet:
    """Read a baseline's file.

    Raises:
        UsageError: it holds several machines, so that it is no side of a comparison.
        StoreError: it cannot be read.
    """
    results = read_saved(path)
    if isinstance(results, MachineResults):
        raise UsageError(
            f"{path} holds {len(results.machines)} machines, and a comparison takes one",
            hint=f"torchscale compare NEW --against {path}",
        )
    return results


def read_saved(path: Path) -> ResultSet | MachineResults:
    """Read a file of ``compare --save``, of one machine or several.

    Raises:
        StoreError: it cannot be read.
    """
    return read_machines(path) or _read(path, ResultSet)


def machines_of(saved: ResultSet | MachineResults) -> tuple[ResultSet, ...]:
    """The results of each machine."""
    return saved.machines if isinstance(saved, MachineResults) else (saved,)


def read_machines(path: Path) -> MachineResults | None:
    """Read a file of several machines; ``None`` where it is none.

    Raises:
        StoreError: it is one, and cannot be read.
    """
    try:
        content = from_json(read_bounded(path, MAX_FILE_BYTES) or b"null")
    except (OSError, ValueError):
        return None  # reading it as a baseline says what is wrong
    if not isinstance(content, dict) or "machines" not in content:
        return None
    return _read(path, MachineResults)


def _read(path: Path, model: type[M]) -> M:
    try:
        return read_model(path.parent, path, model, keys_once=True)
    except DamagedFileError as error:
        raise error.refusal(str(error)) from error


def find_baseline(text: str, baselines: Path) -> Path | None:
    """The file of the baseline of that name; ``None`` where there is none, or ``text`` is no
    name."""
    if not _NAME.fullmatch(text):
        return None
    path = baseline_path(text, baselines)
    if path.is_file():
        return path
    return None


def save_baseline(
    results: ResultSet, name: str, baselines: Path = BASELINES, *, replace: bool = False
) -> Path:
    """Keep a result set under a name (writes).

    Raises:
        UsageError: the name is no file name, is taken, or nothing was measured.
        OutputError: it could not be written.
    """
    path = free_path(name, baselines, replace=replace)
    if not any(cell.launches for cell in results.cells):
        raise UsageError(f"nothing was measured in {results.name}, so it is no baseline")
    make_directory(baselines)
    atomic_write_model(path, results.model_copy(update={"name": name}))
    return path


def free_path(name: str, baselines: Path, *, replace: bool) -> Path:
    """Where a baseline of that name can be written.

    Raises:
        UsageError: the name is no file name, or is taken.
    """
    path = baseline_path(name, baselines)
    if path.exists() and not replace:
        raise UsageError(f"{path} exists", hint="choose another name, or pass --replace")
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
