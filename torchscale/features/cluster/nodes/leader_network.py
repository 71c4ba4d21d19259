"""The first node's side of the connections to the others. Everything here runs in the network's
thread; what it learns is in the membership."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Iterable, Sequence

from pydantic import BaseModel

from torchscale.features.cluster.nodes.channel import (
    CONNECTION_ERRORS,
    Channel,
    ChannelError,
    FrameKind,
    connection_ending,
)
from torchscale.features.cluster.nodes.handshake import HANDSHAKE_SECONDS, Introduction, accept
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
    Description,
    Ended,
    Farewell,
    FileFollows,
    Inspected,
    Join,
    Leaving,
    NodeDescription,
    Peer,
    Reach,
    Reached,
    Refused,
    Unable,
)
from torchscale.features.cluster.nodes.preflight import (
    MAX_CLOCK_OFFSET_SECONDS,
    clock_text,
    differences,
    first_of,
)
from torchscale.features.cluster.nodes.reachability import REACH_SECONDS, answer_pair, reach_pair
from torchscale.features.cluster.nodes.unauthenticated import UnauthenticatedConnections, address_of
from torchscale.util.text import one_line

_CLOCK_ASKS = 5
"""Questions for a node's time; the answer that took least counts."""
CLOSE_SECONDS = 5.0
"""Time limit for the last message to each node."""


