"""The connections to the nodes that take part, from the side that leads. Everything here runs in
the network's thread; what it learns is in the membership."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterable

from pydantic import BaseModel

from torchscale.features.cluster.nodes.agent_messages import AskPort, PortFound, Progressed
from torchscale.features.cluster.nodes.channel import (
    Channel,
    ChannelError,
    FrameKind,
    connection_ending,
)
from torchscale.features.cluster.nodes.descriptions import Description, NodeDescription
from torchscale.features.cluster.nodes.handshake import Introduction
from torchscale.features.cluster.nodes.loop import LoopThread
from torchscale.features.cluster.nodes.member import Member
from torchscale.features.cluster.nodes.membership import Membership
from torchscale.features.cluster.nodes.messages import (
    ALIVE_SECONDS,
    TO_LEADER,
    Alive,
    AskClock,
    ClockReading,
    Collected,
    Ended,
    Farewell,
    FileFollows,
    Inspected,
    Join,
    Leaving,
    Reached,
    Refused,
    ToLeader,
    Unable,
)
from torchscale.features.cluster.nodes.preflight import (
    MAX_CLOCK_OFFSET_SECONDS,
    clock_text,
    differences,
    first_of,
)

_CLOCK_ASKS = 5
"""Questions for a node's time; the answer that took least counts."""
CLOSE_SECONDS = 5.0
"""Time limit for the last message to each node."""


