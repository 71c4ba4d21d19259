"""Nodes on which an engine starts an agent each. The process that leads is none of them: it may run
on a login node, or on the head of a cluster that has no GPU."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Sequence
from dataclasses import replace

from pydantic import ValidationError

from torchscale.errors import ExitCode, MachineError
from torchscale.features.cluster.engines.agent_follower import MACHINE
from torchscale.features.cluster.engines.engine import NodeEngine, Role
from torchscale.features.cluster.engines.network import EngineNetwork
from torchscale.features.cluster.nodes.descriptions import Description
from torchscale.features.cluster.nodes.fleet import Fleet
from torchscale.features.cluster.nodes.loop import LoopThread
from torchscale.features.cluster.nodes.member_network import CLOSE_SECONDS
from torchscale.features.cluster.nodes.membership import Membership
from torchscale.launch.control import StopRequest
from torchscale.launch.machine import command_line
from torchscale.schema.launch.nodes import LaunchNode
from torchscale.schema.node.machine import Machine
from torchscale.util.processes.subprocesses import wait_until
from torchscale.version import __version__

_MACHINE_SECONDS = 300.0
"""Time limit for the first node to start its agent and to import torch."""
_PORT_SECONDS = 10.0
_ANY_PORT = 1
_RETURN_SECONDS = 30.0
"""Time limit for the agent of a lost node to start again, before the next launch."""
_STARTS = 3
"""Starts of a node's agent: a step that was killed comes back, a node that is gone does not."""


class EngineFleet(Fleet):
    """Leads the agents of an engine."""

    here: LaunchNode | None = None

    def __init__(self, engine: NodeEngine, role: Role, *, version: str = __version__) -> None:
        """Start an agent on every node; each waits for :meth:`begin`."""
        self._engine, self._role = engine, role
        loop, membership = LoopThread("nodes"), Membership(len(engine.nodes), first=0)
        self._agents = EngineNetwork(
            loop, membership, engine, silent_seconds=_MACHINE_SECONDS, version=version
        )
        super().__init__(loop, membership, self._agents)
        self._is_closed = False
        self._lines: list[socket.socket] = []
        self._starts = dict.fromkeys(range(self.nodes), 0)
        try:
            for rank in self._starts:
                self._open(rank)
        except BaseException:
            self.close(int(ExitCode.UNABLE))
            raise

    def machine(self) -> Machine:
        """What the first node has, which the plan is made for; the command is this process's.

        Raises:
            MachineError: it cannot be examined.
        """
        try:
            found = MACHINE.validate_json(
                self._loop.call(self._agents.machine(0), _MACHINE_SECONDS)
            )
        except ValidationError as error:
            raise MachineError(
                f"node 0 ({self._engine.nodes[0].name}) did not say what it has"
            ) from error
        except TimeoutError as error:
            node = self._engine.nodes[0]
            raise MachineError(
                f"node 0 ({node.name}) did not answer within {_MACHINE_SECONDS:g} s",
                hint=self._engine.why_ended(0) or None,
            ) from error
        environment = found.environment.model_copy(update={"command": command_line()})
        return replace(found, environment=environment)

    def begin(self, description: Description, content: bytes, silent_seconds: float) -> None:
        """Say what the nodes take part in."""
        begin = self._agents.begin(self._role, description, content, silent_seconds)
        self._loop.call(begin, CLOSE_SECONDS)

    def meet(self, seconds: float, stop: StopRequest) -> None:
        """As :meth:`Fleet.meet`.

        Raises:
            MachineError: nodes differ, or none takes part.
        """
        wait_until(
            lambda: stop.asked or self._membership.heard_of_all(),
            timeout_seconds=seconds,
        )
        if stop.asked:
            return
        refused = self._membership.refused()
        differing = [text for rank, text in refused.items() if rank not in self._agents.problems]
        if differing:
            raise MachineError(
                f"the nodes do not fit together, nothing was started: {'; '.join(differing)}",
                hint="make them equal, then start the command again",
            )
        self._membership.admit_all()
        if not self.available:
            raise MachineError(f"no node takes part: {'; '.join(self.missing())}")

    def admit_late(self) -> None:
        """Start the agents of lost nodes again, and let those take part that have joined."""
        again = [
            rank
            for rank in self._membership.absent()
            if 0 < self._starts[rank] < _STARTS and rank in self._agents.problems
        ]
        for rank in again:
            self._open(rank)
        if again:
            wait_until(
                lambda: all(
                    rank in self._agents.problems or rank not in self._membership.absent()
                    for rank in again
                ),
                timeout_seconds=_RETURN_SECONDS,
            )
        for member in self._membership.late():
            self._membership.admit(member)

    def free_port(self, nodes: Sequence[LaunchNode]) -> int:
        """A free port of the first of ``nodes``, which chooses it. Where that is lost, or does not
        answer and so is lost, any: the launch ends before a rank uses it.

        Raises:
            MachineError: there is none.
        """
        member = self._membership.member(nodes[0].node_rank)
        with contextlib.suppress(TimeoutError):  # as where it does not answer
            self._loop.call(self._agents.ask_port(member), CLOSE_SECONDS)
        wait_until(
            lambda: member.port_found is not None or bool(member.lost),
            timeout_seconds=_PORT_SECONDS,
        )
        found = member.port_found
        if found is None:
            if not member.lost:
                self._dismiss(member, f"it did not name a free port within {_PORT_SECONDS:g} s")
            return _ANY_PORT
        if found.port is None:
            raise MachineError(f"no free port on {member.label}: {found.problem}")
        return found.port

    def close(self, exit_code: int, reason: str = "") -> None:
        """Tell every node that the sweep is over, and end their agents. Once is enough."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            super().close(exit_code, reason)
        finally:
            for line in self._lines:  # of agents that were started this moment, too
                line.close()
            self._engine.close()

    def _open(self, rank: int) -> None:
        self._starts[rank] += 1
        self._agents.problems.pop(rank, None)
        try:
            line = self._engine.open(rank)
        except MachineError as error:
            self._agents.fail(rank, error.message)
            return
        self._lines.append(line)
        line.setblocking(False)
        self._loop.start(self._agents.serve(rank, line))
