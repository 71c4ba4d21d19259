"""A connection to a Ray cluster: bounded, quiet, and told in one line where there is none.

``ray.init`` itself tries for minutes where nobody answers or the token is wrong, and may end the
whole process. So a process of its own tries first, and is ended after a bound. Authentication is
Ray's: ``RAY_AUTH_MODE`` and the token's variable or file pass through.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from torchscale.errors import MachineError, TorchscaleError, UsageError
from torchscale.util.extras import require
from torchscale.util.interpreter import module_command

LOCAL = "local"
"""The address that starts a cluster on this machine, which ends with the connection."""
_RUNNING_HERE = "auto"
_SECONDS = 30.0
"""A cluster answers in 0.3 s, over a slow network in a few; Ray's import takes some from a cold
disk."""
_CONNECT_SECONDS = 10.0
"""A packet that is lost is sent again after 1, 3 and 7 s."""
_TRIES = "5"
"""Ray's own number is 20, a second and more each; the bound above comes first where one hangs."""
_NO_TOKEN = re.compile("InvalidAuthToken|AuthenticationError|[Tt]oken authentication")
_VERSIONS = re.compile(r"Ray: (\S+)\s+Python: (\S+)")
_START = "start one with `ray start --head`, give --ray-address HOST:PORT, or --ray-address local"


@contextlib.contextmanager
def connected(address: str | None) -> Iterator[Any]:
    """Connect this process to a Ray cluster, and disconnect at the end.

    A process that is connected already (a job of ``ray job submit`` that called ``ray.init``) stays
    so, whatever the address.

    Args:
        address: ``HOST:PORT`` of a cluster, or ``local`` for one of this machine's cores that lasts
            as long as the connection. ``None`` for ``RAY_ADDRESS``, else a cluster that runs on
            this machine.

    Yields:
        The module ``ray``.

    Raises:
        UsageError: Ray is not installed, or the address is none.
        MachineError: no cluster answers there within 30 s, it does not accept the token, or it has
            another version of Ray or Python.
    """
    require("ray", "a connection to Ray")
    import ray  # noqa: PLC0415 - an extra, and 0.3 s

    if ray.is_initialized():
        yield ray
        return
    chosen = address or os.environ.get("RAY_ADDRESS") or _RUNNING_HERE
    if chosen != LOCAL:
        _try_in_process(chosen)
    with _no_messages(ray):
        try:
            with _own_signals():
                ray.init(address=chosen, **_QUIET)
        except (Exception, SystemExit) as error:
            raise connection_error(chosen, f"{type(error).__name__}: {error}") from error
        try:
            yield ray
        finally:
            with _own_signals():
                ray.shutdown()


_QUIET: dict[str, Any] = {
    "log_to_driver": False,
    "logging_level": logging.CRITICAL,
    "configure_logging": True,
}


@contextlib.contextmanager
def _no_messages(ray: Any) -> Iterator[None]:  # noqa: ANN401 - a module
    """Ray prints what becomes of workers and nodes to standard output, where JSON of ours may go;
    what matters of it is raised by what was asked of them."""
    module = getattr(getattr(ray, "_private", None), "worker", None)
    printing = getattr(module, "print_to_stdstream", None)
    if module is None or printing is None:
        yield
        return
    module.print_to_stdstream = lambda *_, **__: None
    try:
        yield
    finally:
        module.print_to_stdstream = printing


@contextlib.contextmanager
def _own_signals() -> Iterator[None]:
    """Ray takes SIGTERM for itself; this process has a rule of its own for it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL if handler is None else handler)


def connection_error(address: str, told: str) -> TorchscaleError:
    """What Ray said, as one line and what to do."""
    if _NO_TOKEN.search(told):
        return MachineError(
            f"the Ray cluster at {address} does not accept this token, or wants one",
            hint="set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH where the token is "
            "not in ~/.ray/auth_token",
        )
    if "Version mismatch" in told and len(versions := _VERSIONS.findall(told)) == 2:
        (ray, python), (own_ray, own_python) = versions
        return MachineError(
            f"the Ray cluster at {address} has Ray {ray} and Python {python}, this process "
            f"Ray {own_ray} and Python {own_python}",
            hint="install the same versions on both sides",
        )
    if "Invalid address" in told or "Malformed address" in told:
        return UsageError(f"{address} is no address of a Ray cluster", hint=f"expected: {_START}")
    if address == _RUNNING_HERE and "Could not find any running Ray instance" in told:
        return MachineError("no Ray cluster runs on this machine", hint=_START)
    no_raylet = "cannot find" in told and "aylet" in told
    if no_raylet or "Failed to connect to Ray cluster" in told:  # its port answered before
        return MachineError(
            f"this machine is no node of the Ray cluster at {address}",
            hint="start it there, or with `ray job submit`; `ray start --address=…` adds a node",
        )
    first = told.strip().partition("\n")[0] or "it does not answer"
    where = "of this machine" if address == _RUNNING_HERE else f"at {address}"
    return MachineError(f"no connection to the Ray cluster {where}: {first}", hint=_START)


def _try_in_process(address: str) -> None:
    """Connect once from a process that may hang or end.

    Raises:
        UsageError: as :func:`connected`.
        MachineError: as :func:`connected`.
    """
    host, _, port = address.rpartition(":")
    if host and port.isdecimal() and "/" not in host:
        try:
            socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()
        except (OSError, OverflowError) as error:
            raise connection_error(address, f"nothing answers there ({error})") from error
    process = subprocess.Popen(
        module_command("torchscale.util.ray_connection", address),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "RAY_NUM_REDIS_GET_RETRIES": _TRIES},
        start_new_session=True,
    )
    try:
        told = _told_by(process, time.monotonic() + _SECONDS)
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
    if told != _CONNECTED:
        raise connection_error(address, told)


_CONNECTED = "connected"


def _told_by(process: subprocess.Popen[bytes], deadline: float) -> str:
    """What the process says of its attempt; what Ray printed where it says nothing."""
    printed = b""
    if process.stdout is None:
        return ""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while (left := deadline - time.monotonic()) > 0:
            if not selector.select(left):
                break
            piece = os.read(process.stdout.fileno(), 1 << 16)
            printed += piece
            text = printed.decode(errors="replace")
            # Ray goes on trying with a token that was refused.
            if not piece or "InvalidAuthToken" in text:
                break
    lines = printed.decode(errors="replace").splitlines()
    for line in reversed(lines):
        with contextlib.suppress(ValueError, TypeError, KeyError):
            return str(json.loads(line)["told"])
    if any("InvalidAuthToken" in line for line in lines):
        return "InvalidAuthToken"
    return f"no answer in {_SECONDS:.0f} s" if time.monotonic() >= deadline else ""


def _main(address: str) -> None:
    import ray  # noqa: PLC0415 - this process is for that

    told = _CONNECTED
    try:
        ray.init(address=address, **_QUIET)
        ray.shutdown()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - Ray raises whatever it meets
        told = f"{type(error).__name__}: {error}"
    sys.stdout.write("\n" + json.dumps({"told": told}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    _main(sys.argv[1])
