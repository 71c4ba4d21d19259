"""A node that connects to the first one with the token of the sweep."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable

from pydantic import BaseModel

from torchscale.errors import MachineError
from torchscale.features.cluster.cluster import Cluster
from torchscale.features.cluster.nodes.channel import (
    Channel,
    ChannelError,
    connection_ending,
)
from torchscale.features.cluster.nodes.descriptions import Description
from torchscale.features.cluster.nodes.follower import FAREWELL_SECONDS, Follower
from torchscale.features.cluster.nodes.handshake import HANDSHAKE_SECONDS, Introduction, introduce
from torchscale.features.cluster.nodes.messages import Join, Reach, Reached, Unable
from torchscale.features.cluster.nodes.network import UnresolvedError, listen, resolve
from torchscale.features.cluster.nodes.reachability import REACH_SECONDS, answer_pair, reach_pair
from torchscale.features.cluster.nodes.unauthenticated import UnauthenticatedConnections
from torchscale.version import __version__

_RETRY_SECONDS = 1.0
"""Seconds between two attempts to connect, while the first node is not there yet."""


class JoiningFollower(Follower):
    """A node's connection to the first node of its sweep."""

    def __init__(
        self, cluster: Cluster, token: bytes, *, silent_seconds: float, version: str = __version__
    ) -> None:
        super().__init__(f"node 0 at {cluster.master}", silent_seconds=silent_seconds)
        self._introduction = Introduction(
            cluster.node_rank, cluster.nodes, socket.gethostname(), version
        )
        self._cluster, self._token = cluster, token
        self._unauthenticated = UnauthenticatedConnections()

    @property
    def local_address(self) -> str:
        """This node's address towards the first node; empty before :meth:`join`."""
        return "" if self._channel is None else self._channel.local_address

    @property
    def leader_address(self) -> str:
        """Address of the first node.

        Raises:
            UsageError: its name does not resolve.
        """
        return resolve(self._cluster.host)

    def join(
        self,
        description: Description | None,
        seconds: float,
        stopped: Callable[[], bool],
        problem: str = "",
    ) -> None:
        """Connect and ask to take part; without a ``description``, say why this node cannot.

        Raises:
            MachineError: the first node cannot be reached within ``seconds``, or refuses this node.
            UsageError: the name of the first node does not resolve.
        """
        deadline = time.monotonic() + seconds
        while True:
            try:
                # Each time: a pod that replaces the first node's has its name and another address.
                connecting = self._connect(self.leader_address, description, problem)
                self._network.call(connecting, 3 * HANDSHAKE_SECONDS)
            except UnresolvedError:
                if not self._cluster.is_named_later or time.monotonic() > deadline or stopped():
                    raise
                time.sleep(_RETRY_SECONDS)
            except ChannelError as error:
                raise MachineError(
                    f"node 0 at {self._cluster.master}: {error}",
                    hint="give every node the same token",
                ) from error
            except (OSError, asyncio.IncompleteReadError, TimeoutError) as error:
                if time.monotonic() > deadline or stopped():
                    raise MachineError(
                        f"node 0 at {self._cluster.master} cannot be reached: "
                        f"{connection_ending(error, HANDSHAKE_SECONDS)}",
                        hint="start the command there too, with --node-rank 0; check address, "
                        "port and firewalls",
                    ) from error
                time.sleep(_RETRY_SECONDS)
            else:
                return

    # Called in the network's thread.

    async def _connect(self, address: str, description: Description | None, problem: str) -> None:
        reader, writer = await asyncio.wait_for(
            asyncio.open_connection(address, self._cluster.port), HANDSHAKE_SECONDS
        )
        try:
            channel = await asyncio.wait_for(
                introduce(reader, writer, self._token, self._introduction), HANDSHAKE_SECONDS
            )
            if description is None:
                await channel.send(Unable(reason=problem[:2000]))
                await channel.close(FAREWELL_SECONDS)
                return
            pair_server = listen(channel.local_address, 0)
            await self._network.serve(
                lambda r, w: answer_pair(r, w, self._token, self._unauthenticated), pair_server
            )
            await channel.send(
                Join(description=description, port=int(pair_server.getsockname()[1]))
            )
        except BaseException:
            writer.transport.abort()
            raise
        self._begin(channel)

    async def _answer(self, channel: Channel, message: BaseModel) -> None:
        if not isinstance(message, Reach):
            return
        peers = message.peers
        results = await asyncio.gather(
            *(reach_pair(peer.address, peer.port, self._token, REACH_SECONDS) for peer in peers)
        )
        failed = {
            peer.node_rank: reason for peer, reason in zip(peers, results, strict=True) if reason
        }
        await channel.send(Reached(failed=failed))
