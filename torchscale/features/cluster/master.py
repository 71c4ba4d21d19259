"""Where node 0 listens: ``--master HOST:PORT``."""

from __future__ import annotations

import ipaddress
import re

from torchscale.errors import UsageError

DEFAULT_PORT = 29500
"""torchrun's default port for its first node."""
LAST_PORT = 65535


def parse_master(text: str) -> tuple[str, int]:
    """Host and port of ``HOST``, ``HOST:PORT`` or ``[ADDRESS]:PORT``.

    Raises:
        UsageError: it is none of these.
    """
    match = re.fullmatch(r"(?:\[([0-9A-Fa-f:.%\w]+)\]|([^\s:/\[\]]+))(?::([0-9]{1,5}))?", text)
    port = int(match[3] or DEFAULT_PORT) if match is not None else 0
    if match is None or not 1 <= port <= LAST_PORT:
        raise UsageError(f"--master {text}: expected HOST:PORT", hint="for example 10.0.0.1:29500")
    return match[1] or match[2], port


def is_loopback(host: str) -> bool:
    """Whether ``host`` names the machine it is used on."""
    if host.lower() in ("localhost", "localhost.localdomain"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
