"""The side of every other node of a sweep: joins the first node, and takes its orders until it says
that all is done.

The network is served in a thread of its own; orders are carried out in the main thread, which
starts the processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path

from pydantic import BaseModel

from torchscale.errors import ExitCode
from torchscale.features.cluster.nodes.agent_messages import Progressed
from torchscale.features.cluster.nodes.channel import (
    CONNECTION_ERRORS,
    DATA_BYTES,
    Channel,
    ChannelError,
    FrameKind,
    connection_ending,
)
from torchscale.features.cluster.nodes.descriptions import Description
from torchscale.features.cluster.nodes.loop import LoopThread
from torchscale.features.cluster.nodes.messages import (
    ALIVE_SECONDS,
    TO_NODE,
    Alive,
    AskClock,
    CheckStep,
    ClockReading,
    Collected,
    End,
    Ended,
    Farewell,
    FileFollows,
    Inspect,
    Inspected,
    Leaving,
    Refused,
    Start,
)
from torchscale.schema.launch.progress import Progress

_SEND_SECONDS = 300.0
"""Time limit for the files of a launch, as long as the first node waits for them."""
FAREWELL_SECONDS = 5.0


class Follower(ABC):
    """A node's connection to the process that leads."""

    def __init__(self, leader: str, *, silent_seconds: float) -> None:
        """``leader``: what messages call the process that leads."""
        self.orders: queue.Queue[Start | CheckStep | Farewell] = queue.Queue()
        """What the process that leads wants; :class:`Farewell` is the last one, also where the
        connection is lost."""
        self._leader, self._silent_seconds = leader, silent_seconds
        self._inspect: Inspect | None = None
        self._end: End | None = None
        self._channel: Channel | None = None
        self._tasks: list[asyncio.Future[None]] = []
        self._is_closed = False
        self.lost = ""
        self._network = LoopThread("nodes")

    @property
    @abstractmethod
    def local_address(self) -> str:
        """This node's address, in the network of the nodes; empty before it has joined."""

    @property
    @abstractmethod
    def leader_address(self) -> str:
        """Where launches meet whose orders do not name an address.

        Raises:
            UsageError: its name does not resolve.
        """

    @abstractmethod
    def join(
        self,
        description: Description | None,
        seconds: float,
        stopped: Callable[[], bool],
        problem: str = "",
    ) -> None:
        """Ask to take part; without a ``description``, say why this node cannot.

        Raises:
            MachineError: the process that leads cannot be reached within ``seconds``, or refuses
                this node.
            UsageError: its name does not resolve.
        """

    def report_progress(self, order: int, progress: Progress) -> None:
        """Say what rank 0 does. Does nothing once the connection is lost."""
        self._say(Progressed(order=order, progress=progress))

    def should_inspect(self, order: int) -> bool:
        """Whether the ranks of a launch are to be asked where they are."""
        return self._inspect is not None and self._inspect.order == order

    def report_inspected(self, order: int) -> None:
        """Say that the ranks of a launch were asked. Does nothing once the connection is lost."""
        self._say(Inspected(order=order))

    def _say(self, message: BaseModel) -> None:
        if self._channel is not None and not self.lost:
            self._network.start(self._channel.send(message))

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
                self._network.call(self._part(self._channel, reason), 2 * FAREWELL_SECONDS)
        self._network.close()

    # Called in the network's thread.

    def _begin(self, channel: Channel) -> None:
        """Take orders from now on."""
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
        else:
            await self._answer(channel, message)
        return False

    @abstractmethod
    async def _answer(self, channel: Channel, message: BaseModel) -> None:
        """Answer what is asked of nodes of one kind alone."""

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
                channel.send(Leaving(reason=(reason or "it ended")[:2000])), FAREWELL_SECONDS
            )
        self.lost = self.lost or "this node left"
        await channel.close(FAREWELL_SECONDS)

    def _lose(self, reason: str) -> None:
        if not self.lost:
            self.lost = reason
            text = f"the connection to {self._leader} was lost: {reason}"
            self.orders.put(Farewell(exit_code=int(ExitCode.UNABLE), reason=text))
        if self._channel is not None:
            self._channel.abort()


def _refuse_data(kind: FrameKind) -> None:
    if kind is not FrameKind.MESSAGE:
        raise ChannelError("it sent data, which no node takes")
