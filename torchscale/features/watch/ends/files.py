"""Reads what processes of a job left as they ended, and what they wait for."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from torchscale.features.watch.hang.stacks import last_stack
from torchscale.schema.watch.ends import ProcessEnd, ProcessWait
from torchscale.util.files import leads_out, read_bounded

M = TypeVar("M", bound=BaseModel)

ENDS, WAITS = "ends", "waits"
"""Folders of the job (``worker/watch/ends.py``, ``waits.py``)."""
_MOST_FILES = 20_000
"""A rank leaves one to three of each attempt."""
_MOST_BYTES = 256 << 10
"""Of a file: an exception has at most 30 kB; the stacks of a hundred threads are the longest."""
_MOST_FRAMES = 100


class EndFiles:
    """The files in ``ends/`` of a job. Those of an exception or an exit code are read once: they
    are written as a whole."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._read: dict[Path, ProcessEnd | None] = {}

    def attempts(self) -> set[int]:
        """Numbers of the attempts of which a rank, or what may be one, has left its end."""
        paths = [path for path in _files(self._directory, ENDS) if path.suffix == ".json"]
        found = map(self._end, paths)
        return {end.attempt for end in found if end is not None and end.of_rank is None}

    def of_attempt(self, number: int) -> list[ProcessEnd]:
        """Of the processes of an attempt, in the order of time. What is damaged is left out: a
        process that is killed may be killed while it writes."""
        found = map(self._end, _files(self._directory, ENDS))
        ends = [end for end in found if end is not None and end.attempt == number]
        return sorted(ends, key=lambda end: end.time)

    def _end(self, path: Path) -> ProcessEnd | None:
        if path.suffix != ".json":
            return _crash(self._directory, path)
        if path not in self._read:
            self._read[path] = _read(self._directory, path, ProcessEnd)
        return self._read[path]


def read_waits(directory: Path) -> list[ProcessWait]:
    """Waits of processes of the job, the longest first; also of those that were killed
    meanwhile."""
    found = [
        wait
        for path in _files(directory, WAITS)
        if (wait := _read(directory, path, ProcessWait)) is not None
    ]
    return sorted(found, key=lambda wait: wait.since)


def forget_earlier(directory: Path, host: str) -> None:
    """Remove what processes of this host have left in runs before: a run whose command was killed
    removes nothing, and the numbers of its attempts may come again."""
    for path in list(_files(directory, ENDS)):
        end = _read(directory, path, ProcessEnd) if path.suffix == ".json" else _facts(path)
        if end is not None and end.host == host:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)


def remove_files(directory: Path) -> None:
    """Remove all of these files: files of ours alone, in folders of the job that are no links."""
    for folder in (ENDS, WAITS):
        for path in _files(directory, folder):
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
        if not (directory / folder).is_symlink():
            with contextlib.suppress(OSError):
                (directory / folder).rmdir()


def _files(directory: Path, folder: str) -> Iterator[Path]:
    root = directory / folder
    try:
        if root.is_symlink() or leads_out(directory, root):
            return
        names = sorted(path.name for path in root.iterdir())
    except OSError:
        return
    for name in names[:_MOST_FILES]:
        if name.endswith((".json", ".txt")):
            yield root / name


def _facts(path: Path) -> ProcessEnd | None:
    """Whose stacks a file is for."""
    with contextlib.suppress(OSError, ValidationError):
        facts, _, _ = read_bounded(path, _MOST_BYTES, within=path.parent).partition(b"\n")
        return ProcessEnd.model_validate_json(facts)
    return None


def _crash(directory: Path, path: Path) -> ProcessEnd | None:
    """The stacks of a rank that a signal of a fault ended."""
    with contextlib.suppress(OSError, ValidationError):
        content = read_bounded(path, _MOST_BYTES, within=directory)
        facts, _, stacks = content.partition(b"\n")
        if not stacks.strip():
            return None  # the rank lives, or ended otherwise
        frames = last_stack(stacks.decode(errors="replace"))[-_MOST_FRAMES:]
        end = ProcessEnd.model_validate_json(facts)
        stack = tuple((frame.file, frame.line, frame.function) for frame in frames)
        # It was opened when the rank began; it was written to as the rank ended.
        return end.model_copy(update={"frames": stack, "time": path.stat().st_mtime})
    return None


def _read(directory: Path, path: Path, model: type[M]) -> M | None:
    with contextlib.suppress(OSError, ValidationError):
        return model.model_validate_json(read_bounded(path, _MOST_BYTES, within=directory))
    return None
