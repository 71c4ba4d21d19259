"""The sockets by which gloo's ranks are connected."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import psutil

from torchscale.schema.node.environment import RankSocket

_DESCRIPTORS = Path("/proc/self/fd")

Connection = tuple[int, str, int, str, int]
"""Family, address and port of this end, address and port of the other."""


def connections() -> frozenset[Connection]:
    """TCP connections of this process; none where the system does not list its descriptors."""
    try:
        descriptors = [int(path.name) for path in _DESCRIPTORS.iterdir()]
    except OSError:
        return frozenset()
    seconds = socket.getdefaulttimeout()
    socket.setdefaulttimeout(None)  # with one, a copy makes the socket itself non-blocking
    try:
        return frozenset(filter(None, map(_connection, descriptors)))
    finally:
        socket.setdefaulttimeout(seconds)


def _connection(descriptor: int) -> Connection | None:
    try:
        # Of anything else the copy would stay open: no socket is made of it, and none closes it.
        if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            return None
        with socket.socket(fileno=os.dup(descriptor)) as one:
            if one.family not in (socket.AF_INET, socket.AF_INET6):
                return None
            here, there = one.getsockname(), one.getpeername()
    except OSError:  # not connected, or closed meanwhile
        return None
    return one.family, here[0], here[1], there[0], there[1]


def new_sockets(before: frozenset[Connection], store_port: int | None) -> tuple[RankSocket, ...]:
    """Connections since ``before``, told by interface; without those to torchrun's store, at
    ``store_port``."""
    interfaces = {
        _bare(address.address): name
        for name, addresses in psutil.net_if_addrs().items()
        for address in addresses
    }
    found = (
        RankSocket(
            interface=interfaces.get(_bare(here)),
            family="IPv6" if family == socket.AF_INET6 else "IPv4",
            within_host=_bare(there) in interfaces,
        )
        for family, here, port, there, other_port in sorted(connections() - before)
        if store_port not in (port, other_port)
    )
    return tuple(dict.fromkeys(found))


def _bare(address: str) -> str:
    """An address without the scope of a link-local one, and an IPv4 one without its IPv6 form."""
    return address.partition("%")[0].removeprefix("::ffff:")