class MemberNetwork:
    """Admits nodes whose connection is open, reads what they send, tells them what is to be
    done."""

    def __init__(
        self, network: LoopThread, membership: Membership, *, silent_seconds: float, version: str
    ) -> None:
        self._network, self._membership = network, membership
        self._silent_seconds, self._version = silent_seconds, version

    async def _admit(
        self,
        channel: Channel,
        introduction: Introduction,
        peer: str,
        description: Description,
    ) -> Member | None:
        """Read what the node says of itself, which has to fit a ``description``; ``None`` if it is
        refused."""
        label = f"node {introduction.node_rank} ({introduction.hostname})"
        problem = self._misfit(introduction, description)
        if problem:
            await self._refuse_node(channel, introduction, f"{label}: {problem}")
            return None
        message = await self._next_message(channel)
        if isinstance(message, Unable):
            self._membership.refuse(introduction, f"{label}: {message.reason}")
            return None
        if not isinstance(message, Join):
            raise ChannelError("it did not join")
        differing = differences(description, message.description)
        if differing:
            await self._refuse_node(
                channel, introduction, f"{label} differs in {first_of(differing)}"
            )
            return None
        offset = await self._clock_offset(channel)
        is_sweep = isinstance(
            message.description, NodeDescription
        )  # of a check, it is part of the result
        if is_sweep and abs(offset) > MAX_CLOCK_OFFSET_SECONDS:
            problem = f"its clock is {clock_text(offset)}; set it, by NTP for example"
            await self._refuse_node(channel, introduction, f"{label}: {problem}")
            return None
        member = Member(
            introduction.node_rank,
            message.description,
            message.address or peer,
            message.port,
            channel,
            offset,
        )
        return await self._enter(member)

    async def _enter(self, member: Member) -> Member | None:
        """Let a node in that fits; ``None`` if it is refused."""
        self._membership.enter(member)
        return member

    def _misfit(self, introduction: Introduction, description: Description) -> str:
        """Why a node cannot take part, as far as its introduction says."""
        first = description.hostname
        if introduction.version != self._version:
            return f"torchscale: {introduction.version}, {self._version} on {first}"
        return ""

    async def _converse(self, member: Member) -> None:
        """Read what a member sends until it is lost. Raises what ends it."""
        while not member.lost:
            kind, payload = await asyncio.wait_for(member.channel.receive(), self._silent_seconds)
            if kind is FrameKind.DATA:
                self._take_data(member, payload)
                continue
            message = TO_LEADER.validate_json(payload)
            if isinstance(message, Leaving):
                self.lose(member, message.reason)
                return
            self._take(member, message)

    def _take(self, member: Member, message: BaseModel) -> None:
        if isinstance(message, Reached):
            member.unreached = message.failed
            return
        if isinstance(message, PortFound):
            member.port_found = message
            return
        if not isinstance(message, Inspected | Ended | FileFollows | Collected | Progressed):
            return  # a sign of life
        part = self._membership.running_part(member, message.order)
        if part is None:
            return  # of a launch that is over
        if isinstance(message, Inspected):
            part.inspected = True
        elif isinstance(message, Ended):
            part.ended = message
        elif isinstance(message, FileFollows):
            part.begin_file(message)
        elif isinstance(message, Progressed):
            part.take_progress(message.progress)
        else:
            part.collect()

    def _take_data(self, member: Member, data: bytes) -> None:
        part = self._membership.running_part(member)
        if part is not None:  # else of a launch that is over
            part.take_data(data)

    @contextlib.asynccontextmanager
    async def _showing_life(self, channel: Channel) -> AsyncIterator[None]:
        """Send a node signs of life meanwhile."""
        alive = asyncio.ensure_future(self._stay_alive(channel))
        try:
            yield
        finally:
            alive.cancel()

    async def _stay_alive(self, channel: Channel) -> None:
        with contextlib.suppress(OSError):  # who reads from this channel notices
            while True:
                await asyncio.sleep(min(ALIVE_SECONDS, self._silent_seconds / 4))
                await channel.send(Alive())

    async def _next_message(self, channel: Channel) -> ToLeader:
        """What the node sends next; signs of life do not count."""
        while True:
            kind, payload = await asyncio.wait_for(channel.receive(), self._silent_seconds)
            if kind is not FrameKind.MESSAGE:
                raise ChannelError("it sent data where a message was expected")
            message = TO_LEADER.validate_json(payload)
            if not isinstance(message, Alive):
                return message

    async def _clock_offset(self, channel: Channel) -> float:
        """Seconds that the node's clock is ahead: of the quickest answer, half its round trip taken
        off."""
        offsets = []
        for _ in range(_CLOCK_ASKS):
            sent = time.time()
            begun = time.monotonic()
            await channel.send(AskClock())
            message = await self._next_message(channel)
            if not isinstance(message, ClockReading):
                raise ChannelError("it did not say what time it is")
            round_trip = time.monotonic() - begun
            offsets.append((round_trip, message.time - (sent + round_trip / 2)))
        return min(offsets)[1]

    async def ask_port(self, member: Member) -> None:
        """Ask a node for a free port; the answer is :attr:`Member.port_found`."""
        member.port_found = None
        await self.tell(member, AskPort())

    async def tell(self, member: Member, message: BaseModel) -> None:
        """Send a node a message; one that cannot take it is lost."""
        try:
            await member.channel.send(message)
        except OSError as error:
            self.lose(member, connection_ending(error, self._silent_seconds))

    async def _refuse_node(self, channel: Channel, introduction: Introduction, reason: str) -> None:
        self._membership.refuse(introduction, reason)
        await self.refuse(channel, reason)

    async def refuse(self, channel: Channel, reason: str) -> None:
        """Tell a node why it cannot take part, and part from it."""
        with contextlib.suppress(OSError):  # it has gone, which is what was wanted
            await channel.send(Refused(reason=reason[:2000]))
        await channel.close(CLOSE_SECONDS)

    async def part_from(self, members: Iterable[Member], farewell: Farewell) -> None:
        """Say farewell to nodes, all at the same time."""

        async def part(member: Member) -> None:
            await self.tell(member, farewell)
            await member.channel.close(CLOSE_SECONDS)

        await asyncio.gather(*(part(member) for member in members))

    def lose(self, member: Member, reason: str, *, closes: bool = True) -> None:
        """A node is lost; its connection is closed at once unless it is told first."""
        if self._membership.lose(member, reason) and closes:
            member.channel.abort()
