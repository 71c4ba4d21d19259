"""Who joins a sweep and who is refused, and how a node is lost: both sides of the channel in one
process."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.features.cluster.nodes.test_preflight import description
from torchscale.errors import MachineError
from torchscale.features.cluster.cluster import Cluster
from torchscale.features.cluster.nodes.descriptions import NodeDescription
from torchscale.features.cluster.nodes.follower import Follower
from torchscale.features.cluster.nodes.joining_follower import JoiningFollower
from torchscale.features.cluster.nodes.leader import Leader
from torchscale.features.cluster.nodes.messages import (
    Collected,
    Ended,
    Farewell,
    FileFollows,
    Start,
)
from torchscale.features.cluster.nodes.network import listen
from torchscale.launch.control import StopRequest
from torchscale.util.processes.subprocesses import wait_until
from torchscale.version import __version__

TOKEN = b"correct horse battery staple"
HERE = "127.0.0.1"
SOON = 30.0
"""For what takes milliseconds, on a busy machine."""


class Nodes:
    """A first node, and others that join it."""

    def __init__(self, nodes: int, *, silent_seconds: float = 20.0) -> None:
        server = listen(HERE, 0)
        self.port = int(server.getsockname()[1])
        self.nodes, self.silent_seconds = nodes, silent_seconds
        self.leader = Leader(server, TOKEN, description(), nodes, silent_seconds=silent_seconds)
        self.followers: list[Follower] = []

    def join(
        self, node_rank: int, *, token: bytes = TOKEN, nodes: int | None = None, **changes: Any
    ) -> Follower:
        """A node joins, and is heard of."""
        version = changes.pop("version", __version__)
        cluster = Cluster(self.nodes if nodes is None else nodes, node_rank, HERE, self.port)
        follower = _Local(cluster, token, silent_seconds=self.silent_seconds, version=version)
        self.followers.append(follower)
        follower.join(description(hostname=f"n{node_rank}", **changes), SOON, lambda: False)
        return follower

    def meet(self, seconds: float = SOON) -> None:
        """Wait for all."""
        self.leader.meet(seconds, StopRequest())

    def close(self) -> None:
        """End both sides."""
        self.leader.close(0)
        for follower in self.followers:
            follower.close()


class _Local(JoiningFollower):
    """A node on the loopback address, which the command line refuses."""

    @property
    def leader_address(self) -> str:
        return HERE


@pytest.fixture
def two() -> Iterator[Nodes]:
    """A sweep over two nodes of which the first is there."""
    nodes = Nodes(2)
    yield nodes
    nodes.close()


@pytest.fixture
def three() -> Iterator[Nodes]:
    """The same over three nodes."""
    nodes = Nodes(3)
    yield nodes
    nodes.close()


def test_nodes_that_fit_take_part(three: Nodes) -> None:
    three.join(1)
    three.join(2)
    three.meet()
    assert three.leader.available == 3
    assert three.leader.missing() == ()
    layout = three.leader.layout(3, 4)
    assert [(node.hostname, node.first_rank, node.ranks) for node in layout] == [
        ("n0", 0, 4),
        ("n1", 4, 4),
        ("n2", 8, 4),
    ]
    offset = layout[1].clock_offset_seconds
    assert offset is not None
    assert abs(offset) < 1


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"version": "0.0.1"}, "node 1 (n1): torchscale: 0.0.1"),
        ({"nodes": 3}, "--nnodes: 3, 2 on n0"),
        (
            {"config": {"benchmark.max_steps": "9", "launch.env": "{}"}},
            "benchmark.max_steps: 9, 400 on n0",
        ),
    ],
)
def test_a_node_that_differs_is_named_and_nothing_starts(
    two: Nodes, changes: dict[str, Any], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "torchscale.features.cluster.nodes.joining_follower.socket.gethostname", lambda: "n1"
    )
    follower = two.join(1, **changes)
    with pytest.raises(MachineError, match="nothing was started") as raised:
        two.meet()
    assert expected in raised.value.message
    last = follower.orders.get(timeout=SOON)
    assert isinstance(last, Farewell)
    assert expected in last.reason


def test_a_clock_that_is_wrong_is_named(two: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchscale.features.cluster.nodes.follower.time", _Ahead())
    two.join(1)
    with pytest.raises(MachineError, match=r"its clock is 3[56]\d\d\.\d s ahead"):
        two.meet()


class _Ahead:
    """:mod:`time` of a node whose clock is an hour ahead."""

    def time(self) -> float:
        return time.time() + 3600

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


def test_a_pair_that_does_not_connect_is_named(two: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    async def unreachable(address: str, port: int, token: bytes, seconds: float) -> str:
        return f"no answer within {seconds:g} s"

    monkeypatch.setattr(
        "torchscale.features.cluster.nodes.joining_follower.reach_pair", unreachable
    )
    two.join(1)
    with pytest.raises(
        MachineError, match=r"n1 cannot connect to n0 \(127.0.0.1\): no answer within 10 s"
    ) as told:
        two.meet()
    assert "let them connect on any port" in (told.value.hint or "")


def test_a_node_that_never_comes_is_named_within_the_bound(three: Nodes) -> None:
    three.join(1)
    begun = time.monotonic()
    three.meet(0.5)
    assert time.monotonic() - begun < SOON
    assert three.leader.available == 2
    assert three.leader.missing() == ("node 2 did not join",)


def test_a_node_that_comes_late_is_let_in_between_launches(two: Nodes) -> None:
    two.meet(0.1)
    assert two.leader.available == 1
    two.join(1)
    assert wait_until(lambda: _admits(two, 2), timeout_seconds=SOON)
    assert two.leader.take_notes() == ["node 1 (n1) joined"]


def _admits(nodes: Nodes, count: int) -> bool:
    nodes.leader.admit_late()
    return nodes.leader.available == count


def test_a_node_that_leaves_is_lost_with_its_reason(two: Nodes) -> None:
    follower = two.join(1)
    two.meet()
    follower.close("it was interrupted")
    assert wait_until(lambda: two.leader.available == 1, timeout_seconds=SOON)
    assert two.leader.missing() == ("node 1 (n1) was lost: it was interrupted",)


def test_a_silent_node_is_lost_within_the_bound() -> None:
    nodes = Nodes(2, silent_seconds=1.0)
    try:
        follower = nodes.join(1)
        nodes.meet()
        silenced = threading.Event()
        follower._network.loop.call_soon_threadsafe(silenced.wait, SOON)  # its network stands still
        assert wait_until(lambda: nodes.leader.available == 1, timeout_seconds=SOON)
        silenced.set()
        assert nodes.leader.missing() == ("node 1 (n1) was lost: silent for 1 s",)
    finally:
        nodes.close()


def test_two_nodes_of_one_rank_are_told_apart(three: Nodes) -> None:
    three.join(1)
    three.join(2)
    three.meet()
    twin = three.join(1)
    last = twin.orders.get(timeout=SOON)
    assert isinstance(last, Farewell)
    assert last.reason.startswith("--node-rank 1 is taken by n1 (")
    assert three.leader.available == 3


def test_a_node_without_the_token_is_refused(two: Nodes) -> None:
    with pytest.raises(MachineError, match="refused the token"):
        two.join(1, token=b"another token, long enough")
    assert wait_until(lambda: bool(two.leader._membership._notes), timeout_seconds=SOON)
    assert two.leader.take_notes() == [
        "a connection from 127.0.0.1 was refused: it does not have the token"
    ]
    assert two.join(1) is not None  # and the right one is welcome
    two.meet()
    assert two.leader.available == 2


def test_the_first_node_without_the_token_is_refused() -> None:
    server = listen(HERE, 0)
    impostor = Leader(server, b"another token, long enough", description(), 2, silent_seconds=SOON)
    cluster = Cluster(2, 1, HERE, int(server.getsockname()[1]))
    follower = _Local(cluster, TOKEN, silent_seconds=SOON)
    try:
        with pytest.raises(MachineError, match="token"):
            follower.join(description(hostname="n1"), SOON, lambda: False)
    finally:
        follower.close()
        impostor.close(0)


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\nHost: n0\r\n\r\n",
        b"\x00" * 64,
        b"\xff\xff\xff\xff" + b"x" * 100_000,
        b"\x00\x00\x00\x02[]",
        b"\x00\x00\x00\x03\xff\xfe\xfd",
        b"\x00\x00\x00\x0f" + b'{"nonce": "zz"}',
        b"\x00\x00\x10\x00" + b"[" * 4096,
    ],
)
def test_garbage_is_refused_and_named(two: Nodes, sent: bytes) -> None:
    with socket.create_connection((HERE, two.port), SOON) as stranger:
        stranger.sendall(sent)
        stranger.settimeout(SOON)
        with contextlib.suppress(ConnectionResetError):  # closed with bytes unread
            assert stranger.recv(10) == b""
    assert wait_until(lambda: bool(two.leader._membership._notes), timeout_seconds=SOON)
    assert two.leader.take_notes() == [
        "a connection from 127.0.0.1 was refused: it sent no torchscale handshake"
    ]
    two.join(1)
    two.meet()
    assert two.leader.available == 2


def started(nodes: Nodes, directory: Path) -> tuple[Any, Start]:
    """A launch on node 1, and the order that it got."""
    follower = nodes.join(1)
    nodes.meet()
    remote = nodes.leader.start(
        nodes.leader.layout(2, 1),
        lambda node: {"rank-1.json": directory / "rank-1.json"},
        cell_id="cell",
        launch=0,
        master_port=1,
        counts_flops=False,
    )
    order = follower.orders.get(timeout=SOON)
    assert isinstance(order, Start)
    return remote, order


def test_files_of_a_launch_arrive(two: Nodes, tmp_path: Path) -> None:
    remote, order = started(two, tmp_path)
    there = tmp_path / "there"
    there.mkdir()
    content = bytes(range(256)) * 5000  # more than a frame
    (there / "rank-1.json").write_bytes(content)
    two.followers[0].report(Ended(order=order.order, exit_code=0), [there / "rank-1.json"])
    assert wait_until(lambda: remote.is_collected, timeout_seconds=SOON)
    assert (tmp_path / "rank-1.json").read_bytes() == content
    assert not remote.failed
    two.leader.forget(remote, "late")
    assert two.leader.available == 2


def test_a_node_is_asked_where_its_ranks_are_and_answers(two: Nodes, tmp_path: Path) -> None:
    remote, order = started(two, tmp_path)
    follower = two.followers[0]
    assert not follower.should_inspect(order.order)
    two.leader.inspect(remote)
    assert wait_until(lambda: follower.should_inspect(order.order), timeout_seconds=SOON)
    assert not follower.should_inspect(order.order + 1)
    assert not remote.is_inspected
    follower.report_inspected(order.order)
    assert wait_until(lambda: remote.is_inspected, timeout_seconds=SOON)
    assert not remote.has_ended


@pytest.mark.parametrize("name", ["../../etc/passwd", "rank-0.json", "record.json", "/tmp/x"])
def test_a_file_that_is_not_its_own_loses_the_node(two: Nodes, tmp_path: Path, name: str) -> None:
    remote, order = started(two, tmp_path)
    _send(two.followers[0], FileFollows(order=order.order, name=name, size=1))
    assert wait_until(lambda: bool(remote.lost), timeout_seconds=SOON)
    assert "which was not expected" in remote.lost
    assert list(tmp_path.iterdir()) == []


def test_a_gigabyte_loses_the_node(two: Nodes, tmp_path: Path) -> None:
    remote, order = started(two, tmp_path)
    _send(two.followers[0], FileFollows(order=order.order, name="rank-1.json", size=1 << 30))
    assert wait_until(lambda: bool(remote.lost), timeout_seconds=SOON)
    assert "1,073,741,824 bytes, which was not expected" in remote.lost
    assert list(tmp_path.iterdir()) == []


def test_a_node_that_sends_less_of_a_file_than_it_announced_is_lost(
    two: Nodes, tmp_path: Path
) -> None:
    remote, order = started(two, tmp_path)
    _send(two.followers[0], FileFollows(order=order.order, name="rank-1.json", size=500))
    _send(two.followers[0], Collected(order=order.order))
    assert wait_until(lambda: bool(remote.lost), timeout_seconds=SOON)
    assert "it announced 500 more bytes of rank-1.json than it sent" in remote.lost
    two.leader.forget(remote, "late")
    assert list(tmp_path.iterdir()) == []


def test_a_message_that_is_none_loses_the_node(two: Nodes, tmp_path: Path) -> None:
    remote, _ = started(two, tmp_path)
    _send(two.followers[0], Farewell(exit_code=0))  # which only the first node sends
    assert wait_until(lambda: bool(remote.lost), timeout_seconds=SOON)
    assert "does not understand" in remote.lost


def _send(follower: Follower, message: Any) -> None:
    assert follower._channel is not None
    follower._network.call(follower._channel.send(message), SOON)


def test_a_node_notices_that_the_first_one_is_gone(two: Nodes) -> None:
    follower = two.join(1)
    two.meet()
    two.leader._loop.call(_abort_all(two.leader), SOON)
    last = follower.orders.get(timeout=SOON)
    assert isinstance(last, Farewell)
    assert last.exit_code == 3
    assert "was lost" in last.reason


async def _abort_all(leader: Leader) -> None:
    for member in leader._membership._members.values():
        member.channel.abort()


def test_a_node_that_cannot_take_part_says_why(two: Nodes) -> None:
    follower = _Local(Cluster(2, 1, HERE, two.port), TOKEN, silent_seconds=SOON)
    two.followers.append(follower)
    none: NodeDescription | None = None
    follower.join(
        none, SOON, lambda: False, "launch.devices_per_node: 8 exceeds the 4 that this node has"
    )
    with pytest.raises(MachineError, match="exceeds the 4 that this node has"):
        two.meet()
