"""What a process of a job says of itself while it hangs: Python stacks, process groups, torch's
flight recorder. Plain values, since a watched job's Python need not have pydantic."""

from __future__ import annotations

import json
import sys
import threading
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist

MAX_FRAMES = 200
"""Maximum number of frames of one thread, the innermost; recursion would fill the file."""
_RECORDERS = ("_dump_fr_trace_json", "_dump_nccl_trace_json")
"""Private functions of torch that return the flight recorder as JSON: of every backend since 2.8,
of NCCL before."""


def stacks() -> list[dict[str, Any]]:
    """Stacks of all threads but the one that asks, the main thread first, innermost frames last."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    main = threading.main_thread().ident
    found = [
        {
            "name": text(names.get(ident, f"thread {ident}")),
            "is_main": ident == main,
            "frames": _frames(frame),
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


def flight_recorder() -> tuple[dict[str, Any] | None, str]:
    """The recorder's content, or why there is none."""
    for name in _RECORDERS:
        function = getattr(torch._C._distributed_c10d, name, None) if dist.is_available() else None
        if function is None:
            continue
        try:
            content = json.loads(function())
        except Exception as error:  # noqa: BLE001 - private to torch: whatever it raises, the stacks are still of use
            return None, f"torch's flight recorder failed: {type(error).__name__}"
        if isinstance(content, dict):
            if content.get("entries"):
                return content, ""
            return content, "torch's flight recorder is empty"
    return None, f"torch {torch.__version__} has no flight recorder for this backend"


def _frames(innermost: FrameType | None) -> list[dict[str, Any]]:
    frames: list[dict[str, Any]] = []
    frame = innermost
    while frame is not None and len(frames) < MAX_FRAMES:
        code = frame.f_code
        frames.append(frame_of(code.co_filename, frame.f_lineno, code.co_name))
        frame = frame.f_back
    return frames[::-1]
