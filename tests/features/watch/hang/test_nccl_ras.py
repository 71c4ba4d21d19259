"""The exchange with NCCL's RAS service, with a server of our own in its place."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from types import ModuleType

import pytest

import torchscale.features.watch.hang.nccl_ras as nccl_ras
from torchscale.errors import TraceError

STATUS = {
    "communicators": [
        {
            "hash": "0x1",
            "size": 2,
            "ranks": [{"rank": 0, "host": "h", "pid": 7, "collective_counts": {"AllReduce": 3}}],
            "missing_ranks": [{"rank": 1, "host": "h", "pid": 8, "status": {"unresponsive": True}}],
        }
    ]
}


@contextlib.contextmanager
def service(
    format_reply: bytes, status: bytes, *, stays_open: bool = False
) -> Iterator[tuple[str, int]]:
    """A server that answers as RAS does: ``OK`` to settings, the status, then the end of the
    connection."""
    done = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection, connection.makefile("rb") as lines:
                for line in lines:
                    command = line.strip().upper()
                    if command.startswith(b"TIMEOUT"):
                        connection.sendall(b"OK\n")
                    elif command == b"SET FORMAT JSON":
                        connection.sendall(format_reply)
                    else:
                        assert command == b"VERBOSE STATUS"
                        connection.sendall(status)
                        if stays_open:
                            done.wait(30)
                        return

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield server.getsockname()[:2]
        finally:
            done.set()
            thread.join(10)


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(nccl_ras, "_SECONDS", 0.3)
    return nccl_ras


def test_the_status_is_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    with service(b"OK\n", json.dumps(STATUS).encode()) as (host, port):
        monkeypatch.setenv("NCCL_RAS_ADDR", f"{host}:{port}")
        (note,) = nccl_ras.nccl_notes([7])
    assert note.endswith("rank 1 (pid 8 on h) does not respond")


def test_an_older_service_is_no_error_for_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        service(b"ERROR: unknown command\n", b"") as address,
        pytest.raises(TraceError, match="SET FORMAT json"),
    ):
        nccl_ras.ask_ras(address)
    with service(b"ERROR: unknown command\n", b"") as (host, port):
        monkeypatch.setenv("NCCL_RAS_ADDR", f"{host}:{port}")
        assert nccl_ras.nccl_notes([7]) == ()


def test_a_service_that_does_not_end_its_reply_is_left(client: ModuleType) -> None:
    with service(b"OK\n", b"{", stays_open=True) as address, pytest.raises(TimeoutError):
        client.ask_ras(address)


def test_no_service_is_no_note(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    monkeypatch.setenv("NCCL_RAS_ADDR", f"127.0.0.1:{port}")
    assert nccl_ras.nccl_notes([7]) == ()


def test_the_address_is_nccls_unless_it_was_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NCCL_RAS_ADDR", raising=False)
    assert nccl_ras._address() == ("127.0.0.1", 28028)
    for value, expected in (
        ("[::1]:5", ("::1", 5)),
        ("nonsense", nccl_ras._ADDRESS),
        ("h:five", nccl_ras._ADDRESS),
        ("h:", nccl_ras._ADDRESS),
        ("h:65535", ("h", 65535)),
        ("h:65536", nccl_ras._ADDRESS),
        (":5", nccl_ras._ADDRESS),
    ):
        monkeypatch.setenv("NCCL_RAS_ADDR", value)
        assert nccl_ras._address() == expected


def test_a_service_that_sends_without_end_is_read_up_to_a_limit(
    client: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever listens on that port may be something else, and the memory of a node is not his."""
    monkeypatch.setattr(client, "MAX_STATUS_BYTES", 1000)
    with service(b"OK\n", b"x" * 300_000, stays_open=True) as address:
        assert 1000 < len(client.ask_ras(address)) <= 1000 + (1 << 16)
