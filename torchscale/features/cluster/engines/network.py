"""The connections to the agents of an engine. Everything here runs in the network's thread."""

from __future__ import annotations

import asyncio
import socket

from torchscale.errors import MachineError
from torchscale.features.cluster.engines.agent_follower import LINE_KEY, MARK
from torchscale.features.cluster.engines.engine import NodeEngine, Role
from torchscale.features.cluster.nodes.agent_messages import (
    AgentSetup,
    AskMachine,
    Hello,
    MachineFound,
)
from torchscale.features.cluster.nodes.channel import (
    CONNECTION_ERRORS,
    DATA_BYTES,
    Channel,
    ChannelError,
    connection_ending,
)
from torchscale.features.cluster.nodes.descriptions import Description
from torchscale.features.cluster.nodes.handshake import Introduction
from torchscale.features.cluster.nodes.loop import LoopThread
from torchscale.features.cluster.nodes.member import Member
from torchscale.features.cluster.nodes.member_network import MemberNetwork
from torchscale.features.cluster.nodes.membership import Membership
from torchscale.util.redaction import redact_text
from torchscale.util.text import one_line

_BEFORE_MARK_BYTES = 64 << 10
"""What may be printed before an agent's first frame: banners of prologs."""

_SAID_CHARACTERS = 500
"""What is shown of what an engine says: the end of a log may be one long line."""


class EngineNetwork(MemberNetwork):
    """Serves the agents of an engine, each from its start to its end."""

    def __init__(
        self,
        network: LoopThread,
        membership: Membership,
        engine: NodeEngine,
        *,
        silent_seconds: float,
        version: str,
    ) -> None:
        super().__init__(network, membership, silent_seconds=silent_seconds, version=version)
        self._engine = engine
        self._begun = asyncio.Event()
        self._role: Role = "sweep"
        self._description: Description | None = None
        self._content = b""
        self._greeted: dict[int, tuple[Channel, Hello]] = {}
        self.problems: dict[int, str] = {}
        """Why the last agent of a node has ended, by rank."""

    async def begin(
        self, role: Role, description: Description, content: bytes, silent_seconds: float
    ) -> None:
        """Let agents take part from now on: what all do, what must be equal on all, and the
        experiment or the options as JSON."""
        self._role, self._description, self._content = role, description, content
        self._silent_seconds = silent_seconds
        self._begun.set()

    async def serve(self, rank: int, line: socket.socket) -> None:
        """One agent, from its first byte to its end."""
        self.problems.pop(rank, None)
        member: Member | None = None
        channel: Channel | None = None
        reason = ""
        try:
            channel, hello = await self._greet(line)
            self._greeted[rank] = (channel, hello)
            if hello.niceness > 0:
                text = f"node {rank} ({one_line(hello.hostname)}) measures at niceness"
                what = "; start Ray there with RAY_worker_niceness=0" * (self._engine.name == "ray")
                self._membership.add_note(
                    f"warning: {text} {hello.niceness}: other processes come first{what}"
                )
            async with self._showing_life(channel):
                member = await self._join(rank, channel, hello)
                if member is not None:
                    await self._converse(member)
        except CONNECTION_ERRORS as error:
            reason = await self._ending(rank, error)
        except Exception as error:  # noqa: BLE001 - else who waits for this agent waits in vain
            reason = f"unexpected: {type(error).__name__}: {error}"
        finally:
            self._greeted.pop(rank, None)
            if channel is not None:
                channel.abort()
        self._has_ended(rank, member is not None, reason)
        if member is not None:
            self.lose(member, reason)

    async def _ending(self, rank: int, error: BaseException) -> str:
        """Why a connection ended; where it was closed, the engine may know why."""
        said = ""
        if isinstance(error, asyncio.IncompleteReadError | ConnectionError):
            said = await asyncio.get_running_loop().run_in_executor(
                None, self._engine.why_ended, rank
            )
        said = one_line(redact_text(said))[:_SAID_CHARACTERS]
        return said or connection_ending(error, self._silent_seconds)

    async def _join(self, rank: int, channel: Channel, hello: Hello) -> Member | None:
        """Have a node take part once it is known in what; ``None`` if it is refused."""
        await self._begun.wait()
        if self._description is None:
            raise ChannelError("there is nothing to do")
        introduction = Introduction(
            rank, self._membership.nodes, one_line(hello.hostname), hello.version
        )
        if not self._misfit(introduction, self._description):
            await self._send_setup(channel, rank)
        address = self._engine.nodes[rank].address
        return await self._admit(channel, introduction, address, self._description)

    def _has_ended(self, rank: int, was_member: bool, reason: str) -> None:
        if reason:
            self.problems[rank] = reason
        if reason and not was_member:
            node = self._engine.nodes[rank]
            introduction = Introduction(rank, self._membership.nodes, node.name, self._version)
            self._membership.refuse(introduction, f"node {rank} ({node.name}): {reason}")

    def fail(self, rank: int, reason: str) -> None:
        """A node's agent cannot be started."""
        self._has_ended(rank, False, reason)

    async def machine(self, rank: int) -> str:
        """What a node says of its devices and cores, as JSON.

        Raises:
            MachineError: it cannot be examined, or its agent does not answer.
        """
        name = self._engine.nodes[rank].name
        while rank not in self._greeted:
            if rank in self.problems:
                raise MachineError(f"node {rank} ({name}): {self.problems[rank]}")
            await asyncio.sleep(_POLL_SECONDS)
        channel, hello = self._greeted[rank]
        if hello.version != self._version:
            raise MachineError(
                f"node {rank} ({name}) has torchscale {hello.version}, this machine {self._version}",
                hint="install the same version on all",
            )
        try:
            await channel.send(AskMachine())
            message = await self._next_message(channel)
        except CONNECTION_ERRORS as error:
            reason = await self._ending(rank, error)
            raise MachineError(f"node {rank} ({name}): {reason}") from error
        if not isinstance(message, MachineFound) or message.problem:
            problem = message.problem if isinstance(message, MachineFound) else "no answer"
            raise MachineError(f"node {rank} ({name}): {problem}")
        return message.content

    async def _greet(self, line: socket.socket) -> tuple[Channel, Hello]:
        try:
            reader, writer = await asyncio.open_connection(sock=line, limit=_BEFORE_MARK_BYTES)
        except BaseException:
            line.close()
            raise
        channel = Channel(reader, writer, LINE_KEY, is_leader=True)
        try:
            await reader.readuntil(MARK)
            message = await self._next_message(channel)
            if isinstance(message, Hello):
                return channel, message
        except asyncio.LimitOverrunError as error:
            channel.abort()
            raise ChannelError("it is no agent of torchscale") from error
        except BaseException:
            channel.abort()  # else the next connection may get the number of a socket in use
            raise
        channel.abort()
        raise ChannelError("it did not say hello")

    async def _send_setup(self, channel: Channel, rank: int) -> None:
        nodes = self._engine.nodes
        peers = [node.address for other, node in enumerate(nodes) if other != rank]
        await channel.send(
            AgentSetup(
                role=self._role,
                node_rank=rank,
                nodes=len(nodes),
                address=nodes[rank].address,
                peers=tuple(peers[:2]),
                silent_seconds=self._silent_seconds,
                size=len(self._content),
            )
        )
        for start in range(0, len(self._content), DATA_BYTES):
            await channel.send_data(self._content[start : start + DATA_BYTES])


_POLL_SECONDS = 0.02
