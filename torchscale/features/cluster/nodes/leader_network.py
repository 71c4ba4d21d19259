"""The first node's side of the connections to the others, which it takes with the token of the
sweep. Everything here runs in the network's thread."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence

from torchscale.features.cluster.nodes.channel import (
    CONNECTION_ERRORS,
    ChannelError,
    connection_ending,
)
from torchscale.features.cluster.nodes.descriptions import Description
from torchscale.features.cluster.nodes.handshake import HANDSHAKE_SECONDS, Introduction, accept
from torchscale.features.cluster.nodes.loop import LoopThread
from torchscale.features.cluster.nodes.member import Member
from torchscale.features.cluster.nodes.member_network import MemberNetwork
from torchscale.features.cluster.nodes.membership import Membership
from torchscale.features.cluster.nodes.messages import Peer, Reach
from torchscale.features.cluster.nodes.reachability import REACH_SECONDS, answer_pair, reach_pair
from torchscale.features.cluster.nodes.unauthenticated import UnauthenticatedConnections, address_of
from torchscale.util.text import one_line


class LeaderNetwork(MemberNetwork):
    """Serves the other nodes, which connect to this one."""

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
        super().__init__(network, membership, silent_seconds=silent_seconds, version=version)
        self._token, self._description, self._address = token, description, address
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
            member = await self._admit(channel, introduction, peer, self._description)
            if member is not None:
                async with self._showing_life(channel):
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

    async def _enter(self, member: Member) -> Member | None:
        if member.port is None:
            raise ChannelError("it did not say where it listens")
        earlier = self._membership.enter(member)
        if earlier is None:
            return member
        name = f"{one_line(earlier.description.hostname)} ({earlier.address})"
        self._membership.add_note(
            f"{member.address} was refused: node {member.node_rank} is here already, {name}"
        )
        await self.refuse(
            member.channel,
            f"--node-rank {member.node_rank} is taken by {name}; give every node a rank of its own",
        )
        return None

    def _misfit(self, introduction: Introduction, description: Description) -> str:
        problem = super()._misfit(introduction, description)
        if problem:
            return problem
        first, nodes = description.hostname, self._membership.nodes
        if introduction.nodes != nodes:
            return f"--nnodes: {introduction.nodes}, {nodes} on {first}"
        if not 0 < introduction.node_rank < nodes:
            return f"--node-rank: {introduction.node_rank}, expected 1 to {nodes - 1}"
        return ""

    async def reach_all(self, members: Sequence[Member]) -> dict[int, str]:
        """Have every member connect to all others, and connect to each from here. Returns what
        failed here."""
        here = Peer(node_rank=0, address=self._address, port=self.pair_port)
        peers = [
            Peer(node_rank=m.node_rank, address=m.address, port=m.port)
            for m in members
            if m.port is not None
        ]
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
