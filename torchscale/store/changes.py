"""How a results directory is seen to change while a command measures into it, without reading its
records."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pydantic_core import from_json

from torchscale.schema.launch.progress import Progress
from torchscale.store.json_files import MAX_FILE_BYTES
from torchscale.util.files import read_bounded, read_end

_LINE_BYTES = 4096
"""Bytes of progress that are read: some twenty lines."""


def fingerprint(directory: Path) -> str:
    """A text that changes when a launch ends, a recording is analyzed, or the plan grows."""
    paths = [directory / "experiment.json"]
    for pattern in ("cells/*/launch-*/record.json", "cells/*/profile-*/analysis.json"):
        paths += directory.glob(pattern)
    return f"{len(paths)}-{max(map(_modified_at, paths))}"


@dataclass(frozen=True)
class RunningLaunch:
    """A launch that has begun and not ended: what rank 0 reported last."""

    cell_id: str
    launch: int
    phase: str
    steps: int


def running_launch(directory: Path) -> RunningLaunch | None:
    """The launch that reported progress last and has not ended; ``None`` without any."""
    unfinished = [
        path
        for path in directory.glob("cells/*/launch-*/progress.jsonl")
        if not (path.parent / "record.json").exists()
    ]
    if not unfinished:
        return None
    newest = max(unfinished, key=_modified_at)
    number = newest.parent.name.rpartition("-")[2]
    phase, steps = _last_progress(directory, newest)
    return RunningLaunch(
        newest.parent.parent.name, int(number) if number.isdigit() else 0, phase, steps
    )


def ended_launches(directory: Path) -> list[tuple[str, int]]:
    """The cell and the time of every record, in nanoseconds since the epoch, in the order of
    time."""
    records = [
        (path.parent.parent.name, _modified_at(path))
        for path in directory.glob("cells/*/launch-*/record.json")
    ]
    return sorted(records, key=lambda record: record[1])


def launch_ends(directory: Path, cell_id: str) -> dict[int, tuple[str, float]]:
    """State and seconds of each launch of a cell that has ended, by its number; only these two are
    read of a record, and one that cannot be read is left out."""
    ends = {}
    for path in directory.glob(f"cells/{cell_id}/launch-*/record.json"):
        number = path.parent.name.rpartition("-")[2]
        try:
            record = from_json(read_bounded(path, MAX_FILE_BYTES, within=directory))
            ends[int(number)] = str(record["state"]), float(record["seconds"])
        except (OSError, ValueError, TypeError, KeyError):
            continue
    return ends


def _last_progress(root: Path, path: Path) -> tuple[str, int]:
    """Phase and steps of rank 0's last whole line."""
    try:
        lines = read_end(path, _LINE_BYTES, within=root).splitlines(keepends=True)
        whole = [line for line in lines if line.endswith(b"\n")]
        progress = Progress.model_validate_json(whole[-1]) if whole else Progress(phase="starting")
    except (OSError, ValueError):
        return "starting", 0
    return progress.phase, progress.steps


def _modified_at(path: Path) -> int:
    """Nanoseconds; 0 for a file that has gone."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
