"""How a results directory is seen to change while a command measures into it, without reading its records."""

from __future__ import annotations

from pathlib import Path

from pydantic_core import from_json


def fingerprint(directory: Path) -> str:
    """A text that changes when a launch ends, a recording is analyzed, or the plan grows."""
    stamps = [_modified_at(directory / "experiment.json")]
    count = 0
    for pattern in ("cells/*/launch-*/record.json", "cells/*/profile-*/analysis.json"):
        for path in directory.glob(pattern):
            stamps.append(_modified_at(path))
            count += 1
    return f"{count}-{max(stamps)}"


def running_launch(directory: Path) -> str:
    """The launch that reported progress last and has not ended, with that report: ``<cell-id>, launch-0: measuring, 40
    steps``; empty without any."""
    unfinished = [
        path for path in directory.glob("cells/*/launch-*/progress.jsonl") if not (path.parent / "record.json").exists()
    ]
    if not unfinished:
        return ""
    newest = max(unfinished, key=_modified_at)
    return f"{newest.parent.parent.name}, {newest.parent.name}: {_last_progress(newest)}"


def _last_progress(path: Path) -> str:
    """Phase and steps of rank 0's last line."""
    try:
        lines = path.read_bytes()[-4096:].splitlines()
        last = from_json(lines[-1]) if lines else {}
    except (OSError, ValueError):
        return "starting"
    if not isinstance(last, dict):
        return "starting"
    steps = last.get("steps")
    return str(last.get("phase", "starting"))[:40] + (f", {steps} steps" if isinstance(steps, int) and steps else "")


def _modified_at(path: Path) -> int:
    """Nanoseconds; 0 for a file that has gone."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
