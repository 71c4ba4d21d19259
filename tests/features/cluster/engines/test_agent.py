"""The program that an engine starts on each node, by itself."""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pydantic import BaseModel, TypeAdapter

from torchscale.features.cluster.engines.agent_follower import LINE_KEY, MARK, address_towards
from torchscale.features.cluster.engines.engine import AGENT
from torchscale.features.cluster.nodes.agent_messages import AgentSetup, Hello
from torchscale.features.cluster.nodes.channel import keyed_mac
from torchscale.features.cluster.nodes.messages import (
    TO_LEADER,
    Alive,
    Farewell,
    Join,
    Leaving,
    Unable,
)
from torchscale.features.validate.fleet.node_part import FleetOptions
from torchscale.version import __version__

SOON = 60.0


class Line:
    """The other end of an agent's standard input and output."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.before = b""
        self._sent = self._received = 0

    def hello(self) -> Hello:
        """What comes first."""
        assert self.process.stdout is not None
        while not self.before.endswith(MARK):
            data = self.process.stdout.read(1)
            assert data
            self.before += data
        found = self.receive()
        assert isinstance(found, Hello)
        return found

    def receive(self) -> object:
        """The next message that is no sign of life."""
        while True:
            size, kind = struct.unpack(">IB", self._read(5))
            mac, payload = self._read(32), self._read(size)
            number = struct.pack(">QB", self._received, kind)
            assert mac == keyed_mac(LINE_KEY, b"node", number, payload)
            self._received += 1
            found = TO_LEADER.validate_json(payload)
            if found.type != "alive":
                return found

    def send(self, message: BaseModel) -> None:
        self._write(0, message.model_dump_json().encode())

    def setup(self, content: bytes, silent_seconds: float = 20.0) -> None:
        """Say what it takes part in."""
        self.send(
            AgentSetup(
                role="check",
                node_rank=0,
                nodes=1,
                address="127.0.0.1",
                silent_seconds=silent_seconds,
                size=len(content),
            )
        )
        for start in range(0, len(content), 100):
            self._write(1, content[start : start + 100])
            self.send(Alive())

    def end(self) -> None:
        """End its standard input."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def finish(self) -> tuple[int, str]:
        """Exit code, and what it said on standard error."""
        assert self.process.stderr is not None
        code = self.process.wait(SOON)
        return code, self.process.stderr.read().decode()

    def _read(self, size: int) -> bytes:
        assert self.process.stdout is not None
        data = self.process.stdout.read(size)
        assert len(data) == size, "it ended"
        return data

    def _write(self, kind: int, payload: bytes) -> None:
        assert self.process.stdin is not None
        mac = keyed_mac(LINE_KEY, b"leader", struct.pack(">QB", self._sent, kind), payload)
        self._sent += 1
        self.process.stdin.write(struct.pack(">IB", len(payload), kind) + mac + payload)
        self.process.stdin.flush()


