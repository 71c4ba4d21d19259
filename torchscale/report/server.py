"""A page in the browser that follows a run: it is rendered again when something has changed.

Only the page and its state are served, never a file. By default only this machine can reach it.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Protocol

from torchscale.errors import MachineError, TorchscaleError

LOOPBACK = ("127.0.0.1", "localhost", "::1")
_REQUEST_SECONDS = 30


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


@dataclass(frozen=True)
class _Page:
    version: str
    html: bytes


class LivePage:
    """The page as of now. Requests come in threads: one renders, the others wait for it."""

    def __init__(self, source: PageSource) -> None:
        self._source = source
        self._lock = threading.Lock()
        self._page: _Page | None = None

    def html(self) -> bytes:
        """The page; rendered only where its source has another version than the last one.

        Raises:
            TorchscaleError: what it shows cannot be read at the moment.
        """
        with self._lock:
            version = self._source.version()
            if self._page is None or self._page.version != version:
                self._page = _Page(version, self._source.render(version).encode())
            return self._page.html

    def state(self) -> dict[str, str]:
        """For the page's script: the version there is now, and what runs."""
        return {"version": self._source.version(), "running": self._source.running()}


def make_server(page: LivePage, host: str, port: int) -> ThreadingHTTPServer:
    """A server that is ready to be run; port 0 takes any free one.

    Raises:
        MachineError: the address cannot be used.
    """

    class Handler(_Handler):
        live = page
        hosts = (*LOOPBACK, host)

    class Server(_Server):
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET

    try:
        server = Server((host, port), Handler)
    except OSError as error:
        raise MachineError(
            f"cannot listen on {host}:{port}: {error.strerror or error}",
            hint="choose another --port; 0 takes a free one",
        ) from error
    server.daemon_threads = True
    return server


class _Server(ThreadingHTTPServer):
    """One that says nothing of clients that go away."""

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that closed its connection, or that was too slow, is no error of the server's."""
        if not isinstance(sys.exc_info()[1], ConnectionError | TimeoutError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class _Handler(BaseHTTPRequestHandler):
    live: LivePage
    hosts: tuple[str, ...]
    timeout = _REQUEST_SECONDS

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        name = self.headers.get("Host", "").rsplit(":", 1)[0].strip("[]")
        if "0.0.0.0" not in self.hosts and name not in self.hosts:  # noqa: S104 - a comparison
            # A foreign name that leads to this address is how pages of others would read this one.
            self._answer(HTTPStatus.FORBIDDEN, b"unknown host name", "text/plain")
            return
        try:
            if self.path == "/":
                self._answer(HTTPStatus.OK, self.live.html(), "text/html; charset=utf-8")
            elif self.path == "/state":
                self._answer(HTTPStatus.OK, json.dumps(self.live.state()).encode(), "application/json")
            else:
                self._answer(HTTPStatus.NOT_FOUND, b"not found", "text/plain")
        except TorchscaleError as error:
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, error.message.encode(), "text/plain; charset=utf-8")

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
