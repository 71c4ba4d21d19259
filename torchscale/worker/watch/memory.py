"""Memory of a rank over time: of the process, and of torch's allocator on its device."""

from __future__ import annotations

import os
from pathlib import Path

from . import clock, facts

NONE = -1
"""In place of bytes that are not known."""


class MemoryReadings:
    """Reads the memory of this process from time to time.

    Attributes:
        device: The CUDA device that the program uses; ``None`` while it uses none.
    """

    def __init__(self) -> None:
        self.device: int | None = None
        self._rows: list[int] = []

    def read(self) -> None:
        """Read once. Neither waits for the device nor begins to use it."""
        memory = {} if self.device is None else facts.allocator(self.device)
        self._rows += (
            clock.now_ns(),
            _resident(),
            memory.get("allocated", {}).get("current", NONE),
            memory.get("reserved", {}).get("current", NONE),
        )

    def take(self) -> list[int]:
        """Rows of four since the last call: when (nanoseconds since the epoch), resident bytes,
        allocated and reserved bytes of the device; :data:`NONE` where one is not known."""
        taken, self._rows = self._rows, []
        return taken


def _resident() -> int:
    try:
        pages = int(Path("/proc/self/statm").read_bytes().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return NONE
