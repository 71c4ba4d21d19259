"""Wakes a process that waits for a file of another one. What is there is looked up in the file: a
ring that is lost costs time and nothing else."""

from __future__ import annotations

import select
import socket
from contextlib import suppress
from time import sleep


class Doorbell:
    """One end of a pair; the other one is another process's."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._connection = connection
        self._poll = select.poll()
        self._poll.register(connection, select.POLLIN)
        self.is_alone = False

    @classmethod
    def pair(cls) -> tuple[Doorbell, socket.socket]:
        """An end for this process, and the socket of the other one."""
        mine, theirs = socket.socketpair()
        return cls(mine), theirs

    def ring(self) -> None:
        """End the other process's wait, or its next one."""
        with suppress(OSError):  # it has gone, or has not heard hundreds of rings yet
            self._connection.send(b"\0")

    def wait(self, seconds: float) -> bool:
        """Wait until the other process rings or ends, at most so long; without it, so long. Whether
        it has rung or ended since the last wait."""
        if self.is_alone:
            sleep(seconds)
            return False
        if not self._poll.poll(seconds * 1e3):
            return False
        self._hear()
        return True

    def close(self) -> None:
        """Close this end."""
        self._connection.close()

    def _hear(self) -> None:
        """Take the rings so far."""
        with suppress(BlockingIOError):
            try:
                self.is_alone = not self._connection.recv(4096)
            except ConnectionError:
                self.is_alone = True
