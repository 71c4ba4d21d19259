"""How agents of an engine come to take part, and how they are lost: both sides of the line in one
process."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.factories import machine
from tests.features.cluster.engines.local_engine import SOON, Agent, LineEngine, Start
from tests.features.cluster.nodes.test_preflight import description
from torchscale.errors import MachineError
from torchscale.features.cluster.engines.agent_follower import MARK
from torchscale.features.cluster.engines.fleet import EngineFleet
from torchscale.features.cluster.nodes.agent_messages import MachineFound
from torchscale.features.cluster.nodes.channel import DATA_BYTES
from torchscale.features.cluster.nodes.messages import Farewell
from torchscale.features.cluster.nodes.remote_launch import PROGRESS
from torchscale.launch.control import StopRequest
from torchscale.schema.launch.nodes import LaunchNode
from torchscale.schema.launch.progress import Progress
from torchscale.util.processes.subprocesses import wait_until

CONTENT = b"x" * (2 * DATA_BYTES + 7)
"""A setup of more than one data frame."""


class Fleets:
    """Makes fleets, and ends them."""

    def __init__(self) -> None:
        self._made: list[tuple[LineEngine, EngineFleet]] = []

    def __call__(self, *starts: Start, **engine: Any) -> tuple[LineEngine, EngineFleet]:
        """A fleet of nodes that do this."""
        version = engine.pop("version", None)
        made = LineEngine(*starts, **engine)
        fleet = EngineFleet(made, "sweep", **({} if version is None else {"version": version}))
        self._made.append((made, fleet))
        return made, fleet

    def joined(
        self, *starts: Start, silent_seconds: float = 20.0, **engine: Any
    ) -> tuple[LineEngine, EngineFleet]:
        """One whose nodes have met."""
        made, fleet = self(*starts, **engine)
        begin(fleet, silent_seconds)
        fleet.meet(SOON, StopRequest())
        return made, fleet

    def end(self) -> None:
        for engine, fleet in self._made:
            if not engine.is_closed:
                fleet.close(0)
            engine.end()


@pytest.fixture
def fleets() -> Iterator[Fleets]:
    """Makes fleets, and ends them."""
    made = Fleets()
    yield made
    made.end()


def begin(fleet: EngineFleet, silent_seconds: float = 20.0) -> None:
    """Let the nodes take part."""
    fleet.begin(description(hostname="first"), CONTENT, silent_seconds)


def node(hostname: str = "", **changes: Any) -> Start:
    """A node whose agent takes part."""
    banner, problem = changes.pop("banner", b""), changes.pop("problem", "")
    found = changes.pop("machine", None)

    def start(rank: int, line: socket.socket) -> Agent:
        described = description(hostname=hostname or f"n{rank}", **changes)
        return Agent(line, banner=banner, described=described, problem=problem, machine=found)

    return start


def says(data: bytes) -> Start:
    """A node that prints this, and ends."""

    def start(_: int, line: socket.socket) -> None:
        threading.Thread(target=_say, args=(line, data), daemon=True).start()

    return start


def _say(line: socket.socket, data: bytes) -> None:
    try:
        line.sendall(data)
        line.shutdown(socket.SHUT_WR)
    except OSError:
        return


def silent(_: int, line: socket.socket) -> None:
    """A node that says nothing."""
    del line


def first_then(*starts: Start) -> Start:
    """A node that does something else at each start."""
    left = iter(starts)

    def start(rank: int, line: socket.socket) -> object:
        return next(left)(rank, line)

    return start


def soon(condition: Callable[[], bool]) -> None:
    """It is so, at once or in a moment."""
    assert wait_until(condition, timeout_seconds=SOON)


def test_agents_take_part(fleets: Fleets) -> None:
    engine, fleet = fleets.joined(node(), node())
    assert fleet.available == 2
    assert fleet.missing() == ()
    assert fleet.here is None
    for rank in range(2):
        agent = engine.agent(rank)
        assert agent.setup is not None
        assert (agent.setup.node_rank, agent.setup.nodes, agent.setup.role) == (rank, 2, "sweep")
        assert agent.follower.local_address == f"127.0.0.{rank + 1}"
        assert agent.setup.address == f"127.0.0.{rank + 1}"
        assert agent.setup.peers == (f"127.0.0.{2 - rank}",)
        assert agent.setup.silent_seconds == 20
        assert agent.content == CONTENT
    layout = fleet.layout(2, 4)
    assert [(each.hostname, each.address, each.first_rank) for each in layout] == [
        ("n0", "127.0.0.1", 0),
        ("n1", "127.0.0.2", 4),
    ]


def test_a_banner_before_the_first_message_is_skipped(fleets: Fleets) -> None:
    _, fleet = fleets.joined(node(banner=b"Welcome to n0\n" * 1000))
    assert fleet.available == 1


def test_nothing_starts_before_it_is_known_what(fleets: Fleets) -> None:
    engine, fleet = fleets(node())
    with pytest.raises(MachineError, match=r"no node takes part: node 0 did not join"):
        fleet.meet(0.1, StopRequest())
    assert engine.agent(0).setup is None


@pytest.mark.parametrize(
    ("start", "why", "reason"),
    [
        (says(b"y" * (65 << 10)), "", "it is no agent of torchscale"),
        (says(b""), "", "the connection was closed"),
        (says(b"no such program\n"), "host{rank}: no such file", "host1: no such file"),
        (says(MARK), "Killed", "Killed"),
        (says(MARK + bytes(64)), "", "it sent a frame with a wrong MAC"),
    ],
)
def test_what_is_no_agent_is_named(fleets: Fleets, start: Start, why: str, reason: str) -> None:
    _, fleet = fleets.joined(node(), start, why=why)
    assert fleet.available == 1
    assert fleet.missing() == (f"node 1 (host1): {reason}",)
    assert fleet.take_notes() == [f"refused: node 1 (host1): {reason}"]


def test_an_agent_that_says_nothing_is_waited_for_in_bounds(fleets: Fleets) -> None:
    _, fleet = fleets(node(), silent)
    begin(fleet)
    begun = time.monotonic()
    soon(lambda: 0 not in fleet._membership.absent())
    fleet.meet(0.2, StopRequest())
    assert time.monotonic() - begun < SOON
    assert fleet.missing() == ("node 1 did not join",)


def test_no_agent_at_all_is_an_error(fleets: Fleets) -> None:
    with pytest.raises(MachineError, match=r"no node takes part: node 0 \(host0\): gone; node 1"):
        fleets.joined(says(b""), says(b""), why="gone")


def test_an_agent_that_cannot_be_started_is_named(fleets: Fleets) -> None:
    def fails(_: int, line: socket.socket) -> None:
        raise MachineError("srun cannot be started: no such file")

    _, fleet = fleets.joined(node(), fails)
    assert fleet.missing() == ("node 1 (host1): srun cannot be started: no such file",)


def test_another_version_is_named_and_nothing_starts(fleets: Fleets) -> None:
    engine, fleet = fleets(node(), version="0.0.1")
    begin(fleet)
    with pytest.raises(MachineError, match="nothing was started") as raised:
        fleet.meet(SOON, StopRequest())
    assert "0.0.1 on first" in raised.value.message
    soon(lambda: engine.agent(0).told is not None)
    told = engine.agent(0).told
    assert told is not None
    assert "torchscale: " in told.reason
    assert engine.agent(0).setup is None


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"threads_per_rank": 1}, "threads per rank: 1, 8 on first"),
        (
            {"config": {"benchmark.max_steps": "9", "launch.env": "{}"}},
            "benchmark.max_steps: 9, 400 on first",
        ),
        ({"problem": "no GPU here"}, ": no GPU here"),
    ],
)
def test_a_node_that_differs_is_named_and_nothing_starts(
    fleets: Fleets, changes: dict[str, Any], expected: str
) -> None:
    with pytest.raises(MachineError, match="nothing was started") as raised:
        fleets.joined(node(), node(**changes))
    assert expected in raised.value.message
    assert "node 1 (" in raised.value.message


def test_the_first_node_says_what_it_has(fleets: Fleets) -> None:
    _, fleet = fleets(node(machine=machine(4)), node())
    found = fleet.machine()
    assert len(found.environment.devices) == 4
    assert found.environment.command[0] == "torchscale"
    assert found.environment.command != machine(4).environment.command


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (node(problem="no torch here"), r"node 0 \(host0\): no torch here"),
        (says(b""), r"node 0 \(host0\): killed"),
    ],
)
def test_a_first_node_that_cannot_be_examined_is_named(
    fleets: Fleets, start: Start, expected: str
) -> None:
    _, fleet = fleets(start, why="killed")
    with pytest.raises(MachineError, match=expected):
        fleet.machine()


def test_a_first_node_of_another_version_is_asked_nothing(fleets: Fleets) -> None:
    _, fleet = fleets(node(), version="0.0.1")
    with pytest.raises(MachineError, match=r"has torchscale .*, this machine 0\.0\.1"):
        fleet.machine()


def test_a_first_node_that_does_not_answer_is_named_within_the_bound(
    fleets: Fleets, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torchscale.features.cluster.engines.fleet._MACHINE_SECONDS", 0.1)
    _, fleet = fleets(silent, why="its log")
    with pytest.raises(MachineError, match=r"did not answer within 0\.1 s") as raised:
        fleet.machine()
    assert raised.value.hint == "its log"


def test_the_first_node_chooses_the_port(fleets: Fleets) -> None:
    _, fleet = fleets.joined(node(), node())
    port = fleet.free_port(fleet.layout(2, 1))
    assert 1 <= port <= 65535


def test_no_free_port_is_an_error(fleets: Fleets, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(_: str) -> int:
        raise MachineError("all are taken")

    monkeypatch.setattr("torchscale.features.cluster.engines.agent_follower.free_port", none)
    _, fleet = fleets.joined(node())
    with pytest.raises(MachineError, match=r"no free port on node 0 \(n0\): all are taken"):
        fleet.free_port(fleet.layout(1, 1))


def test_a_lost_node_is_named_with_what_the_engine_says(fleets: Fleets) -> None:
    engine, fleet = fleets.joined(node(), node(), why="host{rank} is down")
    engine.agent(1).kill()
    soon(lambda: fleet.available == 1)
    assert fleet.missing() == ("node 1 (n1) was lost: host1 is down",)
    assert fleet.take_notes() == ["node 1 (n1) was lost: host1 is down"]


def test_what_an_engine_says_is_a_short_line_without_secrets(
    fleets: Fleets, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DB_TOKEN", "hunter2-of-these-tests")
    why = "\x1b[31mno hunter2-of-these-tests here " + "x" * 9999
    _, fleet = fleets.joined(node(), says(b""), why=why)
    (said,) = fleet.missing()
    assert said.startswith(r"node 1 (host1): \x1b[31mno <redacted> here xxx")
    assert len(said) < 600


def test_a_node_that_leaves_is_lost_with_its_reason(fleets: Fleets) -> None:
    engine, fleet = fleets.joined(node(), node(), why="not asked")
    engine.agent(1).close("it was interrupted")
    soon(lambda: fleet.available == 1)
    assert fleet.missing() == ("node 1 (n1) was lost: it was interrupted",)


def test_a_lost_node_comes_back_three_times_at_most(fleets: Fleets) -> None:
    engine, fleet = fleets.joined(node(), node(), why="killed")
    for start in (2, 3):
        engine.agent(1).kill()
        soon(lambda: 1 in fleet._agents.problems)
        fleet.admit_late()
        assert fleet.available == 2
        assert engine.opened == [0, *[1] * start]
        assert fleet.take_notes() == ["node 1 (n1) was lost: killed", "node 1 (n1) joined"]
    engine.agent(1).kill()
    soon(lambda: 1 in fleet._agents.problems)
    fleet.admit_late()
    assert fleet.available == 1
    assert engine.opened.count(1) == 3


def test_an_agent_that_does_not_come_back_is_waited_for_in_bounds(
    fleets: Fleets, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torchscale.features.cluster.engines.fleet._RETURN_SECONDS", 0.1)
    engine, fleet = fleets.joined(node(), first_then(node(), silent), why="killed")
    engine.agent(1).kill()
    soon(lambda: 1 in fleet._agents.problems)
    begun = time.monotonic()
    fleet.admit_late()
    assert time.monotonic() - begun < SOON
    assert fleet.available == 1


def test_an_agent_that_cannot_start_again_is_not_waited_for(fleets: Fleets) -> None:
    def fails(_: int, line: socket.socket) -> None:
        raise MachineError("the node is gone")

    engine, fleet = fleets.joined(node(), first_then(node(), fails, fails), why="killed")
    engine.agent(1).kill()
    soon(lambda: 1 in fleet._agents.problems)
    begun = time.monotonic()
    fleet.admit_late()
    assert time.monotonic() - begun < SOON / 2
    assert fleet._agents.problems[1] == "the node is gone"


def test_what_is_no_agent_may_be_one_at_its_second_start(fleets: Fleets) -> None:
    engine, fleet = fleets.joined(node(), first_then(says(b"y" * (65 << 10)), node()))
    engine.running.pop(1, None)
    fleet.admit_late()
    assert fleet.available == 2
    assert fleet.missing() == ()


def test_the_others_go_on_without_the_first_node(fleets: Fleets) -> None:
    engine, fleet = fleets.joined(node(), node(), node(), why="killed")
    for rank, offset in enumerate((0.5, 2.0, 5.0)):
        fleet._membership.member(rank).clock_offset_seconds = offset
    whole = fleet.layout(3, 1)
    assert [each.clock_offset_seconds for each in whole] == [None, 1.5, 4.5]
    engine.agent(0).kill()
    soon(lambda: fleet.available == 2)
    rest = fleet.layout(2, 4)
    assert [(each.node_rank, each.first_rank) for each in rest] == [(1, 0), (2, 4)]
    assert [each.clock_offset_seconds for each in rest] == [None, 3.0]
    assert 1 <= fleet.free_port(rest) <= 65535


def _launch(fleet: EngineFleet, directory: Path) -> int:
    def names(each: LaunchNode) -> dict[str, Path]:
        return {PROGRESS: directory / PROGRESS} if each.node_rank == 0 else {}

    remote = fleet.start(
        fleet.layout(2, 1), names, cell_id="c", launch=0, master_port=1, counts_flops=False
    )
    return remote.order


def test_progress_of_rank_0_reaches_the_file_that_is_read(fleets: Fleets, tmp_path: Path) -> None:
    engine, fleet = fleets.joined(node(), node())
    order = _launch(fleet, tmp_path)
    progress = Progress(phase="measuring", steps=3)
    engine.agent(0).follower.report_progress(order + 1, progress)  # of a launch that is over
    engine.agent(0).follower.report_progress(order, progress)
    engine.agent(0).follower.report_progress(order, progress)
    path = tmp_path / PROGRESS
    soon(lambda: path.exists() and len(path.read_text().splitlines()) == 2)
    assert [json.loads(line)["steps"] for line in path.read_text().splitlines()] == [3, 3]


def test_progress_of_another_node_loses_it(fleets: Fleets, tmp_path: Path) -> None:
    engine, fleet = fleets.joined(node(), node())
    order = _launch(fleet, tmp_path)
    engine.agent(1).follower.report_progress(order, Progress(phase="measuring", steps=3))
    soon(lambda: fleet.available == 1)
    assert fleet.missing() == ("node 1 (n1) was lost: it sent progress, which was not expected",)
    assert not (tmp_path / PROGRESS).exists()


def test_progress_without_end_loses_the_node(
    fleets: Fleets, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torchscale.features.cluster.nodes.remote_launch.MAX_LAUNCH_BYTES", 500)
    engine, fleet = fleets.joined(node(), node())
    order = _launch(fleet, tmp_path)
    for _ in range(20):
        engine.agent(0).follower.report_progress(order, Progress(phase="measuring", steps=3))
    soon(lambda: fleet.available == 1)
    assert fleet.missing() == ("node 0 (n0) was lost: it sent more progress than is taken",)
    assert (tmp_path / PROGRESS).stat().st_size <= 500


def test_a_silent_agent_is_lost_within_the_bound(fleets: Fleets) -> None:
    engine, fleet = fleets.joined(node(), silent_seconds=1.0, why="not asked")
    silenced = threading.Event()
    loop = engine.agent(0).follower._network.loop
    loop.call_soon_threadsafe(silenced.wait, SOON)  # its network stands still
    soon(lambda: fleet.available == 0)
    silenced.set()
    assert fleet.missing() == ("node 0 (n0) was lost: silent for 1 s",)


def test_a_silent_leader_is_gone_for_an_agent_within_the_bound(fleets: Fleets) -> None:
    engine, fleet = fleets.joined(node(), silent_seconds=1.0)
    silenced = threading.Event()
    fleet._loop.loop.call_soon_threadsafe(silenced.wait, SOON)
    last = engine.agent(0).follower.orders.get(timeout=SOON)
    silenced.set()
    assert isinstance(last, Farewell)
    assert last.reason == ("the connection to the process that leads was lost: silent for 1 s")


def test_a_leader_that_is_silent_from_the_start_is_gone(
    fleets: Fleets, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = "torchscale.features.cluster.engines.agent_follower"
    monkeypatch.setattr(f"{module}._SILENT_SECONDS", 0.1)
    engine, fleet = fleets(node())
    fleet._loop.loop.call_soon_threadsafe(time.sleep, 1.0)
    soon(lambda: engine.agent(0).told is not None)
    told = engine.agent(0).told
    assert told is not None
    assert told.reason == "the process that leads is gone: silent for 0.1 s"


def test_agents_are_told_the_end(fleets: Fleets) -> None:
    engine, fleet = fleets.joined(node(), node())
    fleet.close(1, "cells failed")
    assert engine.is_closed
    for rank in range(2):
        last = engine.agent(rank).follower.orders.get(timeout=SOON)
        assert last == Farewell(exit_code=1, reason="cells failed")


def test_the_engine_ends_also_where_an_agent_hangs(
    fleets: Fleets, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torchscale.features.cluster.nodes.member_network.CLOSE_SECONDS", 0.1)
    monkeypatch.setattr("torchscale.features.cluster.nodes.fleet.CLOSE_SECONDS", 0.2)
    engine, fleet = fleets.joined(node(), node())
    hanging = threading.Event()
    loop = engine.agent(1).follower._network.loop
    loop.call_soon_threadsafe(hanging.wait, SOON)
    begun = time.monotonic()
    fleet.close(0)
    hanging.set()
    assert time.monotonic() - begun < SOON / 2
    assert engine.is_closed


def test_a_warning_names_a_node_that_is_nice(
    fleets: Fleets, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torchscale.features.cluster.engines.agent_follower.os.nice", lambda _: 15)
    _, fleet = fleets.joined(node())
    (text,) = fleet.take_notes()
    assert "measures at niceness 15" in text


def test_a_node_that_is_lost_when_asked_for_a_port_is_no_error(fleets: Fleets) -> None:
    engine, fleet = fleets.joined(node(), node(), why="killed")
    layout = fleet.layout(2, 1)
    engine.agent(0).kill()
    soon(lambda: fleet.available == 1)
    assert 1 <= fleet.free_port(layout) <= 65535  # the launch says that it is lost
    remote = fleet.start(
        layout, lambda _: {}, cell_id="c", launch=0, master_port=1, counts_flops=False
    )
    assert remote.lost == "node 0 (n0): killed"


def test_a_node_that_does_not_name_a_port_in_time_is_lost(
    fleets: Fleets, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torchscale.features.cluster.engines.fleet._PORT_SECONDS", 0.2)
    engine, fleet = fleets.joined(node(), node())
    hanging = threading.Event()
    engine.agent(0).follower._network.loop.call_soon_threadsafe(hanging.wait, SOON)
    assert 1 <= fleet.free_port(fleet.layout(2, 1)) <= 65535
    hanging.set()
    assert fleet.missing() == ("node 0 (n0) was lost: it did not name a free port within 0.2 s",)


def test_a_node_that_cannot_be_asked_for_a_port_in_time_is_lost(
    fleets: Fleets, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = "torchscale.features.cluster.engines.fleet"
    monkeypatch.setattr(f"{module}.CLOSE_SECONDS", 0.05)
    monkeypatch.setattr(f"{module}._PORT_SECONDS", 0.1)
    _, fleet = fleets.joined(node(), node())
    layout = fleet.layout(2, 1)
    hanging = threading.Event()
    fleet._loop.loop.call_soon_threadsafe(hanging.wait, SOON)
    assert 1 <= fleet.free_port(layout) <= 65535
    hanging.set()
    assert fleet.available == 1


def test_what_a_first_node_says_that_is_no_machine_is_an_error(
    fleets: Fleets, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Agent, "_found", lambda _: MachineFound(content="{}"))
    _, fleet = fleets(node())
    with pytest.raises(MachineError, match=r"node 0 \(host0\) did not say what it has"):
        fleet.machine()


def test_the_engine_ends_where_starting_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    async def not_yet(*_: object) -> None:
        await asyncio.sleep(SOON)

    monkeypatch.setattr("torchscale.features.cluster.engines.network.EngineNetwork.serve", not_yet)

    def interrupted(_: int, line: socket.socket) -> None:
        raise KeyboardInterrupt

    engine = LineEngine(silent, interrupted)
    with pytest.raises(KeyboardInterrupt):
        EngineFleet(engine, "sweep")
    assert engine.is_closed
    (line,) = engine._lines[:1]
    line.settimeout(SOON)
    assert line.recv(1) == b""  # the agent that runs already is told
    engine.end()


def test_the_engine_ends_where_the_end_is_interrupted(
    fleets: Fleets, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    engine, fleet = fleets.joined(node())
    monkeypatch.setattr("torchscale.features.cluster.nodes.fleet.Fleet.close", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fleet.close(0)
    assert engine.is_closed
    monkeypatch.undo()
    fleet._loop.close()


def test_a_fleet_may_be_closed_twice(fleets: Fleets) -> None:
    engine, fleet = fleets.joined(node())
    fleet.close(0)
    fleet.close(3)
    assert engine.agent(0).follower.orders.get(timeout=SOON) == Farewell(exit_code=0)


def test_what_nobody_expected_loses_an_agent_and_is_named(
    fleets: Fleets, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise ZeroDivisionError("no nodes")

    monkeypatch.setattr("torchscale.features.cluster.engines.network.EngineNetwork._misfit", fails)
    with pytest.raises(MachineError, match="unexpected: ZeroDivisionError: no nodes"):
        fleets.joined(node())
