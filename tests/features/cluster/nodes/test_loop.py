"""The network's thread ends without leaving a connection open, whatever arrives meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import socket
import threading
import time
import warnings

import pytest

from torchscale.features.cluster.nodes.loop import LoopThread
from torchscale.features.cluster.nodes.network import listen
from torchscale.features.cluster.nodes.reachability import answer_pair
from torchscale.features.cluster.nodes.unauthenticated import UnauthenticatedConnections
from torchscale.util.processes.subprocesses import wait_until

TOKEN = b"correct horse battery staple"
SOON = 30.0


def test_connections_that_arrive_at_the_end_are_closed_without_a_word(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "asyncio")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for connections in [1, 2, 3] * 20:
            end_with_strangers(connections)
        gc.collect()
    assert [str(warning.message) for warning in caught if warning.category is ResourceWarning] == []
    assert [record.message for record in caplog.records if record.levelno > logging.DEBUG] == []


def test_tasks_end_where_their_time_limit_passes_before_they_can_run(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a machine that was suspended: all timers are due at once."""
    thread = LoopThread("nodes")
    ended = threading.Event()

    async def wait_long() -> None:
        try:
            await asyncio.wait_for(asyncio.Event().wait(), SOON)
        finally:
            await asyncio.sleep(0)
            ended.set()

    thread.start(wait_long())
    monkeypatch.setattr("torchscale.features.cluster.nodes.loop._END_SECONDS", 0.0)
    thread.close()
    assert wait_until(thread.loop.is_closed, timeout_seconds=SOON)
    assert ended.is_set()
    gc.collect()
    assert [record.message for record in caplog.records] == []


def test_a_task_that_drops_its_cancellation_is_cancelled_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As ``asyncio.wait_for`` lets its task do up to Python 3.11."""
    thread = LoopThread("nodes")
    has_begun = threading.Event()

    async def wait_on() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            has_begun.set()
            await asyncio.sleep(SOON)
        await asyncio.sleep(SOON)

    thread.start(wait_on())
    assert has_begun.wait(SOON)
    began = time.monotonic()
    thread.close()
    assert thread.loop.is_closed()
    assert time.monotonic() - began < SOON / 10
    gc.collect()
    assert [record.message for record in caplog.records] == []


def end_with_strangers(connections: int) -> None:
    """Close a thread in whose queue are connections that were not accepted, or whose handler has
    not begun."""
    server = listen("127.0.0.1", 0)
    address = server.getsockname()
    thread = LoopThread("nodes")
    thread.call(
        thread.serve(lambda r, w: answer_pair(r, w, TOKEN, UnauthenticatedConnections()), server),
        SOON,
    )
    strangers = [socket.create_connection(address, SOON) for _ in range(connections)]
    thread.close()
    assert thread.loop.is_closed()
    for stranger in strangers:
        with stranger:
            pass
