"""The agent's side of its connection to the process that leads: its standard input and output."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import queue
import socket
from collections.abc import Callable

from pydantic import BaseModel, TypeAdapter

from torchscale.errors import ExitCode, MachineError
from torchscale.features.cluster.nodes.agent_messages import (
    AgentSetup,
    AskMachine,
    AskPort,
    Hello,
    MachineFound,
    PortFound,
)
from torchscale.features.cluster.nodes.channel import (
    CONNECTION_ERRORS,
    Channel,
    ChannelError,
    FrameKind,
    connection_ending,
)
from torchscale.features.cluster.nodes.descriptions import Description
from torchscale.features.cluster.nodes.follower import FAREWELL_SECONDS, Follower
from torchscale.features.cluster.nodes.messages import TO_NODE, Farewell, Join, Refused, Unable
from torchscale.features.cluster.nodes.network import free_port
from torchscale.schema.node.machine import Machine
from torchscale.version import __version__

MARK = b"\ntorchscale agent 1\n"
"""What comes before the first frame: engines and their hooks may print before it."""
MACHINE = TypeAdapter(Machine)
"""A machine as agents say it."""
LINE_KEY = b"a line of an engine"
"""An engine's own users alone reach an agent's standard input: the MAC of a frame is a check sum
there."""
_START_SECONDS = 10.0
_SILENT_SECONDS = 60.0
"""Until the setup says after how long without a sign of life the process that leads is gone."""


class AgentFollower(Follower):
    """A node's connection to the process that leads, which the engine has made."""

    def __init__(self, line: socket.socket) -> None:
        """Say hello."""
        super().__init__("the process that leads", silent_seconds=_SILENT_SECONDS)
        self.questions: queue.Queue[AskMachine | tuple[AgentSetup, bytes] | Farewell] = (
            queue.Queue()
        )
        """What is wanted before this node joins."""
        self._setup: AgentSetup | None = None
        self._line: Channel = self._network.call(self._open(line), _START_SECONDS)
        self._network.start(self._listen(self._line))

    @property
    def local_address(self) -> str:
        """The address from which this node reaches its peers, or the one that its engine knows."""
        if self._setup is None:
            return ""
        return address_towards(self._setup.peers) or self._setup.address

    @property
    def leader_address(self) -> str:
        """Empty: orders name the address."""
        return ""

    def answer_machine(self, found: MachineFound) -> None:
        """Say which machine this is."""
        self._network.start(self._line.send(found))

    def join(
        self,
        description: Description | None,
        seconds: float,
        stopped: Callable[[], bool],
        problem: str = "",
    ) -> None:
        """As :meth:`Follower.join`."""
        del stopped  # nothing is waited for
        message: Join | Unable = Unable(reason=problem[:2000])
        if description is not None:
            message = Join(description=description, address=self.local_address)
        try:
            self._network.call(self._join(message), seconds)
        except (OSError, TimeoutError) as error:
            raise MachineError(
                f"the process that leads is gone: {connection_ending(error, seconds)}"
            ) from error

    def close(self, reason: str = "") -> None:
        """As :meth:`Follower.close`; of a node that has not joined, nothing is said."""
        if self._channel is None and not self._is_closed:
            with contextlib.suppress(TimeoutError):  # what is not read is not sent
                self._network.call(self._line.close(FAREWELL_SECONDS), 2 * FAREWELL_SECONDS)
        super().close(reason)

    # Called in the network's thread.

    async def _open(self, line: socket.socket) -> Channel:
        reader, writer = await asyncio.open_connection(sock=line)
        channel = Channel(reader, writer, LINE_KEY, is_leader=False)
        await channel.send(
            Hello(hostname=socket.gethostname(), version=__version__, niceness=os.nice(0))
        )
        self._tasks = [asyncio.ensure_future(self._stay_alive(channel))]
        return channel

    async def _listen(self, channel: Channel) -> None:
        """Take what is wanted until the setup has come."""
        try:
            while True:
                kind, payload = await asyncio.wait_for(channel.receive(), _SILENT_SECONDS)
                if kind is not FrameKind.MESSAGE:
                    raise ChannelError("it sent data where a message was expected")
                message = TO_NODE.validate_json(payload)
                if isinstance(message, AskMachine):
                    self.questions.put(message)
                elif isinstance(message, AgentSetup):
                    self._setup, self._silent_seconds = message, message.silent_seconds
                    self.questions.put((message, await _content(channel, message.size)))
                    return
                elif isinstance(message, Refused | Farewell):
                    reason = message.reason
                    self.questions.put(Farewell(exit_code=int(ExitCode.UNABLE), reason=reason))
                    return
        except CONNECTION_ERRORS as error:
            reason = f"the process that leads is gone: {connection_ending(error, _SILENT_SECONDS)}"
            self.questions.put(Farewell(exit_code=int(ExitCode.UNABLE), reason=reason))

    async def _join(self, message: Join | Unable) -> None:
        await self._line.send(message)
        if isinstance(message, Unable):
            await self._line.close(FAREWELL_SECONDS)
        else:
            self._channel = self._line
            self._tasks.append(asyncio.ensure_future(self._converse(self._line)))

    async def _answer(self, channel: Channel, message: BaseModel) -> None:
        if not isinstance(message, AskPort):
            return
        try:
            found = PortFound(port=free_port(self.local_address))
        except MachineError as error:
            found = PortFound(problem=error.message[:2000])
        await channel.send(found)


async def _content(channel: Channel, size: int) -> bytes:
    content = bytearray()
    while len(content) < size:
        kind, payload = await asyncio.wait_for(channel.receive(), _SILENT_SECONDS)
        if kind is FrameKind.DATA:
            content += payload  # else a sign of life
    return bytes(content)


def address_towards(peers: tuple[str, ...]) -> str:
    """This machine's address on the way to the first of ``peers`` that is another machine; empty
    where there is none. Nothing is sent."""
    for peer in peers:
        try:
            family = socket.AF_INET6 if ipaddress.ip_address(peer).version == 6 else socket.AF_INET
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((peer, 9))
                address = str(probe.getsockname()[0])
        except (OSError, ValueError):  # no way there, or no address
            continue
        if address != peer and not ipaddress.ip_address(address).is_loopback:
            return address
    return ""
