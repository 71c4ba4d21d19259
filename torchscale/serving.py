"""A results directory as a page that follows it: built anew when a launch ends, served to this machine alone unless
told otherwise. Only the page and its state are served, never a file."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from pydantic_core import from_json

from torchscale.errors import MachineError, TorchscaleError
from torchscale.garbage import no_collections
from torchscale.reading import read_summary
from torchscale.report.build import build_document
from torchscale.report.html import render_html
from torchscale.sources import read_details

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_REQUEST_SECONDS = 30


@dataclass(frozen=True)
class _Page:
    version: str
    html: bytes


class LivePage:
    """The report of a directory, as it is now."""

    def __init__(self, directory: Path, price: float | None = None) -> None:
        self.directory, self.price = directory, price
        self._lock = threading.Lock()
        self._page: _Page | None = None

    @no_collections()
    def html(self) -> bytes:
        """The page; built only where something has ended since the last one.

        Raises:
            StoreError: the directory cannot be read.
        """
        with self._lock:
            version = self.version()
            if self._page is None or self._page.version != version:
                summary = read_summary(self.directory)
                details = read_details(self.directory, summary)
                document = build_document(summary, details, price=self.price)
                self._page = _Page(version, render_html(document, version=version).encode())
            return self._page.html

    def version(self) -> str:
        """Changes when a launch ends, a recording is analysed, or the plan grows."""
        stamps = [_stamp(self.directory / "experiment.json")]
        count = 0
        for pattern in ("cells/*/launch-*/record.json", "cells/*/profile-*/analysis.json"):
            for path in self.directory.glob(pattern):
                stamps.append(_stamp(path))
                count += 1
        return f"{count}-{max(stamps)}"

    def state(self) -> dict[str, object]:
        """For the page's script: which version there is now, and what runs."""
        return {"version": self.version(), "running": self._running()}

    def _running(self) -> str:
        """The launch that last said something and has not ended; empty without any."""
        open_ends = [
            path
            for path in self.directory.glob("cells/*/launch-*/progress.jsonl")
            if not (path.parent / "record.json").exists()
        ]
        if not open_ends:
            return ""
        newest = max(open_ends, key=_stamp)
        said = _last_line(newest)
        return f"{newest.parent.parent.name}, {newest.parent.name}: {said}"


def _last_line(path: Path) -> str:
    """What rank 0 said last."""
    try:
        lines = path.read_bytes()[-4096:].splitlines()
        last = from_json(lines[-1]) if lines else {}
    except (OSError, ValueError):
        return "starting"
    if not isinstance(last, dict):
        return "starting"
    steps = last.get("steps")
    return str(last.get("phase", "starting"))[:40] + (f", {steps} steps" if isinstance(steps, int) and steps else "")


def _stamp(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def make_server(page: LivePage, host: str, port: int) -> ThreadingHTTPServer:
    """A server that is ready to be run; port 0 takes any free one.

    Raises:
        MachineError: the address cannot be used.
    """

    class Handler(_Handler):
        live = page
        hosts = (*_LOOPBACK, host)

    try:
        server = ThreadingHTTPServer((host, port), Handler)
    except OSError as error:
        raise MachineError(
            f"cannot listen on {host}:{port}: {error.strerror or error}",
            hint="choose another --port; 0 takes a free one",
        ) from error
    server.daemon_threads = True
    return server


class _Handler(BaseHTTPRequestHandler):
    live: LivePage
    hosts: tuple[str, ...]
    timeout = _REQUEST_SECONDS

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
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing: the terminal belongs to whoever started it."""
