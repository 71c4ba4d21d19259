"""What a rank tells about itself while it hangs: Python stacks, process groups, torch's flight
recorders.

A thread answers, because Python runs no signal handler while the main thread waits in C++; a
collective releases the interpreter's lock while it waits. A rank whose main thread keeps that lock
does not answer; faulthandler still writes its stack (``worker/__main__.py``).
"""

from __future__ import annotations

import contextlib
import os
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from time import time as wall_clock
from typing import Any

from torchscale.errors import OutputError
from torchscale.schema.launch.hang import REQUEST_FILE, RankDump, ThreadStack, dump_file
from torchscale.util.files import atomic_write_model
from torchscale.worker.watch.dump import (
    MAX_FRAMES,
    flight_recorders,
    frame_of,
    groups,
    stacks,
    text,
)

_POLL_SECONDS = 1.0
"""Seconds between two looks for a request. A look takes some microseconds, so a rank spends less
than a ten-thousandth of its time on it; a request is made after a stall of minutes."""
_MAX_MESSAGE = 2000
"""gloo's longest messages fit."""


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
    recorders, problem = flight_recorders()
    threads = [_raised(error)] if error is not None else stacks()
    dump = RankDump(
        rank=rank,
        pid=os.getpid(),
        time=wall_clock(),
        since=since,
        threads=tuple(map(ThreadStack.model_validate, threads)),
        groups={name: tuple(ranks) for name, ranks in groups().items()},
        flight_recorders=recorders,
        problem=problem,
        error="" if error is None else text(f"{type(error).__name__}: {error}"[:_MAX_MESSAGE]),
    )
    with contextlib.suppress(OutputError):
        atomic_write_model(directory / dump_file(rank), dump)


def _raised(error: BaseException) -> dict[str, Any]:
    summary = traceback.extract_tb(error.__traceback__)
    frames = [frame_of(frame.filename, frame.lineno, frame.name) for frame in summary]
    return {"name": "MainThread", "is_main": True, "frames": frames[-MAX_FRAMES:]}