class LeaderNetwork:
    """Serves the other nodes: admits them, reads what they send, tells them what is to be done."""

    def __init__(
        self,
        network: LoopThread,
        membership: Membership,
        token: bytes,
        description: Description,
        address: str,
        *,
        silent_seconds: float,
        version: str,
    ) -> None:
        self._network, self._membership, self._token = network, membership, token
        self._description, self._address = description, address
        self._silent_seconds, self._version = silent_seconds, version
        self.unauthenticated = UnauthenticatedConnections()
        self.pair_port = 0

    async def serve(self, server: socket.socket, pair_server: socket.socket) -> None:
        """Take connections of nodes, and those of the check of pairs."""
        self.pair_port = int(pair_server.getsockname()[1])
        await self._network.serve(self._connected, server)
        await self._network.serve(
            lambda r, w: answer_pair(r, w, self._token, self.unauthenticated), pair_server
        )

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, from its first byte to its end."""
        peer = address_of(writer)
        try:
            handshake = accept(reader, writer, self._token, self.unauthenticated)
            channel, introduction = await asyncio.wait_for(handshake, HANDSHAKE_SECONDS)
        except (ChannelError, OSError, asyncio.IncompleteReadError, asyncio.TimeoutError) as error:
            self._membership.note_refused_connection(
                peer, connection_ending(error, HANDSHAKE_SECONDS)
            )
            writer.transport.abort()
            return
        member = None
        try:
            member = await self._admit(channel, introduction, peer)
            if member is not None:
                await self._converse(member)
        except CONNECTION_ERRORS as error:
            reason = connection_ending(error, self._silent_seconds)
            if member is not None:
                self.lose(member, reason)
            else:
                self._membership.refuse(
                    introduction,
                    f"node {introduction.node_rank} ({introduction.hostname}): {reason}",
                )
        finally:
            channel.abort()

    async def _admit(
        self, channel: Channel, introduction: Introduction, peer: str
    ) -> Member | None:
        """Read what the node says of itself; ``None`` if it is refused."""
        label = f"node {introduction.node_rank} ({introduction.hostname})"
        problem = self._misfit(introduction)
        if problem:
            await self._refuse_node(channel, introduction, f"{label}: {problem}")
            return None
        message = TO_LEADER.validate_json(await self._next_message(channel))
        if isinstance(message, Unable):
            self._membership.refuse(introduction, f"{label}: {message.reason}")
            return None
        if not isinstance(message, Join):
            raise ChannelError("it did not join")
        differing = differences(self._description, message.description)
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
            introduction.node_rank, message.description, peer, message.port, channel, offset
        )
        earlier = self._membership.enter(member)
        if earlier is not None:
            name = f"{one_line(earlier.description.hostname)} ({earlier.address})"
            self._membership.add_note(
                f"{peer} was refused: node {member.node_rank} is here already, {name}"
            )
            await self.refuse(
                channel,
                f"--node-rank {member.node_rank} is taken by {name}; give every node a rank of its "
                "own",
            )
            return None
        return member

    def _misfit(self, introduction: Introduction) -> str:
        """Why a node cannot take part, as far as its introduction says."""
        first = self._description.hostname
        if introduction.version != self._version:
            return f"torchscale: {introduction.version}, {self._version} on {first}"
        if introduction.nodes != self._membership.nodes:
            return f"--nnodes: {introduction.nodes}, {self._membership.nodes} on {first}"
        if not 0 < introduction.node_rank < self._membership.nodes:
            return (
                f"--node-rank: {introduction.node_rank}, expected 1 to {self._membership.nodes - 1}"
            )
        return ""

    async def _converse(self, member: Member) -> None:
        """Read what a member sends until it is lost. Raises what ends it."""
        alive = asyncio.ensure_future(self._stay_alive(member))
        try:
            while not member.lost:
                kind, payload = await asyncio.wait_for(
                    member.channel.receive(), self._silent_seconds
                )
                if kind is FrameKind.DATA:
                    self._take_data(member, payload)
                    continue
                message = TO_LEADER.validate_json(payload)
                if isinstance(message, Leaving):
                    self.lose(member, message.reason)
                    return
                self._take(member, message)
        finally:
            alive.cancel()

    def _take(self, member: Member, message: BaseModel) -> None:
        if isinstance(message, Reached):
            member.unreached = message.failed
            return
        if not isinstance(message, Inspected | Ended | FileFollows | Collected):
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
        else:
            part.collect()

    def _take_data(self, member: Member, data: bytes) -> None:
        part = self._membership.running_part(member)
        if part is not None:  # else of a launch that is over
            part.take_data(data)

    async def _stay_alive(self, member: Member) -> None:
        while not member.lost:
            await asyncio.sleep(min(ALIVE_SECONDS, self._silent_seconds / 4))
            await member.channel.send(Alive())

    async def _next_message(self, channel: Channel) -> bytes:
        kind, payload = await asyncio.wait_for(channel.receive(), self._silent_seconds)
        if kind is not FrameKind.MESSAGE:
            raise ChannelError("it sent data where a message was expected")
        return payload

    async def _clock_offset(self, channel: Channel) -> float:
        """Seconds that the node's clock is ahead: of the quickest answer, half its round trip taken
        off."""
        offsets = []
        for _ in range(_CLOCK_ASKS):
            sent = time.time()
            begun = time.monotonic()
            await channel.send(AskClock())
            message = TO_LEADER.validate_json(await self._next_message(channel))
            while isinstance(message, Alive):
                message = TO_LEADER.validate_json(await self._next_message(channel))
            if not isinstance(message, ClockReading):
                raise ChannelError("it did not say what time it is")
            round_trip = time.monotonic() - begun
            offsets.append((round_trip, message.time - (sent + round_trip / 2)))
        return min(offsets)[1]

    async def reach_all(self, members: Sequence[Member]) -> dict[int, str]:
        """Have every member connect to all others, and connect to each from here. Returns what
        failed here."""
        here = Peer(node_rank=0, address=self._address, port=self.pair_port)
        peers = [Peer(node_rank=m.node_rank, address=m.address, port=m.port) for m in members]
        for member in members:
            member.unreached = None
            await self.tell(
                member, Reach(peers=(here, *(p for p in peers if p.node_rank != member.node_rank)))
            )
        results = await asyncio.gather(
            *(reach_pair(peer.address, peer.port, self._token, REACH_SECONDS) for peer in peers)
        )
        return {
            peer.node_rank: reason for peer, reason in zip(peers, results, strict=True) if reason
        }

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
