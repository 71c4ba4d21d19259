"""A page in the browser that follows a run: it is rendered again when something has changed.

Only the page, its state and its figures are served, never a file. By default only this machine can
reach it.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Protocol

from torchscale.errors import MachineError, TorchscaleError

LOOPBACK = ("127.0.0.1", "localhost", "::1")
_HOST = re.compile(r"(\[[^\[\]]*\]|[^:\[\]]*)(?::\d{0,5})?", re.ASCII)
_EVERY_ADDRESS = ("0.0.0.0", "::")  # noqa: S104 - for comparison
_REQUEST_SECONDS = 30.0
"""Time limit for a request to arrive in whole, and for its answer to be taken."""
_MAX_CONNECTIONS = 64
"""Each has a thread. A browser opens six."""
_TURN_SECONDS = 1.0
"""Time limit for a thread to become free: hanging up on a client takes milliseconds, answering one
some tenths of a second."""


class PageSource(Protocol):
    """What a live page shows."""

    def version(self) -> str:
        """A text that changes when the page should be rendered again."""
        ...

    def running(self) -> str:
        """One line on what runs now; empty where nothing does."""
        ...

    def render(self, version: str) -> str:
        """The page as HTML, marked with this version.

        Raises:
            TorchscaleError: what it shows cannot be read at the moment.
        """
        ...

    def metrics(self, version: str, *, openmetrics: bool) -> str:
        """The figures as OpenMetrics, or else in the text format of Prometheus.

        Raises:
            TorchscaleError: what it shows cannot be read at the moment.
        """
        ...


_HTML = "text/html; charset=utf-8"
_PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
_OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


@dataclass(frozen=True)
class _Page:
    version: str
    content: bytes


class LivePage:
    """The page as of now. Requests come in threads: one renders, the others wait for it."""

    def __init__(self, source: PageSource) -> None:
        self._source = source
        self._lock = threading.Lock()
        self._pages: dict[str, _Page] = {}

    def html(self) -> bytes:
        """The page; rendered only where its source has another version than the last one.

        Raises:
            TorchscaleError: what it shows cannot be read at the moment.
        """
        return self._current(_HTML, self._source.render)

    def metrics(self, accepted: str) -> tuple[bytes, str]:
        """The figures and their content type: OpenMetrics for clients whose ``Accept`` names it, as
        Prometheus' does, else the older text format; rendered only where something has changed.

        Raises:
            TorchscaleError: what it shows cannot be read at the moment.
        """
        openmetrics = "application/openmetrics-text" in accepted.lower()
        kind = _OPENMETRICS if openmetrics else _PROMETHEUS
        render = partial(self._source.metrics, openmetrics=openmetrics)
        return self._current(kind, render), kind

    def _current(self, kind: str, render: Callable[[str], str]) -> bytes:
        """What ``render`` makes of the version there is now."""
        with self._lock:
            version = self._source.version()
            page = self._pages.get(kind)
            if page is None or page.version != version:
                page = self._pages[kind] = _Page(version, render(version).encode())
            return page.content

    def state(self) -> dict[str, str]:
        """State for the page's script: the version there is now, and what runs."""
        return {"version": self._source.version(), "running": self._source.running()}


def make_server(page: LivePage, host: str, port: int) -> ThreadingHTTPServer:
    """A server that is ready to be run; port 0 takes any free one.

    Raises:
        MachineError: the address cannot be used.
    """

    class Handler(_Handler):
        live = page
        hosts = None if host in _EVERY_ADDRESS else (*LOOPBACK, host.lower())

    class Server(_Server):
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET

    try:
        server = Server((host, port), Handler)
    except OSError as error:
        raise MachineError(
            f"cannot listen on {host}:{port}: {error.strerror or error}",
            hint="choose another --port; 0 takes a free one",
        ) from error
    return server


class _Server(ThreadingHTTPServer):
    """One that neither slow clients nor very many of them can occupy, and that says nothing of
    clients that go away."""

    daemon_threads = True
    request_queue_size = _MAX_CONNECTIONS

    def __init__(self, address: tuple[str, int], handler: type[_Handler]) -> None:
        super().__init__(address, handler)
        self._slots = threading.BoundedSemaphore(_MAX_CONNECTIONS)
        self._lock = threading.Lock()
        self._arriving: dict[socket.socket, float] = {}

    def process_request(self, request: socket.socket, client_address: tuple[str, int]) -> None:  # type: ignore[override]
        """Answer in a thread of its own; where none is left, instead of the client that has not
        asked for longest."""
        if not self._slots.acquire(blocking=False):
            self._hang_up_on_oldest()
            if not self._slots.acquire(timeout=_TURN_SECONDS):
                self.shutdown_request(request)
                return
        with self._lock:
            self._arriving[request] = time.monotonic()
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no thread can be started
            self._release(request)
            raise

    def process_request_thread(  # type: ignore[override]
        self, request: socket.socket, client_address: tuple[str, int]
    ) -> None:
        """Answers a request in its thread, and frees the request's place afterwards."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._release(request)

    def arrived(self, request: socket.socket) -> None:
        """The whole request was read."""
        with self._lock:
            self._arriving.pop(request, None)

    def service_actions(self) -> None:
        """Called a few times a second: hang up on clients that take too long to ask. Sockets have a
        timeout, which begins anew with every byte."""
        with self._lock:
            late = [
                request
                for request, began in self._arriving.items()
                if time.monotonic() - began > _REQUEST_SECONDS
            ]
        for request in late:
            _hang_up(request)

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that closed its connection, or that was too slow, is no error of the
        server's."""
        if not isinstance(sys.exc_info()[1], ConnectionError | TimeoutError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]

    def _hang_up_on_oldest(self) -> None:
        with self._lock:
            oldest = next(iter(self._arriving), None)
        if oldest is not None:
            _hang_up(oldest)

    def _release(self, request: socket.socket) -> None:
        self.arrived(request)
        self._slots.release()


def _hang_up(request: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it has gone
        request.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    live: LivePage
    hosts: tuple[str, ...] | None
    """Names that a request may call this machine by; ``None`` for any."""
    timeout = _REQUEST_SECONDS
    server: _Server

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        self.server.arrived(self.connection)
        if self.hosts is not None and _host_name(self.headers.get("Host", "")) not in self.hosts:
            # A foreign name that leads to this address is how pages of others would read this one.
            self._answer(HTTPStatus.FORBIDDEN, b"unknown host name", "text/plain")
            return
        try:
            if self.path == "/":
                self._answer(HTTPStatus.OK, self.live.html(), _HTML)
            elif self.path == "/metrics":
                self._answer(HTTPStatus.OK, *self.live.metrics(self.headers.get("Accept", "")))
            elif self.path == "/state":
                self._answer(
                    HTTPStatus.OK, json.dumps(self.live.state()).encode(), "application/json"
                )
            else:
                self._answer(HTTPStatus.NOT_FOUND, b"not found", "text/plain")
        except TorchscaleError as error:
            self._answer(
                HTTPStatus.SERVICE_UNAVAILABLE, error.message.encode(), "text/plain; charset=utf-8"
            )

    def _answer(self, status: HTTPStatus, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing: the terminal belongs to whoever started it."""


def _host_name(header: str) -> str:
    """``localhost`` of ``Localhost:8642``, ``::1`` of ``[::1]:8642``; empty for what is no host and
    port."""
    match = _HOST.fullmatch(header)
    return "" if match is None else match[1].strip("[]").lower()