@contextmanager
def agent(*command: str) -> Iterator[Line]:
    """An agent that has said hello."""
    process = subprocess.Popen(
        command or (sys.executable, "-m", AGENT, "check"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with process:
        try:
            line = Line(process)
            hello = line.hello()
            assert (hello.hostname, hello.version) == (socket.gethostname(), __version__)
            assert hello.niceness == os.nice(0)
            yield line
        finally:
            process.kill()


def options() -> bytes:
    """Options of a check."""
    return TypeAdapter(FleetOptions).dump_json(FleetOptions())


@pytest.mark.slow
def test_an_agent_joins_and_ends_with_the_leaders_code() -> None:
    with agent() as line:
        line.setup(options())
        found = line.receive()
        assert isinstance(found, Join)
        assert found.description.hostname == socket.gethostname()
        assert found.address == "127.0.0.1"
        line.send(Farewell(exit_code=1, reason=""))
        assert line.finish() == (1, "")


@pytest.mark.slow
def test_what_cannot_be_prepared_is_said_on_both_sides() -> None:
    with agent() as line:
        content = json.dumps({"config": {}, "hidden": {}}).encode()
        line.send(
            AgentSetup(
                role="sweep",
                node_rank=0,
                nodes=1,
                address="127.0.0.1",
                silent_seconds=20,
                size=len(content),
            )
        )
        line._write(1, content)
        found = line.receive()
        assert isinstance(found, Unable)
        code, said = line.finish()
        assert code == 3
        assert found.reason.startswith("what it was sent does not fit here: ")
        assert said == f"torchscale: {found.reason}\n"
        assert "Traceback" not in said


@pytest.mark.slow
@pytest.mark.parametrize("has_joined", [False, True])
def test_an_agent_ends_at_once_where_its_input_has(has_joined: bool) -> None:
    with agent() as line:
        if has_joined:
            line.setup(options())
            line.receive()
        line.end()
        begun = time.monotonic()
        code, said = line.finish()
        assert time.monotonic() - begun < 7  # a busy machine; 10 where nobody ends the line
        assert code == 3
        assert said.startswith("torchscale: the ")
        assert "the connection was closed" in said


@pytest.mark.slow
def test_an_agent_ends_at_once_where_something_of_it_was_not_read() -> None:
    """As an actor of Ray leaves it that is killed: a socket is then reset, and has no end."""
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            (sys.executable, "-m", AGENT, "check"),
            stdin=theirs.fileno(),
            stdout=theirs.fileno(),
            stderr=subprocess.PIPE,
        )
    with process:
        try:
            with ours:
                ours.settimeout(SOON)
                assert ours.recv(1) == MARK[:1]
            _, said = process.communicate(timeout=SOON / 2)  # silent for 60 s where it goes on
        finally:
            process.kill()
    assert process.returncode == 3
    assert b"the connection was closed" in said


@pytest.mark.slow
def test_an_agent_that_is_interrupted_says_so() -> None:
    with agent() as line:
        line.setup(options())
        line.receive()
        line.process.send_signal(signal.SIGTERM)
        assert line.receive() == Leaving(reason="it was interrupted")
        assert line.finish()[0] == 130


@pytest.mark.slow
def test_an_agent_that_is_interrupted_before_it_joins_ends() -> None:
    with agent() as line:
        begun = time.monotonic()
        line.process.send_signal(signal.SIGTERM)
        assert line.finish()[0] == 130
        assert time.monotonic() - begun < 7


@pytest.mark.slow
def test_a_leader_that_is_silent_is_gone() -> None:
    with agent() as line:
        line.setup(options(), silent_seconds=0.5)
        line.receive()
        code, said = line.finish()
        assert code == 3
        assert said == (
            "torchscale: the connection to the process that leads was lost: silent for 0.5 s\n"
        )


POLLUTED = """
import os, sys
print("banner", flush=True)
from torchscale.features.cluster.engines import agent
take_part = agent._take_part
def noisy(*arguments):
    print("pollution", flush=True)
    os.system("echo of a child")
    return take_part(*arguments)
agent._take_part = noisy
sys.argv = ["agent", "check"]
sys.exit(agent.main())
"""


@pytest.mark.slow
def test_what_else_is_printed_goes_to_standard_error() -> None:
    with agent(sys.executable, "-c", POLLUTED) as line:
        assert line.before == b"banner\n" + MARK
        line.setup(options())
        assert isinstance(line.receive(), Join)
        line.send(Farewell(exit_code=0))
        code, said = line.finish()
        assert code == 0
        assert {"pollution", "of a child"} <= set(said.splitlines())


def test_an_address_is_towards_another_machine() -> None:
    assert address_towards(()) == ""
    assert address_towards(("127.0.0.1", "no address", "::1")) == ""


@pytest.mark.parametrize(
    ("peers", "ours", "address"),
    [
        (("10.0.0.2",), "10.0.0.1", "10.0.0.1"),
        (("10.0.0.1", "10.0.0.2"), "10.0.0.1", "10.0.0.1"),  # two agents on this machine
        (("10.0.0.1",), "10.0.0.1", ""),
        (("10.0.0.2",), "127.0.0.1", ""),
        (("fd00::2",), "fd00::1", "fd00::1"),
    ],
)
def test_the_address_is_of_the_way_to_another_machine(
    peers: tuple[str, ...], ours: str, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    families = []

    class Probe:
        def __init__(self, family: int, kind: int) -> None:
            families.append(family)
            assert kind == socket.SOCK_DGRAM

        def __enter__(self) -> Probe:
            return self

        def __exit__(self, *_: object) -> None:
            return

        def connect(self, _: tuple[str, int]) -> None:
            return

        def getsockname(self) -> tuple[str, int]:
            return ours, 1

    monkeypatch.setattr("torchscale.features.cluster.engines.agent_follower.socket.socket", Probe)
    assert address_towards(peers) == address
    assert set(families) == {socket.AF_INET6 if ":" in ours else socket.AF_INET}
