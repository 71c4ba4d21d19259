"""The side of every other node of a sweep: joins the first node, and takes its orders until it says
that all is done.

The network is served in a thread of its own; orders are carried out in the main thread, which
starts the processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from pydantic import BaseModel

from torchscale.errors import ExitCode, MachineError
from torchscale.features.cluster.cluster import Cluster
from torchscale.features.cluster.nodes.channel import (
    CONNECTION_ERRORS,
    DATA_BYTES,
    Channel,
    ChannelError,
    FrameKind,
    connection_ending,
)
from torchscale.features.cluster.nodes.handshake import HANDSHAKE_SECONDS, Introduction, introduce
from torchscale.features.cluster.nodes.loop import LoopThread
from torchscale.features.cluster.nodes.messages import (
    ALIVE_SECONDS,
    TO_NODE,
    Alive,
    AskClock,
    CheckStep,
    ClockReading,
    Collected,
    Description,
    End,
    Ended,
    Farewell,
    FileFollows,
    Inspect,
    Inspected,
    Join,
    Leaving,
    Reach,
    Reached,
    Refused,
    Start,
    Unable,
)
from torchscale.features.cluster.nodes.network import UnresolvedError, listen, resolve
from torchscale.features.cluster.nodes.reachability import REACH_SECONDS, answer_pair, reach_pair
from torchscale.features.cluster.nodes.unauthenticated import UnauthenticatedConnections
from torchscale.version import __version__

_RETRY_SECONDS = 1.0
"""Seconds between two attempts to connect, while the first node is not there yet."""
_SEND_SECONDS = 300.0
"""Time limit for the files of a launch, as long as the first node waits for them."""
_FAREWELL_SECONDS = 5.0


class Follower:
    """A node's connection to the first node of its sweep."""

    def __init__(
        self, cluster: Cluster, token: bytes, *, silent_seconds: float, version: str = __version__
    ) -> None:
        self.orders: queue.Queue[Start | CheckStep | Farewell] = queue.Queue()
        """What the first node wants; :class:`Farewell` is the last one, also where the connection
        is lost."""
        self._introduction = Introduction(
            cluster.node_rank, cluster.nodes, socket.gethostname(), version
        )
        self._cluster, self._token, self._silent_seconds = cluster, token, silent_seconds
        self._inspect: Inspect | None = None
        self._end: End | None = None
        self._channel: Channel | None = None
        self._is_closed = False
        self.lost = ""
        self._unauthenticated = UnauthenticatedConnections()
        self._network = LoopThread("nodes")

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

    def should_inspect(self, order: int) -> bool:
        """Whether the ranks of a launch are to be asked where they are."""
        return self._inspect is not None and self._inspect.order == order

    def report_inspected(self, order: int) -> None:
        """Say that the ranks of a launch were asked. Does nothing once the connection is lost."""
        if self._channel is not None and not self.lost:
            self._network.start(self._channel.send(Inspected(order=order)))

    def end_order(self, order: int) -> End | None:
        """How a launch is to be ended; ``None`` while the first node does not say that it is."""
        end = self._end
        return end if end is not None and end.order == order else None

    def should_end(self, order: int) -> bool:
        """Whether a launch is to be ended: the first node says so, or is gone."""
        return bool(self.lost) or self.end_order(order) is not None

    def report(self, ended: Ended, files: Sequence[Path]) -> None:
        """Say how the launch ended, and send its files. Does nothing once the connection is
        lost."""
        if self._channel is None or self.lost:
            return
        try:
            self._network.call(self._report(self._channel, ended, files), _SEND_SECONDS)
        except (OSError, TimeoutError) as error:
            self._lose(connection_ending(error, _SEND_SECONDS))

    def close(self, reason: str = "") -> None:
        """Leave, and say why where there is a reason."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._channel is not None:
            with contextlib.suppress(
                OSError, TimeoutError
            ):  # the first node notices the closed connection
                self._network.call(self._part(self._channel, reason), 2 * _FAREWELL_SECONDS)
        self._network.close()

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
                await channel.close(_FAREWELL_SECONDS)
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
        self._channel = channel
        self._tasks = [
            asyncio.ensure_future(self._converse(channel)),
            asyncio.ensure_future(self._stay_alive(channel)),
        ]

    async def _converse(self, channel: Channel) -> None:
        try:
            while True:
                kind, payload = await asyncio.wait_for(channel.receive(), self._silent_seconds)
                _refuse_data(kind)
                if await self._take(channel, TO_NODE.validate_json(payload)):
                    break
        except CONNECTION_ERRORS as error:
            self._lose(connection_ending(error, self._silent_seconds))

    async def _take(self, channel: Channel, message: BaseModel) -> bool:
        """Answer a message, or hand it to the main thread. Returns whether it was the last one."""
        if isinstance(message, AskClock):
            await channel.send(ClockReading(time=time.time()))
        elif isinstance(message, Reach):
            peers = message.peers
            results = await asyncio.gather(
                *(reach_pair(peer.address, peer.port, self._token, REACH_SECONDS) for peer in peers)
            )
            failed = {
                peer.node_rank: reason
                for peer, reason in zip(peers, results, strict=True)
                if reason
            }
            await channel.send(Reached(failed=failed))
        elif isinstance(message, Start | CheckStep):
            self.orders.put(message)
        elif isinstance(message, Inspect):
            self._inspect = message
        elif isinstance(message, End):
            self._end = message
        elif isinstance(message, Refused | Farewell):
            last = (
                message
                if isinstance(message, Farewell)
                else Farewell(exit_code=int(ExitCode.UNABLE), reason=message.reason)
            )
            self.lost = self.lost or "the sweep is over"
            self.orders.put(last)
            return True
        return False

    async def _stay_alive(self, channel: Channel) -> None:
        try:
            while not self.lost:
                await asyncio.sleep(min(ALIVE_SECONDS, self._silent_seconds / 4))
                await channel.send(Alive())
        except OSError as error:
            self._lose(connection_ending(error, self._silent_seconds))

    async def _report(self, channel: Channel, ended: Ended, files: Sequence[Path]) -> None:
        await channel.send(ended)
        for path in files:
            with path.open("rb") as file:
                size = path.stat().st_size
                await channel.send(FileFollows(order=ended.order, name=path.name, size=size))
                while size > 0 and (data := file.read(min(DATA_BYTES, size))):
                    await channel.send_data(data)
                    size -= len(data)
        await channel.send(Collected(order=ended.order))

    async def _part(self, channel: Channel, reason: str) -> None:
        if not self.lost:
            await asyncio.wait_for(
                channel.send(Leaving(reason=(reason or "it ended")[:2000])), _FAREWELL_SECONDS
            )
        self.lost = self.lost or "this node left"
        await channel.close(_FAREWELL_SECONDS)

    def _lose(self, reason: str) -> None:
        if not self.lost:
            self.lost = reason
            text = f"the connection to node 0 at {self._cluster.master} was lost: {reason}"
            self.orders.put(Farewell(exit_code=int(ExitCode.UNABLE), reason=text))
        if self._channel is not None:
            self._channel.abort()


def _refuse_data(kind: FrameKind) -> None:
    if kind is not FrameKind.MESSAGE:
        raise ChannelError("it sent data, which no node takes")
