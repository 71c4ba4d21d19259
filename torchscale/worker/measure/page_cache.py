"""Share of files that lies in the page cache, and dropping files from it."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import sys
from collections.abc import Iterable
from pathlib import Path

import numpy as np


def drop_from_cache(paths: Iterable[Path]) -> None:
    """Drop these files from the page cache; pages that a process has mapped stay. Needs no
    privilege."""
    if not hasattr(os, "posix_fadvise"):
        return
    for path in paths:
        with contextlib.suppress(OSError), path.open("rb") as file:
            os.fsync(file.fileno())  # a dirty page cannot be dropped
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def resident_share(paths: Iterable[Path]) -> float | None:
    """Share of these files' pages that lie in memory, 0 to 1; ``None`` where the system has no
    ``mincore``."""
    if sys.platform != "linux":
        return None
    resident = pages = 0
    for path in paths:
        counted = _resident_pages(path)
        if counted is None:
            return None
        resident, pages = resident + counted[0], pages + counted[1]
    if pages:
        return resident / pages
    return None


def _resident_pages(path: Path) -> tuple[int, int] | None:
    size = path.stat().st_size
    if size == 0:
        return 0, 0
    libc = ctypes.CDLL(None, use_errno=True)
    count = -(-size // mmap.PAGESIZE)
    flags = (ctypes.c_ubyte * count)()
    with path.open("rb") as file:
        view = np.memmap(file, dtype=np.uint8, mode="r")
        address = ctypes.c_void_p(view.ctypes.data)
        failed = libc.mincore(address, ctypes.c_size_t(size), flags)
    resident = np.frombuffer(bytes(flags), dtype=np.uint8) & 1
    if failed:
        return None
    return int(resident.sum()), count
