"""Connections whose other side has not shown yet that it knows the token: a bounded number, so that
whoever connects without it keeps no node out."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

MAX_UNAUTHENTICATED = 256
"""Over all ports of a node: a quarter of the 1,024 files that a process may open by default. A
node's handshake takes milliseconds, in which fewer than that connect."""


class UnauthenticatedConnections:
    """The connections of one node whose other side is unknown yet. Used in the network's thread
    alone."""

    def __init__(self, most: int = MAX_UNAUTHENTICATED) -> None:
        self._most = most
        self._addresses: dict[asyncio.StreamWriter, str] = {}

    @contextmanager
    def holding(self, writer: asyncio.StreamWriter) -> Iterator[Callable[[], None]]:
        """Count a connection within the context, or until what it gives is called. Where there are
        too many, the oldest one of the address that has most of them is closed.

        Raises:
            ConnectionAbortedError: from what it gives: the connection was closed.
        """
        while len(self._addresses) >= self._most:
            self._close_one()
        self._addresses[writer] = address_of(writer)
        try:
            yield lambda: self._release(writer)
        finally:
            self._addresses.pop(writer, None)

    def _release(self, writer: asyncio.StreamWriter) -> None:
        if self._addresses.pop(writer, None) is None:
            raise ConnectionAbortedError("closed, since too many others connect")

    def _close_one(self) -> None:
        ((busiest, _),) = Counter(self._addresses.values()).most_common(1)
        oldest = next(writer for writer, address in self._addresses.items() if address == busiest)
        del self._addresses[oldest]
        oldest.transport.abort()


def address_of(writer: asyncio.StreamWriter) -> str:
    """Address of the other side; ``?`` where it has gone already."""
    return str((writer.get_extra_info("peername") or ("?",))[0])
