"""Addresses, interfaces and ports of this node."""

from __future__ import annotations

import ipaddress
import os
import socket
import time
from collections.abc import Callable

import psutil

from torchscale.errors import ExitCode, MachineError, UsageError
from torchscale.features.cluster.cluster import Cluster
from torchscale.features.cluster.master import is_loopback

_BACKLOG = 256
"""Connections that may wait: all nodes of a sweep connect in the same second."""


_RETRY_SECONDS = 1.0
"""Seconds between two questions for a name that does not resolve yet."""


class UnresolvedError(UsageError):
    """The name of node 0 does not lead to it, or not yet."""


def listen_as_leader(
    cluster: Cluster, seconds: float, stopped: Callable[[], bool]
) -> socket.socket:
    """A listening socket on the address of ``--master``, and on no other.

    Args:
        cluster: Names node 0.
        seconds: How long to wait for its name, where that may begin to resolve later.
        stopped: Ends the wait.

    Raises:
        UsageError: the name does not resolve, the address is not of this machine, or the port is in
            use.
    """
    deadline = time.monotonic() + (seconds if cluster.is_named_later else 0)
    while True:
        try:
            return _listen_as_leader(cluster)
        except UnresolvedError as error:
            if stopped():
                error.exit_code = ExitCode.INTERRUPTED
                raise
            if time.monotonic() >= deadline:
                raise
            time.sleep(_RETRY_SECONDS)


def _listen_as_leader(cluster: Cluster) -> socket.socket:
    address = resolve(cluster.host)
    try:
        return listen(address, cluster.port)
    except OSError as error:
        if isinstance(error, PermissionError):
            raise UsageError(
                f"--master {cluster.master}: {_reason(error)}", hint="use a port above 1023"
            ) from error
        if address not in addresses():
            raise UnresolvedError(
                f"--master {cluster.master}: {address} is no address of this machine, which is "
                "node 0",
                hint=f"the addresses here: {', '.join(sorted(addresses()))}",
            ) from error
        raise UsageError(
            f"--master {cluster.master}: port {cluster.port} cannot be used ({_reason(error)})",
            hint="another sweep may use it; choose another port, the same on every node",
        ) from error


def listen(address: str, port: int) -> socket.socket:
    """A listening socket on one address; port 0 takes a free one.

    Raises:
        OSError: it cannot be had.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    server = socket.create_server((address, port), family=family, backlog=_BACKLOG)
    server.setblocking(False)
    return server


def resolve(host: str) -> str:
    """The address of ``host``, IPv4 if it has one: the first that is no loopback address.

    Raises:
        UnresolvedError: it does not resolve to such an address.
    """
    try:
        entries = socket.getaddrinfo(host, None, proto=socket.IPPROTO_TCP)
    except (OSError, UnicodeError) as error:
        raise UnresolvedError(
            f"--master {host}: the name does not resolve ({error})", hint="use the address"
        ) from error
    found = dict.fromkeys(
        str(entry[4][0]) for entry in sorted(entries, key=lambda entry: entry[0] != socket.AF_INET)
    )
    usable = [address for address in found if not is_loopback(address)]
    if not usable:
        raise UnresolvedError(
            f"--master {host}: resolves to {', '.join(found)} here, a loopback address that other "
            "nodes do not reach",
            hint="use node 0's address in the network of the nodes",
        )
    return usable[0]


def free_port(address: str) -> int:
    """A port of ``address`` that nothing uses at this moment.

    Raises:
        MachineError: there is none.
    """
    try:
        with listen(address, 0) as server:
            return int(server.getsockname()[1])
    except OSError as error:
        raise MachineError(f"no free port on {address}: {_reason(error)}") from error


def addresses() -> dict[str, str]:
    """Address → network interface, of this machine."""
    return {
        entry.address.partition("%")[0]: name
        for name, entries in psutil.net_if_addrs().items()
        for entry in entries
        if entry.family in (socket.AF_INET, socket.AF_INET6)
    }


def networks() -> dict[ipaddress.IPv4Interface, str]:
    """Address with its network → interface, of this machine: IPv4, of interfaces that are up, without
    loopback and addresses that have no network."""
    up = {name for name, state in psutil.net_if_stats().items() if state.isup}
    found = {}
    for name, entries in psutil.net_if_addrs().items():
        for entry in entries:
            if entry.family != socket.AF_INET or not entry.netmask or name not in up:
                continue
            address = ipaddress.IPv4Interface(f"{entry.address}/{entry.netmask}")
            is_alone = address.network.prefixlen == address.max_prefixlen
            if not (address.is_loopback or address.is_link_local or is_alone):
                found[address] = name
    return found


def interface_in(network: str) -> tuple[str, str]:
    """This machine's address and interface in a network (``10.78.0.0/16``).

    Raises:
        MachineError: it has none.
    """
    for address, interface in networks().items():
        if str(address.network) == network:
            return str(address.ip), interface
    raise MachineError(f"no interface in the network {network}")


def _reason(error: OSError) -> str:
    """Reason of an error, without what :func:`socket.create_server` adds to it."""
    if error.errno is None:
        return str(error)
    return os.strerror(error.errno)
