"""Nodes that are not what they should be: one clear line says which node it is and what to do, the
honest nodes are unharmed, every wait is bounded, and no port is left."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel

from tests.features.cluster.nodes.test_leader import (
    HERE,
    SOON,
    TOKEN,
    Nodes,
    _Local,
    _send,
    started,
    three,
    two,
)
from tests.features.cluster.nodes.test_preflight import description
from torchscale.errors import MachineError
from torchscale.features.cluster.cluster import Cluster
from torchscale.features.cluster.nodes.leader import Leader
from torchscale.features.cluster.nodes.messages import (
    ClockReading,
    Collected,
    Ended,
    Farewell,
    FileFollows,
    Inspected,
    Reached,
)
from torchscale.features.cluster.nodes.network import listen
from torchscale.util.processes.subprocesses import wait_until
from torchscale.version import __version__

__all__ = ["three", "two"]
LONGEST = 3000
"""Characters of a line that somebody reads."""


def introduced(nodes: Nodes, monkeypatch: pytest.MonkeyPatch, content: object) -> str:
    """What node 0 says of a node with the token that says this of itself."""
    raw = content if isinstance(content, str) else json.dumps(content)
    monkeypatch.setattr(json, "dumps", _dumps(raw))
    follower = _Local(Cluster(2, 1, HERE, nodes.port), TOKEN, silent_seconds=SOON)
    nodes.followers.append(follower)
    with contextlib.suppress(MachineError):
        follower.join(description(hostname="n1"), 0.5, lambda: False)
    assert wait_until(lambda: bool(nodes.leader._membership._notes), timeout_seconds=SOON)
    return nodes.leader.take_notes()[0]


def _dumps(raw: str) -> Callable[[Any], str]:
    def dumps(value: Any) -> str:
        if isinstance(value, dict) and "node_rank" in value:
            return raw
        return json.JSONEncoder().encode(value)

    return dumps


WHO = {"node_rank": 1, "nodes": 2, "hostname": "n1", "version": __version__}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"node_rank": 0}, "node 0 (n1): --node-rank: 0, expected 1 to 1"),
        ({"node_rank": 2}, "node 2 (n1): --node-rank: 2, expected 1 to 1"),
        ({"node_rank": -1}, "node -1 (n1): --node-rank: -1, expected 1 to 1"),
        ({"nodes": 0}, "node 1 (n1): --nnodes: 0, 2 on n0"),
        ({"nodes": 1024}, "node 1 (n1): --nnodes: 1024, 2 on n0"),
        ({"version": "9" * 90}, f"torchscale: {'9' * 90}, {__version__} on n0"),
        ({"version": None}, f"torchscale: None, {__version__} on n0"),
        ({"node_rank": True}, "it did not say which node it is"),
        ({"node_rank": 1.0}, "it did not say which node it is"),
        ({"node_rank": "1"}, "it did not say which node it is"),
        ({"node_rank": None}, "it did not say which node it is"),
        ({"node_rank": 10**900}, "it did not say which node it is"),
        ({"node_rank": -(10**900)}, "it did not say which node it is"),
        ({"nodes": 10**900}, "it did not say which node it is"),
        ({"nodes": True}, "it did not say which node it is"),
        ({"nodes": float("nan")}, "it did not say which node it is"),
        ({"hostname": "n1\x1b[2J\nnode 2 joined", "nodes": 3}, "--nnodes: 3, 2 on n0"),
        ({"hostname": ["n1"] * 300, "nodes": 3}, "--nnodes: 3, 2 on n0"),
    ],
)
def test_who_says_it_is_somebody_else_is_refused_in_a_line(
    two: Nodes, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], expected: str
) -> None:
    note = introduced(two, monkeypatch, {**WHO, **changes})
    assert expected in note
    assert len(note.splitlines()) == 1
    assert note.isprintable()
    assert len(note) < LONGEST
    monkeypatch.undo()
    two.join(1)
    assert wait_until(lambda: 1 in two.leader._membership._members, timeout_seconds=SOON)
    two.meet()
    assert two.leader.available == 2


@pytest.mark.parametrize("raw", ["", "[]", "null", "{", "1" * 5000 + "x", '{"node_rank": 1}'])
def test_who_says_nothing_of_itself_is_refused(
    two: Nodes, monkeypatch: pytest.MonkeyPatch, raw: str
) -> None:
    assert " was refused: " in introduced(two, monkeypatch, raw[:4000])
    monkeypatch.undo()
    two.join(1)
    two.meet()
    assert two.leader.available == 2


@pytest.mark.parametrize("before", [True, False])
def test_the_second_node_of_a_rank_is_told_who_has_it(three: Nodes, before: bool) -> None:
    three.join(1)
    # Else the second one may be admitted first.
    assert wait_until(lambda: len(three.leader._membership.present()) == 1, timeout_seconds=SOON)
    if not before:
        three.join(2)
        three.meet()
    twin = three.join(1)
    last = twin.orders.get(timeout=SOON)
    assert isinstance(last, Farewell)
    assert last.exit_code == 3
    assert last.reason == (
        f"--node-rank 1 is taken by n1 ({HERE}); give every node a rank of its own"
    )
    if before:
        three.join(2)
        three.meet()
    assert three.leader.available == 3
    assert [note for note in three.leader.take_notes() if "refused" in note] == [
        f"{HERE} was refused: node 1 is here already, n1 ({HERE})"
    ]


def test_two_nodes_of_one_rank_at_the_same_moment(two: Nodes) -> None:
    """One of them takes part, whichever."""
    joining = [threading.Thread(target=two.join, args=(1,)) for _ in range(4)]
    for thread in joining:
        thread.start()
    for thread in joining:
        thread.join(SOON)
    two.meet()
    assert two.leader.available == 2
    assert wait_until(lambda: len(two.leader._membership._notes) >= 3, timeout_seconds=SOON)

    def told() -> int:
        return sum(not follower.orders.empty() for follower in two.followers)

    assert wait_until(lambda: told() == 3, timeout_seconds=SOON)


@pytest.mark.parametrize("keys", [30, 5000])
def test_a_node_of_another_config_is_told_the_first_differences(two: Nodes, keys: int) -> None:
    """A config of another experiment differs in all keys: half a megabyte in one line."""
    config = {f"section.{'k' * 20}{place}": "x" * 100 for place in range(keys)}
    follower = two.join(1, config=config)
    with pytest.raises(MachineError, match="nothing was started") as raised:
        two.meet()
    assert len(raised.value.message) < LONGEST
    assert f"and {keys + 2 - 8} more" in raised.value.message
    last = follower.orders.get(timeout=SOON)
    assert isinstance(last, Farewell)
    assert "and " in last.reason


def test_a_key_without_end_is_cut(two: Nodes) -> None:
    two.join(1, config={"k" * 500_000: "1"})
    with pytest.raises(MachineError) as raised:
        two.meet()
    assert len(raised.value.message) < LONGEST


@pytest.mark.parametrize("moment", [1e308, -1e308, 0.0, -1.0, 1e30, 4.0e9])
def test_a_clock_of_another_age_is_named_in_a_line(
    two: Nodes, monkeypatch: pytest.MonkeyPatch, moment: float
) -> None:
    monkeypatch.setattr("torchscale.features.cluster.nodes.follower.time", _Stopped(moment))
    two.join(1)
    with pytest.raises(MachineError, match="its clock is ") as raised:
        two.meet()
    assert len(raised.value.message) < 300


class _Stopped:
    """:mod:`time` of a node whose clock shows this."""

    def __init__(self, moment: float) -> None:
        self.moment = moment

    def time(self) -> float:
        return self.moment

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


@pytest.mark.parametrize(
    "message",
    [
        '{"type": "ended", "order": 1, "exit_code": 0, "oom_kills": 2147483648}',
        '{"type": "ended", "order": 1, "exit_code": 0, "oom_kills": -1}',
        f'{{"type": "ended", "order": 1, "exit_code": {10**400}}}',
        '{"type": "ended", "order": 1, "exit_code": true}',
        '{"type": "ended", "order": 1, "exit_code": 1e400}',
        '{"type": "ended", "order": 1, "exit_code": 0, "survivors": '
        + json.dumps(["x"] * 101)
        + "}",
        '{"type": "ended", "order": 1, "exit_code": 0, "problem": "' + "x" * 2001 + '"}',
        f'{{"type": "file", "order": 1, "name": "rank-1.json", "size": {2**63}}}',
        '{"type": "file", "order": 1, "name": "rank-1.json", "size": -1}',
        '{"type": "file", "order": 1, "name": "rank-1.json", "size": true}',
        '{"type": "file", "order": 1, "name": "' + "x" * 256 + '", "size": 1}',
        f'{{"type": "inspected", "order": {2**31}}}',
        '{"type": "inspected", "order": -1}',
        '{"type": "inspected", "order": NaN}',
        '{"type": "reached", "failed": {"1024": "x"}}',
        '{"type": "reached", "failed": {"-1": "x"}}',
        '{"type": "clock", "time": Infinity}',
        '{"type": "join", "port": 65536}',
        '{"type": "nothing"}',
        "[" * 1000,
        "",
    ],
)
def test_a_message_with_such_a_count_loses_its_node_alone(
    two: Nodes, tmp_path: Any, message: str
) -> None:
    remote, _ = started(two, tmp_path)
    _send(two.followers[0], _Raw(message))
    assert wait_until(lambda: bool(remote.lost), timeout_seconds=SOON)
    assert remote.lost == ("node 1 (n1): it sent a message that this version does not understand")
    assert list(tmp_path.iterdir()) == []
    two.leader.forget(remote, "late")
    two.join(1)  # the same node, started again
    assert wait_until(lambda: _admits(two, 2), timeout_seconds=SOON)


class _Raw(BaseModel):
    """A message of any content."""

    text: str

    def __init__(self, text: str) -> None:
        super().__init__(text=text)

    def model_dump_json(self, **_: Any) -> str:
        return self.text


def _admits(nodes: Nodes, count: int) -> bool:
    nodes.leader.admit_late()
    return nodes.leader.available == count


@pytest.mark.parametrize(
    "messages",
    [
        [Ended(order=9, exit_code=1), Collected(order=9), Inspected(order=2**31 - 1)],
        [FileFollows(order=7, name="rank-1.json", size=2**62)],
        [Reached(failed={5: "x", 1023: "y"}), ClockReading(time=-5.0)],
        [Ended(order=1, exit_code=0)] * 50,
        [Collected(order=1)] * 3,
    ],
)
def test_what_says_nothing_of_the_launch_changes_nothing(
    two: Nodes, tmp_path: Any, messages: list[BaseModel]
) -> None:
    remote, order = started(two, tmp_path)
    for message in messages:
        _send(two.followers[0], message)
    two.followers[0].report(Ended(order=order.order, exit_code=0), [])
    assert wait_until(lambda: remote.has_ended and remote.is_collected, timeout_seconds=SOON)
    assert not remote.failed
    assert list(tmp_path.iterdir()) == []


def test_a_node_that_comes_after_the_end_is_told_in_bounded_time() -> None:
    two = Nodes(2)
    two.leader.close(0)
    begun = time.monotonic()
    with pytest.raises(MachineError, match="cannot be reached: ") as raised:
        _join_for(two, 1.0)
    assert time.monotonic() - begun < SOON
    assert f"node 0 at {HERE}:{two.port}" in raised.value.message
    assert "--node-rank 0" in (raised.value.hint or "")
    two.followers[0].close()


def _join_for(nodes: Nodes, seconds: float) -> None:
    follower = _Local(Cluster(2, 1, HERE, nodes.port), TOKEN, silent_seconds=SOON)
    nodes.followers.append(follower)
    follower.join(description(hostname="n1"), seconds, lambda: False)


def test_a_first_node_that_is_started_again_takes_its_port_and_its_nodes(two: Nodes) -> None:
    first = two.join(1)
    two.meet()
    two.leader.close(130, "interrupted on node 0")
    last = first.orders.get(timeout=SOON)
    assert isinstance(last, Farewell)
    assert (last.exit_code, last.reason) == (130, "interrupted on node 0")
    two.leader = Leader(listen(HERE, two.port), TOKEN, description(), 2, silent_seconds=SOON)
    two.join(1)
    two.meet()
    assert two.leader.available == 2


def test_a_first_node_that_comes_after_the_others_is_waited_for() -> None:
    with socket.create_server((HERE, 0)) as server:
        port = int(server.getsockname()[1])
    nodes = Nodes(2)
    nodes.port = port
    waiting = threading.Thread(target=_join_for, args=(nodes, SOON))
    waiting.start()
    _start_first(nodes, waiting)


def _start_first(nodes: Nodes, waiting: threading.Thread) -> None:
    """Start the first node on the port at which the second one waits for it: they meet."""
    nodes.leader.close(0)
    nodes.leader = Leader(listen(HERE, nodes.port), TOKEN, description(), 2, silent_seconds=SOON)
    try:
        nodes.meet()
        assert nodes.leader.available == 2
        waiting.join(SOON)
    finally:
        nodes.close()


def test_a_first_node_that_dies_in_the_handshake_is_tried_again() -> None:
    """It is started again meanwhile, on the same port."""
    server = socket.create_server((HERE, 0))
    port = int(server.getsockname()[1])
    nodes = Nodes(2)
    nodes.port = port
    waiting = threading.Thread(target=_join_for, args=(nodes, SOON))
    waiting.start()
    connection, _ = server.accept()
    connection.recv(10)
    connection.close()
    server.close()
    _start_first(nodes, waiting)


def test_no_port_and_no_thread_is_left() -> None:
    two = Nodes(2)
    before = {thread.name for thread in threading.enumerate()}
    assert "nodes" in before
    two.join(1)
    two.meet()
    port = two.leader._pairs.pair_port
    two.close()
    assert wait_until(
        lambda: not any(thread.name == "nodes" for thread in threading.enumerate()),
        timeout_seconds=SOON,
    )
    for number in (port, two.port):
        listen(HERE, number).close()
