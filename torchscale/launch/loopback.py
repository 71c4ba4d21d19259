"""How processes of one machine meet: on its loopback address."""

from __future__ import annotations

import socket

from torchscale.errors import MachineError

LOCAL_RENDEZVOUS = ("--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0", "--local-addr=127.0.0.1")
"""A free port on the loopback address. Not ``--standalone``, which resolves ``localhost``: not
every container can."""
_LOOPBACK_SECONDS = 5.0
"""A connection on one machine takes microseconds."""


def require_loopback() -> None:
    """Check that processes of this machine can reach each other: else they would wait for each
    other, and say nothing.

    Raises:
        MachineError: 127.0.0.1 does not answer.
    """
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            socket.create_connection(server.getsockname(), timeout=_LOOPBACK_SECONDS).close()
    except OSError as error:
        raise MachineError(
            "ranks cannot reach each other over 127.0.0.1 (is the loopback interface up?): "
            f"{error.strerror or error}",
            hint="turn it on: ip link set lo up",
        ) from error
