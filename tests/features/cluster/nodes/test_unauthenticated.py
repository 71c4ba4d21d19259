"""However many connect without the token, the nodes of a sweep get in."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import threading
from collections.abc import Coroutine, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.features.cluster.nodes.test_leader import HERE, SOON, TOKEN, Nodes
from torchscale.features.cluster.nodes import leader_network, reachability, unauthenticated
from torchscale.features.cluster.nodes.loop import LoopThread
from torchscale.features.cluster.nodes.reachability import answer_pair, reach_pair
from torchscale.util.processes.subprocesses import wait_until

FEW = 8


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> Iterator[Nodes]:
    """A sweep over three nodes, each of which holds few strangers."""
    monkeypatch.setattr(unauthenticated.UnauthenticatedConnections.__init__, "__defaults__", (FEW,))
    nodes = Nodes(3)
    yield nodes
    nodes.close()


def test_nodes_join_beside_strangers_that_say_nothing(
    few: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (
        reachability,
        leader_network,
    ):  # else strangers are dropped after some seconds anyway
        monkeypatch.setattr(module, "HANDSHAKE_SECONDS", 10 * SOON)
    with ExitStack() as stack:
        for port in [few.port, few.leader._pairs.pair_port] * 20:
            stack.enter_context(socket.create_connection((HERE, port), SOON))
        few.join(1)
        few.join(2)
        few.meet()
        assert few.leader.available == 3


def test_nodes_join_beside_strangers_that_come_again(few: Nodes) -> None:
    over = threading.Event()

    def come_again() -> None:
        while not over.is_set():
            with (
                contextlib.suppress(OSError),
                socket.create_connection((HERE, few.port), SOON) as stranger,
            ):
                stranger.settimeout(0.05)
                stranger.recv(1)

    threads = [threading.Thread(target=come_again) for _ in range(2 * FEW)]
    for thread in threads:
        thread.start()
    try:
        few.join(1)
        few.join(2)
        few.meet()
        assert few.leader.available == 3
    finally:
        over.set()
        for thread in threads:
            thread.join(SOON)


@pytest.mark.parametrize("closed", [0, 1, 20])
def test_a_listener_that_closes_connections_is_asked_until_it_answers(
    closed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reachability, "_RETRY_SECONDS", 0.001)
    assert _apart(_reach_one_that_closes(closed, SOON)) == ""


def test_a_listener_that_closes_every_connection_is_given_up_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reachability, "_RETRY_SECONDS", 0.001)
    reason = _apart(_reach_one_that_closes(10**9, 0.5))
    assert re.fullmatch(r"the connection was closed \d+ times within 0.5 s", reason)


def test_a_port_where_nobody_listens_is_told_at_once() -> None:
    with socket.socket() as unused:
        unused.bind((HERE, 0))
        port = int(unused.getsockname()[1])
        reason = _apart(reach_pair(HERE, port, TOKEN, SOON))
    assert "refused" in reason.lower() or "connect" in reason.lower()
    assert "within" not in reason


def _apart(reaching: Coroutine[Any, Any, str]) -> str:
    """Run in a thread of its own: the loop of a browser may run in this one."""
    thread = LoopThread("reaching")
    try:
        return thread.call(reaching, 2 * SOON)
    finally:
        thread.close()


async def _reach_one_that_closes(closed: int, seconds: float) -> str:
    """What a node says of a listener that closes the first ``closed`` connections."""
    seen = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal seen
        seen += 1
        if seen <= closed:
            writer.transport.abort()
        else:
            await answer_pair(reader, writer, TOKEN, unauthenticated.UnauthenticatedConnections())

    server = await asyncio.start_server(answer, HERE, 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        return await reach_pair(HERE, port, TOKEN, seconds)


def test_only_who_knows_the_token_gets_an_answer_of_it(few: Nodes) -> None:
    with socket.create_connection((HERE, few.leader._pairs.pair_port), SOON) as stranger:
        stranger.sendall(bytes(64))
        assert stranger.recv(10) == b""


def test_the_oldest_of_the_address_that_has_most_goes_first() -> None:
    held = unauthenticated.UnauthenticatedConnections(3)
    mine = [_Writer("10.0.0.1"), _Writer("10.0.0.2"), _Writer("10.0.0.2"), _Writer("10.0.0.3")]
    with ExitStack() as stack:
        for writer in mine:
            stack.enter_context(held.holding(writer))  # type: ignore[arg-type]
        assert [writer.is_closed for writer in mine] == [False, True, False, False]


def test_whoever_has_shown_the_token_is_no_stranger_any_more(few: Nodes) -> None:
    follower = few.join(1)
    with ExitStack() as stack:
        for _ in range(5 * FEW):
            stack.enter_context(socket.create_connection((HERE, few.port), SOON))
        assert wait_until(
            lambda: len(few.leader._pairs.unauthenticated._addresses) == FEW, timeout_seconds=SOON
        )
        assert not follower.lost


class _Writer:
    """Of a connection from an address."""

    def __init__(self, address: str) -> None:
        self._address, self.is_closed, self.transport = address, False, self

    def get_extra_info(self, name: str) -> tuple[str, int]:
        """Of the other side."""
        assert name == "peername"
        return self._address, 1

    def abort(self) -> None:
        """Close."""
        self.is_closed = True
