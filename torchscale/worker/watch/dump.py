"""What a process of a job says of itself while it hangs: Python stacks, process groups, torch's
flight recorders. Plain values, since a watched job's Python need not have pydantic."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from time import time as wall_clock
from types import CodeType, FrameType
from typing import Any

import torch
import torch.distributed as dist

from .files import replace_whole
from .program_thread import program_thread
from .rings import rings

DUMP_VERSION = 2
"""Of the dump of a rank that hangs, as torchscale's reader expects it."""
MAX_FRAMES = 200
"""Maximum number of frames of one thread, the innermost; recursion would fill the file."""


def leave_dump(path: Path, rank: int) -> None:
    """Write what this process says of itself.

    Raises:
        OSError: it cannot be written.
    """
    recorders, problem = flight_recorders()
    dump = {
        "schema_version": DUMP_VERSION,
        "rank": rank,
        "pid": os.getpid(),
        "time": wall_clock(),  # that of the recorders' entries beside it
        "since": 0.0,
        "threads": stacks(),
        "groups": groups(),
        "flight_recorders": recorders,
        "problem": problem,
    }
    replace_whole(path, json.dumps(dump))


def stacks() -> list[dict[str, Any]]:
    """Stacks of all threads but the one that asks, that of the program first, innermost frames
    last."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    main = program_thread().ident
    found = [
        {
            "name": text(names.get(ident, f"thread {ident}")),
            "is_main": ident == main,
            "frames": [
                frame_of(code.co_filename, line, code.co_name) for code, line in frames(frame)
            ][::-1],
        }
        for ident, frame in sys._current_frames().items()
        if ident != threading.get_ident() or ident == main
    ]
    return sorted(found, key=lambda stack: not stack["is_main"])


def frame_of(file: str, line: int | None, function: str) -> dict[str, Any]:
    """A frame as it is written."""
    return {"file": text(file), "line": line or 0, "function": text(function)}


def text(value: str) -> str:
    """``value`` as it can be written: names of files may hold bytes that are no characters."""
    return value.encode("utf-8", "replace").decode()


def groups() -> dict[str, list[int]]:
    """Name → global ranks of the process groups that this rank is in. The recorder does not list
    gloo's."""
    found: dict[str, list[int]] = {}
    try:
        world = dist.distributed_c10d._world
        for group, name in list(world.pg_names.items()):
            members = world.pg_group_ranks.get(group, {})
            if dist.get_rank() in members:  # torch lists groups of others too
                found[str(name)] = sorted(members)
    except Exception:  # noqa: BLE001 - private to torch: another version may name or fill it differently
        return {}
    return found


def flight_recorders() -> tuple[dict[str, dict[str, Any]], str]:
    """The content of each flight recorder by its name, as torch writes it to JSON; and which failed,
    or why there are no collectives. One that fails leaves the others."""
    found: dict[str, dict[str, Any]] = {}
    problems = []
    for ring in rings():
        try:
            found[ring.name] = json.loads(json.dumps(ring.content()))
        except Exception as error:  # noqa: BLE001 - private to torch: whatever it raises, the others and the stacks are of use
            problems.append(
                f"torch's flight recorder of {ring.name} failed: {type(error).__name__}"
            )
    if not problems and not found:
        problems = [f"torch {torch.__version__} has no flight recorder"]
    elif not problems and not any(content.get("entries") for content in found.values()):
        problems = [f"torch's flight recorders are empty ({', '.join(sorted(found))})"]
    return found, "; ".join(problems)


def frames(innermost: FrameType | None) -> Iterator[tuple[CodeType, int]]:
    """Code and line of a thread's frames, the innermost first. The thread runs on meanwhile: a frame
    that it has just left has no code."""
    frame = innermost
    for _ in range(MAX_FRAMES):
        if frame is None:
            return
        code: CodeType | None = frame.f_code
        if code is not None:
            yield code, frame.f_lineno or 0
        frame = frame.f_back
