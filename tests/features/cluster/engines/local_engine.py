"""Engines for tests: agents within this process, and real ones as processes of this machine."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.features.cluster.nodes.test_preflight import description
from torchscale.errors import MachineError
from torchscale.features.cluster.engines.agent_follower import MACHINE, MARK, AgentFollower
from torchscale.features.cluster.engines.engine import AGENT, EngineNode
from torchscale.features.cluster.nodes.agent_messages import AgentSetup, AskMachine, MachineFound
from torchscale.features.cluster.nodes.descriptions import Description
from torchscale.features.cluster.nodes.messages import Farewell
from torchscale.schema.node.machine import Machine
from torchscale.util.interpreter import module_command

HERE = "127.0.0.1"
SOON = 30.0
"""For what takes milliseconds, on a busy machine."""


class Agent:
    """An agent within this process, in a thread: it answers and joins as the program does, and
    carries out nothing."""

    def __init__(
        self,
        line: socket.socket,
        *,
        banner: bytes = b"",
        described: Description | None = None,
        problem: str = "",
        machine: Machine | None = None,
    ) -> None:
        """``problem``: why this node cannot take part, or has no ``machine``."""
        self.line = line
        self.setup: AgentSetup | None = None
        self.content = b""
        self.told: Farewell | None = None
        line.sendall(banner + MARK)
        self.follower = AgentFollower(line)
        self._described, self._problem, self._machine = described, problem, machine
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self, reason: str = "") -> None:
        """Leave."""
        self._stopped.set()
        self._thread.join(SOON)
        self.follower.close(reason)
        self.line.close()

    def kill(self) -> None:
        """Be gone, as a process that was killed."""
        self.line.shutdown(socket.SHUT_RDWR)

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                question = self.follower.questions.get(timeout=0.02)
            except queue.Empty:
                continue
            if isinstance(question, Farewell):
                self.told = question
                return
            if isinstance(question, AskMachine):
                self.follower.answer_machine(self._found())
                continue
            self.setup, self.content = question
            with contextlib.suppress(MachineError):  # it is gone
                self.follower.join(
                    None if self._problem else self._described or description(),
                    SOON,
                    lambda: False,
                    self._problem,
                )
            return

    def _found(self) -> MachineFound:
        if self._machine is None:
            return MachineFound(problem=self._problem or "no torch here")
        return MachineFound(content=MACHINE.dump_json(self._machine).decode())


Start = Callable[[int, socket.socket], object]
"""Starts what is on a node's end of the line; its result is kept."""


class LineEngine:
    """Nodes whose agents are within this process, or nothing but bytes."""

    name = "local"

    def __init__(self, *starts: Start, why: str = "") -> None:
        """``starts``: what each node does. ``why``: what the engine says of its end."""
        self.nodes: Sequence[EngineNode] = [
            EngineNode(f"host{rank}", f"127.0.0.{rank + 1}") for rank in range(len(starts))
        ]
        self.starts = list(starts)
        self.opened: list[int] = []
        self.running: dict[int, object] = {}
        self.why = why
        self.is_closed = False
        self._lines: list[socket.socket] = []
        self._started: list[object] = []

    def agent(self, rank: int) -> Agent:
        """The agent of a node."""
        agent = self.running[rank]
        assert isinstance(agent, Agent)
        return agent

    def open(self, rank: int) -> socket.socket:
        ours, theirs = socket.socketpair()
        self.opened.append(rank)
        self._lines.append(theirs)
        try:
            self.running[rank] = self.starts[rank](rank, theirs)
        except BaseException:
            ours.close()
            raise
        self._started.append(self.running[rank])
        return ours

    def why_ended(self, rank: int) -> str:
        return self.why.format(rank=rank)

    def close(self) -> None:
        self.is_closed = True

    def end(self) -> None:
        """End what is left."""
        for running in self._started:
            if isinstance(running, Agent):
                running.close()
        for line in self._lines:
            line.close()


class ProcessEngine:
    """Agents as processes of this machine."""

    name = "local"

    def __init__(self, nodes: int, directory: Path, env: Mapping[str, str]) -> None:
        self.nodes: Sequence[EngineNode] = [
            EngineNode(f"host{rank}", HERE) for rank in range(nodes)
        ]
        self._directory, self._env = directory, dict(env)
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        self.opened: list[int] = []

    def open(self, rank: int) -> socket.socket:
        self._end(rank)
        ours, theirs = socket.socketpair()
        with theirs, self.log(rank).open("ab") as log:
            self.processes[rank] = subprocess.Popen(
                module_command(AGENT, "sweep"),
                env=self._env,
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=log,
                start_new_session=True,
            )
        self.opened.append(rank)
        return ours

    def log(self, rank: int) -> Path:
        """What a node's agents wrote to standard error."""
        return self._directory / f"{rank}.log"

    def kill(self, rank: int) -> None:
        """Kill a node's agent alone, as a node that dies."""
        os.kill(self.processes[rank].pid, signal.SIGKILL)

    def why_ended(self, rank: int) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return f"it ended with {self.processes[rank].wait(SOON)}"
        return ""

    def close(self) -> None:
        for rank in list(self.processes):
            self._end(rank)

    def _end(self, rank: int) -> None:
        process = self.processes.pop(rank, None)
        if process is None:
            return
        try:
            process.wait(SOON)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(SOON)
