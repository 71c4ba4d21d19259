"""How processes end: with their parent, and without losing what C libraries printed."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import NoReturn

_PR_SET_PDEATHSIG = 1
# Bound before any fork: between fork and exec a child of a threaded process may only make plain
# calls.
_LIBC = ctypes.CDLL(None)


def end_with_parent(parent: int) -> None:
    """Ask the kernel to kill this process when ``parent``, which started it, ends, however that
    happens; leave at once if it has ended already (Linux)."""
    if sys.platform == "linux":
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)


def flush_output() -> None:
    """Write out what Python and C libraries of this process hold in their buffers.

    NCCL writes its log to C's ``stdout``, which buffers 4 KiB where it is a file, and flushes
    nothing itself.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    _LIBC.fflush(None)


def exit_at_once(status: int) -> NoReturn:
    """End this process by ``os._exit``, which drops what is in buffers, after writing them out."""
    flush_output()
    os._exit(status)
