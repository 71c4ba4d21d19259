"""What a rank tells about itself while it hangs: Python stacks, process groups, torch's flight
recorder.

A thread answers, because Python runs no signal handler while the main thread waits in C++; a
collective releases the interpreter's lock while it waits. A rank whose main thread keeps that lock
does not answer; faulthandler still writes its stack (``worker/__main__.py``).
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from time import time as wall_clock
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist

from torchscale.errors import OutputError
from torchscale.schema.launch.hang import REQUEST_FILE, RankDump, StackFrame, ThreadStack, dump_file
from torchscale.util.files import atomic_write_model

_POLL_SECONDS = 1.0
"""Seconds between two looks for a request. A look takes some microseconds, so a rank spends less
than a ten-thousandth of its time on it; a request is made after a stall of minutes."""
_MAX_FRAMES = 200
"""Maximum number of frames of one thread, the innermost; recursion would fill the file."""
_MAX_MESSAGE = 2000
"""gloo's longest messages fit."""
_RECORDERS = ("_dump_fr_trace_json", "_dump_nccl_trace_json")
"""Private functions of torch that return the flight recorder as JSON: of every backend since 2.8,
of NCCL before."""


@contextlib.contextmanager
def answering_requests(
    directory: Path, rank: int, since: float, poll_seconds: float = _POLL_SECONDS
) -> Iterator[None]:
    """While open, a request in ``directory`` is answered with this rank's dump, once.

    Args:
        directory: Directory of the launch.
        rank: Global rank.
        since: Start of the launch, in seconds since the epoch.
        poll_seconds: Seconds between two looks.
    """
    done = threading.Event()
    request = directory.absolute() / REQUEST_FILE

    def answer() -> None:
        while not done.wait(poll_seconds):
            if request.exists():
                write_dump(request.parent, rank, since)
                return

    threading.Thread(target=answer, name="torchscale-autopsy", daemon=True).start()
    try:
        yield
    finally:
        done.set()


def write_dump(
    directory: Path, rank: int, since: float, error: BaseException | None = None
) -> None:
    """Write this rank's dump into ``directory``; what cannot be had is left out. Never raises for a
    full disk.

    Args:
        directory, rank, since: Arguments as for :func:`answering_requests`.
        error: What ended the rank: where it was raised counts as the place of the main thread.
    """
    recorder, problem = _flight_recorder()
    dump = RankDump(
        rank=rank,
        pid=os.getpid(),
        time=wall_clock(),
        since=since,
        threads=_stacks() if error is None else (_raised(error),),
        groups=_groups(),
        flight_recorder=recorder,
        problem=problem,
        error="" if error is None else _text(f"{type(error).__name__}: {error}"[:_MAX_MESSAGE]),
    )
    with contextlib.suppress(OutputError):
        atomic_write_model(directory / dump_file(rank), dump)


def _stacks() -> tuple[ThreadStack, ...]:
    """Stacks of all threads but the one that asks, the main thread first."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    main = threading.main_thread().ident
    stacks = [
        ThreadStack(
            name=_text(names.get(ident, f"thread {ident}")),
            is_main=ident == main,
            frames=_frames(frame),
        )
        for ident, frame in sys._current_frames().items()
        if ident != threading.get_ident() or ident == main
    ]
    return tuple(sorted(stacks, key=lambda stack: not stack.is_main))


def _raised(error: BaseException) -> ThreadStack:
    summary = traceback.extract_tb(error.__traceback__)
    frames = [_frame(frame.filename, frame.lineno, frame.name) for frame in summary]
    return ThreadStack(name="MainThread", is_main=True, frames=tuple(frames[-_MAX_FRAMES:]))


def _frames(innermost: FrameType | None) -> tuple[StackFrame, ...]:
    frames: list[StackFrame] = []
    frame = innermost
    while frame is not None and len(frames) < _MAX_FRAMES:
        code = frame.f_code
        frames.append(_frame(code.co_filename, frame.f_lineno, code.co_name))
        frame = frame.f_back
    return tuple(reversed(frames))


def _frame(file: str, line: int | None, function: str) -> StackFrame:
    return StackFrame(file=_text(file), line=line or 0, function=_text(function))


def _text(text: str) -> str:
    """``text`` as it can be written: names of files may hold bytes that are no characters."""
    return text.encode("utf-8", "replace").decode()


def _groups() -> dict[str, tuple[int, ...]]:
    """Name → global ranks of the process groups that this rank is in. The recorder does not list
    gloo's."""
    groups: dict[str, tuple[int, ...]] = {}
    try:
        world = dist.distributed_c10d._world
        for group, name in world.pg_names.items():
            members = world.pg_group_ranks.get(group, {})
            if dist.get_rank() in members:  # torch lists groups of others too
                groups[str(name)] = tuple(sorted(members))
    except Exception:  # noqa: BLE001 - private to torch: another version may name or fill it differently
        return {}
    return groups


def _flight_recorder() -> tuple[dict[str, Any] | None, str]:
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
