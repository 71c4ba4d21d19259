"""Asks NCCL's RAS service, which every NCCL job since 2.24 offers on its machine, about processes
of ours."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterable

from torchscale.errors import TraceError
from torchscale.features.watch.hang.ras_status import MAX_STATUS_BYTES, ras_notes, read_ras

_ADDRESS = ("127.0.0.1", 28028)
"""NCCL's default, changed by ``NCCL_RAS_ADDR``."""
_CONNECT_SECONDS = 1.0
_SERVICE_SECONDS = 3
"""Bound that the service is asked to keep while it waits for processes that do not answer it."""
_SECONDS = 6.0
"""Bound on the whole exchange: the service's own and time to send the reply."""


def nccl_notes(pids: Iterable[int]) -> tuple[str, ...]:
    """What the service says about these processes, a line each; empty without a service."""
    try:
        return ras_notes(read_ras(ask_ras(_address())), frozenset(pids))
    except (OSError, TraceError):
        return ()


def ask_ras(address: tuple[str, int]) -> bytes:
    """The service's status in JSON, up to ``MAX_STATUS_BYTES``.

    Raises:
        OSError: nobody listens at ``address``, or it does not answer in time.
        TraceError: the service knows no JSON, as before NCCL 2.28.7.
    """
    deadline = time.monotonic() + _SECONDS
    with socket.create_connection(address, timeout=_CONNECT_SECONDS) as connection:
        for command in (f"TIMEOUT {_SERVICE_SECONDS}", "SET FORMAT json"):
            connection.sendall(f"{command}\n".encode())
            reply = _receive(connection, deadline, until_newline=True)
            if reply.strip().upper() != b"OK":
                raise TraceError(f"NCCL's RAS service answered {reply[:40]!r} to {command}")
        connection.sendall(b"VERBOSE STATUS\n")
        return _receive(connection, deadline, until_newline=False)


def _receive(connection: socket.socket, deadline: float, *, until_newline: bool) -> bytes:
    """What the service sends, up to a line break or until it closes the connection.

    Raises:
        OSError: ``deadline`` has passed.
    """
    reply = bytearray()
    while len(reply) <= MAX_STATUS_BYTES and not (until_newline and reply.endswith(b"\n")):
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("NCCL's RAS service did not answer in time")
        connection.settimeout(left)
        piece = connection.recv(1 << 16)
        if not piece:
            break
        reply += piece
    return bytes(reply)


def _address() -> tuple[str, int]:
    host, _, port = os.environ.get("NCCL_RAS_ADDR", "").rpartition(":")
    if not host or not port.isdigit() or int(port) >= 65536:
        return _ADDRESS
    return host.strip("[]"), int(port)
