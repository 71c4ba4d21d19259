from __future__ import annotations

import os
import socket
from contextlib import ExitStack
from pathlib import Path

from torchscale.schema.node.environment import RankSocket
from torchscale.worker.sockets import connections, new_sockets

LOOPBACK = RankSocket(interface="lo", family="IPv4", within_host=True)


def connect(kept: ExitStack) -> int:
    """Make a connection of this process to itself. Returns the port of the end that listens."""
    server = kept.enter_context(socket.create_server(("127.0.0.1", 0)))
    port = int(server.getsockname()[1])
    kept.enter_context(socket.create_connection(("127.0.0.1", port)))
    kept.enter_context(server.accept()[0])
    return port


def test_connections_that_are_new_are_told_by_interface_once() -> None:
    with ExitStack() as kept:
        connect(kept)
        before = connections()
        assert len(before) >= 2, "both ends are here"
        assert new_sockets(before, None) == ()
        connect(kept)
        connect(kept)
        assert new_sockets(before, None) == (LOOPBACK,)


def test_a_connection_to_the_store_is_none_of_gloos() -> None:
    with ExitStack() as kept:
        before = connections()
        port = connect(kept)
        assert new_sockets(before, port) == ()
        assert new_sockets(before, port + 1) == (LOOPBACK,)


def test_descriptors_that_are_no_sockets_are_not_copied() -> None:
    def descriptors() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    with Path(os.devnull).open(encoding="utf-8"), ExitStack() as kept:
        connect(kept)
        before = descriptors()
        connections()
        assert descriptors() == before


def test_what_only_listens_is_no_connection() -> None:
    before = connections()
    with socket.create_server(("127.0.0.1", 0)):
        assert connections() == before


def test_a_default_timeout_makes_no_socket_of_others_non_blocking() -> None:
    with ExitStack() as kept:
        server = kept.enter_context(socket.create_server(("127.0.0.1", 0)))
        client = kept.enter_context(socket.create_connection(server.getsockname()))
        before = socket.getdefaulttimeout()
        kept.callback(socket.setdefaulttimeout, before)
        socket.setdefaulttimeout(5.0)
        connections()
        assert os.get_blocking(client.fileno())
        assert socket.getdefaulttimeout() == 5.0
