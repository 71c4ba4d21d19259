"""However many connect without the token, the nodes of a sweep get in."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.nodes.test_leader import HERE, SOON, Nodes
from torchscale.nodes import strangers
from torchscale.nodes.channel import HANDSHAKE_SECONDS
from torchscale.util.processes.subprocesses import wait_until

FEW = 8


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> Iterator[Nodes]:
    """A sweep over three nodes, each of which holds few strangers."""
    monkeypatch.setattr(strangers.Strangers.__init__, "__defaults__", (FEW,))
    nodes = Nodes(3)
    yield nodes
    nodes.close()


def test_nodes_join_beside_strangers_that_say_nothing(few: Nodes) -> None:
    with ExitStack() as stack:
        for port in [few.port, few.leader._network.pair_port] * 20:
            stack.enter_context(socket.create_connection((HERE, port), SOON))
        began = time.monotonic()
        few.join(1)
        few.join(2)
        few.meet()
        assert few.leader.available == 3
        assert time.monotonic() - began < HANDSHAKE_SECONDS / 2, (
            "strangers are dropped after that anyway"
        )


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


def test_only_who_knows_the_token_gets_an_answer_of_it(few: Nodes) -> None:
    with socket.create_connection((HERE, few.leader._network.pair_port), SOON) as stranger:
        stranger.sendall(bytes(64))
        assert stranger.recv(10) == b""


def test_the_oldest_of_the_address_that_has_most_goes_first() -> None:
    held = strangers.Strangers(3)
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
            lambda: len(few.leader._network.strangers._addresses) == FEW, timeout_seconds=SOON
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
