"""Turns the exception that ended a rank into a failure record with its kind (out of memory, peer
lost, …)."""

from __future__ import annotations

import errno
import shutil
import tempfile
import traceback
from contextlib import suppress
from pathlib import Path
from time import time as wall_clock

import torch

from torchscale.catalog.failure_signs import OUT_OF_MEMORY, PEER_LOST, says_any
from torchscale.schema.launch.failure import FailureKind, RankFailure
from torchscale.util.units import format_bytes

_MESSAGE_CHARACTERS = 2000
"""CUDA's and NCCL's longest messages fit; a message with a printed tensor must not fill the
record."""
_TRACEBACK_CHARACTERS = 6000
"""About 60 lines: the innermost frames, which name the cause."""
_NO_SPACE = ("no space left on device", "shared memory", "bus error", "dataloader worker")
_LITTLE_BYTES = 128 * 2**20
"""Above the 64 MiB that container runtimes give /dev/shm unless told otherwise; what a failed
loader held is free again by now."""


def describe_failure(error: BaseException, rank: int) -> RankFailure:
    """The failure of ``rank``: kind, type, message (2,000 characters) and the end of its traceback
    (6,000 characters)."""
    text = (str(error) or type(error).__name__) + _little_space(error)
    trace = "".join(traceback.format_exception(error))
    return RankFailure(
        rank=rank,
        kind=_kind(error, text),
        type=type(error).__name__,
        message=text[:_MESSAGE_CHARACTERS],
        traceback=trace[-_TRACEBACK_CHARACTERS:],
        time=wall_clock(),
    )


def _little_space(error: BaseException) -> str:
    """Which file systems have little space left, where that may be the cause of ``error``: the
    system names none. Data loaders hand over batches in ``/dev/shm``, and torch says of it no more
    than "shared memory"."""
    text = str(error).lower()
    if not (
        getattr(error, "errno", None) == errno.ENOSPC or any(sign in text for sign in _NO_SPACE)
    ):
        return ""
    places = []
    for name in dict.fromkeys(("/dev/shm", tempfile.gettempdir(), str(Path.cwd()))):  # noqa: S108 - only looked at
        with suppress(OSError):
            space = shutil.disk_usage(name)
            if space.free < _LITTLE_BYTES:
                places.append(
                    f"{name} has {format_bytes(space.free)} of {format_bytes(space.total)} free"
                )
    if places:
        return f" ({'; '.join(places)})"
    return ""


def _kind(error: BaseException, text: str) -> FailureKind:
    if isinstance(error, SystemExit):
        return FailureKind.LEFT_EARLY
    if isinstance(error, torch.OutOfMemoryError | MemoryError) or says_any(text, OUT_OF_MEMORY):
        return FailureKind.OOM
    is_of_torch = isinstance(error, torch.distributed.DistError | RuntimeError)
    if is_of_torch and says_any(text, PEER_LOST):
        return FailureKind.PEER_LOST
    return FailureKind.ERROR
