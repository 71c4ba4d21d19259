"""A gate that forks wait at until all of them are made."""

from __future__ import annotations

import os


class ForkGate:
    """Holds forks back until their parent opens it, or ends.

    The parent serves the store in a thread. Where that thread holds a lock of the C library while a
    process is forked, the fork has it locked for ever: it waits for it as soon as it needs it
    itself, and the other ranks wait for that rank. So no rank may use the
    store before the last one is forked. Without the gate, one of 190 launches of four ranks hung here.
    """

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()

    def wait(self) -> None:
        """Wait, in a fork."""
        os.close(self._writer)
        os.read(self._reader, 1)  # nothing is written: it ends when no process can write any more
        os.close(self._reader)

    def open(self) -> None:
        """Let the forks go on, in their parent."""
        os.close(self._reader)
        os.close(self._writer)
