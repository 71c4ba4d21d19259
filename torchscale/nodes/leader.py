"""The first node's side of a sweep over nodes: who takes part, the launches that they run, the
files that they send.

The network is served in a thread of its own; everything else here is called from the main thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from pydantic import BaseModel, ValidationError

from torchscale.errors import MachineError
from torchscale.launch.control import StopRequest
from torchscale.nodes.channel import (
    HANDSHAKE_SECONDS,
    Channel,
    ChannelError,
    FrameKind,
    Introduction,
    accept,
    answer_pair,
    reach_pair,
)
from torchscale.nodes.fleet import clock_text
from torchscale.nodes.loop import LoopThread
from torchscale.nodes.members import Member, Part, RemoteLaunch
from torchscale.nodes.network import listen
from torchscale.nodes.preflight import differences, first_of
from torchscale.nodes.strangers import Strangers, address_of
from torchscale.schema.launch.nodes import (
    MAX_CLOCK_OFFSET_SECONDS,
    TO_LEADER,
    Alive,
    AskClock,
    CheckStep,
    Clock,
    Collected,
    Description,
    End,
    Ended,
    FileFollows,
    Finish,
    Inspect,
    Inspected,
    Join,
    LaunchNode,
    Leaving,
    NodeDescription,
    Peer,
    Reach,
    Reached,
    Refused,
    Start,
    Unable,
)
from torchscale.util.process import wait_until
from torchscale.util.text import one_line
from torchscale.version import __version__

ALIVE_SECONDS = 2.0
"""Between two signs of life: many within ``launch.node_timeout_seconds``, and no load for
anybody."""
REACH_SECONDS = 10.0
"""For one connection between two nodes: it takes two round trips, and a lost SYN is sent again
after 1 and 3 s."""
_CLOCK_ASKS = 5
"""Questions for a node's time; the answer that took least counts."""
_MAX_NOTES = 50
"""Refused connections that are named; a scanner must not fill the terminal."""
_CLOSE_SECONDS = 5.0
"""For the last message to each node."""


class Leader:
    """Serves the other nodes of a sweep until it is closed."""

    def __init__(
        self,
        server: socket.socket,
        token: bytes,
        description: Description,
        nodes: int,
        *,
        silent_seconds: float,
        version: str = __version__,
    ) -> None:
        """Listen on ``server``, and on another port of its address for the check of pairs."""
        self.description, self.nodes = description, nodes
        self.address = str(server.getsockname()[0])
        self._token, self._version, self._silent_seconds = token, version, silent_seconds
        self._lock = threading.Lock()
        self._members: dict[int, Member] = {}
        self._admitted: set[int] = set()
        self._notes: list[str] = []
        self._refused: dict[int, str] = {}
        self._strangers = Strangers()
        self._strangers_named = 0
        self._running: RemoteLaunch | None = None
        self._orders = itertools.count(1)
        pair_server = listen(self.address, 0)
        self._pair_port = int(pair_server.getsockname()[1])
        self._network = LoopThread("nodes")
        self._network.call(self._serve(server, pair_server), _CLOSE_SECONDS)

    # Called from the main thread.

    @property
    def hostname(self) -> str:
        """Of this node."""
        return self.description.hostname

    def meet(self, seconds: float, stop: StopRequest) -> None:
        """Wait until all nodes have joined, or ``seconds`` have passed, and check that those that
        have fit together.

        Raises:
            MachineError: a node differs, or two nodes do not reach each other; every node is told,
                and ends.
        """
        wait_until(
            lambda: stop.asked or self._heard_of() >= self.nodes - 1, timeout_seconds=seconds
        )
        if stop.asked:
            return
        with self._lock:
            refused = dict(self._refused)
        differing = [reason for _, reason in sorted(refused.items())]
        problems = differing or self._unreached(self._present())
        if problems:
            what = (
                "make them equal"
                if differing
                else "let them connect on any port (firewalls, routes, interfaces)"
            )
            raise MachineError(
                f"the nodes do not fit together, nothing was started: {'; '.join(problems)}",
                hint=f"{what}, then start the command on every node again",
            )
        with self._lock:
            self._admitted |= self._members.keys()

    def admit_late(self) -> None:
        """Let nodes take part that have joined since :meth:`meet`; those that do not fit are
        refused."""
        with self._lock:
            late = [
                member
                for rank, member in self._members.items()
                if rank not in self._admitted and not member.lost
            ]
        for member in late:
            problems = self._unreached([*self._taking_part(), member])
            if problems:
                self._dismiss(member, "; ".join(problems))
            else:
                with self._lock:
                    self._admitted.add(member.node_rank)
                    self._notes.append(f"{member.label} joined")

    @property
    def available(self) -> int:
        """Nodes that can run a launch now, this one included."""
        return 1 + len(self._taking_part())

    def missing(self) -> tuple[str, ...]:
        """``node 2 did not join`` or ``node 1 (n2) was lost: …``, for every node that cannot run a
        launch."""
        with self._lock:
            members = dict(self._members)
            refused = dict(self._refused)
        texts = []
        for rank in range(1, self.nodes):
            member = members.get(rank)
            if member is None:
                texts.append(refused.get(rank, f"node {rank} did not join"))
            elif member.lost:
                texts.append(f"{member.label} was lost: {member.lost}")
        return tuple(texts)

    def take_notes(self) -> list[str]:
        """What happened since the last call, a line each."""
        with self._lock:
            notes, self._notes = self._notes, []
        return notes

    def layout(self, nodes: int, ranks: int) -> tuple[LaunchNode, ...]:
        """The nodes of a launch in order, this one first, with ``ranks`` ranks each."""
        members = self._taking_part()[: nodes - 1]
        first = LaunchNode(
            node_rank=0, hostname=self.hostname, address=self.address, first_rank=0, ranks=ranks
        )
        return (
            first,
            *(
                LaunchNode(
                    node_rank=member.node_rank,
                    hostname=member.description.hostname,
                    address=member.address,
                    first_rank=place * ranks,
                    ranks=ranks,
                    clock_offset_seconds=member.clock_offset_seconds,
                )
                for place, member in enumerate(members, start=1)
            ),
        )

    def start(
        self,
        nodes: Sequence[LaunchNode],
        names: Callable[[LaunchNode], Mapping[str, Path]],
        *,
        cell_id: str,
        launch: int,
        master_port: int,
        counts_flops: bool,
    ) -> RemoteLaunch:
        """Start a launch on the other ``nodes``. ``names``: which files each may send, and where
        they go."""

        def order(number: int, place: int) -> Start:
            return Start(
                order=number,
                cell_id=cell_id,
                launch=launch,
                node_rank=place,
                nodes=len(nodes),
                master_port=master_port,
                counts_flops=counts_flops,
            )

        return self._begin(nodes, names, order)

    def start_check(
        self,
        nodes: Sequence[LaunchNode],
        names: Callable[[LaunchNode], Mapping[str, Path]],
        steps: Sequence[CheckStep],
    ) -> RemoteLaunch:
        """Start a step of ``validate`` on the other ``nodes``: ``steps[i]`` on ``nodes[i]``, but
        for its number."""
        return self._begin(
            nodes,
            names,
            lambda number, place: steps[place].model_copy(
                update={"order": number, "node_rank": place}
            ),
        )

    def _begin(
        self,
        nodes: Sequence[LaunchNode],
        names: Callable[[LaunchNode], Mapping[str, Path]],
        order: Callable[[int, int], BaseModel],
    ) -> RemoteLaunch:
        remote = RemoteLaunch(next(self._orders))
        with self._lock:
            members = {node.node_rank: self._members[node.node_rank] for node in nodes[1:]}
            remote.parts = tuple(Part(members[node.node_rank], names(node)) for node in nodes[1:])
            self._running = remote
        for place, part in enumerate(remote.parts, start=1):
            self._network.start(self._tell(part.member, order(remote.order, place)))
        return remote

    def inspect(self, remote: RemoteLaunch) -> None:
        """Ask every node to ask its ranks of a launch where they are."""
        self._order(remote, Inspect(order=remote.order))

    def end(self, remote: RemoteLaunch, *, at_once: bool = False) -> None:
        """Ask every node to end its part of a launch."""
        self._order(remote, End(order=remote.order, at_once=at_once))

    def _order(self, remote: RemoteLaunch, order: Inspect | End) -> None:
        for part in remote.parts:
            if part.ended is None and not part.member.lost:
                self._network.start(self._tell(part.member, order))

    def forget(self, remote: RemoteLaunch, unfinished: str) -> None:
        """A launch is over: what still comes of it is ignored, and a node that has not sent its
        files by now is lost for the reason ``unfinished``."""
        with self._lock:
            self._running = None
            late = [
                part.member for part in remote.parts if not part.collected and not part.member.lost
            ]
        for part in remote.parts:
            part.drop_file()
        for member in late:
            self._dismiss(member, unfinished)

    def close(self, exit_code: int, reason: str = "") -> None:
        """Tell every node that the sweep is over, and stop serving."""
        with self._lock:
            members = [member for member in self._members.values() if not member.lost]
        farewell = Finish(exit_code=exit_code, reason=reason[:2000])
        with contextlib.suppress(
            TimeoutError
        ):  # whoever does not take it notices the closed connection
            self._network.call(self._part_from(members, farewell), 2 * _CLOSE_SECONDS)
        self._network.close()

    def _heard_of(self) -> int:
        with self._lock:
            return len(self._members.keys() | self._refused.keys())

    def _present(self) -> list[Member]:
        with self._lock:
            return [member for _, member in sorted(self._members.items()) if not member.lost]

    def _taking_part(self) -> list[Member]:
        with self._lock:
            admitted = [
                self._members[rank] for rank in sorted(self._admitted) if rank in self._members
            ]
        return [member for member in admitted if not member.lost]

    def _unreached(self, members: Sequence[Member]) -> list[str]:
        """Pairs of nodes of which one cannot connect to the other, as ``n2 cannot connect to n3
        (10.0.0.3): …``."""
        if not members:
            return []
        bound = 2 * REACH_SECONDS
        ours = self._network.call(self._reach_all(members), 2 * bound)
        labels = {0: f"{self.hostname} ({self.address})"}
        labels |= {
            member.node_rank: f"{member.description.hostname} ({member.address})"
            for member in members
        }
        failures = [
            f"{self.hostname} cannot connect to {labels[rank]}: {reason}"
            for rank, reason in ours.items()
        ]
        wait_until(
            lambda: all(member.unreached is not None or member.lost for member in members),
            timeout_seconds=bound,
        )
        for member in members:
            if member.unreached is None:
                failures.append(
                    f"{member.label} did not answer: {member.lost or f'silent for {bound:g} s'}"
                )
                continue
            failures += [
                f"{member.description.hostname} cannot connect to {labels[rank]}: {reason}"
                for rank, reason in member.unreached.items()
                if rank in labels
            ]
        return failures

    def _dismiss(self, member: Member, reason: str) -> None:
        """Lose a node for a reason of ours, and tell it."""
        self._lose(member, reason, closes=False)
        self._network.start(self._refuse(member.channel, reason))

    # Called in the network's thread.

    async def _serve(self, server: socket.socket, pair_server: socket.socket) -> None:
        await self._network.serve(self._connected, server)
        await self._network.serve(
            lambda r, w: answer_pair(r, w, self._token, self._strangers), pair_server
        )

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, from its first byte to its end."""
        peer = address_of(writer)
        try:
            handshake = accept(reader, writer, self._token, self._strangers)
            channel, introduction = await asyncio.wait_for(handshake, HANDSHAKE_SECONDS)
        except (ChannelError, OSError, asyncio.IncompleteReadError, asyncio.TimeoutError) as error:
            self._note_stranger(peer, connection_ending(error, HANDSHAKE_SECONDS))
            writer.transport.abort()
            return
        member = None
        try:
            member = await self._admit(channel, introduction, peer)
            if member is not None:
                await self._converse(member)
        except (
            ChannelError,
            ValidationError,
            OSError,
            asyncio.IncompleteReadError,
            asyncio.TimeoutError,
        ) as error:
            reason = connection_ending(error, self._silent_seconds)
            if member is not None:
                self._lose(member, reason)
            else:
                self._note_refusal(
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
            self._note_refusal(introduction, f"{label}: {message.reason}")
            return None
        if not isinstance(message, Join):
            raise ChannelError("it did not join")
        differing = differences(self.description, message.description)
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
        with self._lock:
            earlier = self._members.get(member.node_rank)
            taken = earlier is not None and not earlier.lost
            if not taken:
                self._members[member.node_rank] = member
                self._admitted.discard(member.node_rank)
                self._refused.pop(member.node_rank, None)
        if earlier is not None and taken:
            name = f"{one_line(earlier.description.hostname)} ({earlier.address})"
            self._add_note(f"{peer} was refused: node {member.node_rank} is here already, {name}")
            await self._refuse(
                channel,
                f"--node-rank {member.node_rank} is taken by {name}; give every node a rank of its "
                "own",
            )
            return None
        return member

    def _misfit(self, introduction: Introduction) -> str:
        """Why a node cannot take part, as far as its introduction says."""
        if introduction.version != self._version:
            return f"torchscale: {introduction.version}, {self._version} on {self.hostname}"
        if introduction.nodes != self.nodes:
            return f"--nnodes: {introduction.nodes}, {self.nodes} on {self.hostname}"
        if not 0 < introduction.node_rank < self.nodes:
            return f"--node-rank: {introduction.node_rank}, expected 1 to {self.nodes - 1}"
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
                    self._lose(member, message.reason)
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
        part = self._part_of(member, message.order)
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
        with self._lock:
            running = self._running
        part = None if running is None else running.part_of(member)
        if part is not None:  # else of a launch that is over
            part.take_data(data)

    def _part_of(self, member: Member, order: int) -> Part | None:
        with self._lock:
            running = self._running
        return running.part_of(member) if running is not None and running.order == order else None

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
            if not isinstance(message, Clock):
                raise ChannelError("it did not say what time it is")
            round_trip = time.monotonic() - begun
            offsets.append((round_trip, message.time - (sent + round_trip / 2)))
        return min(offsets)[1]

    async def _reach_all(self, members: Sequence[Member]) -> dict[int, str]:
        """Have every member connect to all others, and connect to each from here. Returns what
        failed here."""
        here = Peer(node_rank=0, address=self.address, port=self._pair_port)
        peers = [Peer(node_rank=m.node_rank, address=m.address, port=m.port) for m in members]
        for member in members:
            member.unreached = None
            await self._tell(
                member, Reach(peers=(here, *(p for p in peers if p.node_rank != member.node_rank)))
            )
        results = await asyncio.gather(
            *(reach_pair(peer.address, peer.port, self._token, REACH_SECONDS) for peer in peers)
        )
        return {
            peer.node_rank: reason for peer, reason in zip(peers, results, strict=True) if reason
        }

    async def _tell(self, member: Member, message: BaseModel) -> None:
        try:
            await member.channel.send(message)
        except OSError as error:
            self._lose(member, connection_ending(error, self._silent_seconds))

    async def _refuse_node(self, channel: Channel, introduction: Introduction, reason: str) -> None:
        self._note_refusal(introduction, reason)
        await self._refuse(channel, reason)

    async def _refuse(self, channel: Channel, reason: str) -> None:
        with contextlib.suppress(OSError):  # it has gone, which is what was wanted
            await channel.send(Refused(reason=reason[:2000]))
        await channel.close(_CLOSE_SECONDS)

    async def _part_from(self, members: Iterable[Member], farewell: Finish) -> None:
        async def part(member: Member) -> None:
            await self._tell(member, farewell)
            await member.channel.close(_CLOSE_SECONDS)

        await asyncio.gather(*(part(member) for member in members))

    def _lose(self, member: Member, reason: str, *, closes: bool = True) -> None:
        with self._lock:
            if member.lost:
                return
            member.lost = reason or "unknown"
            if member.node_rank in self._admitted:
                self._notes.append(f"{member.label} was lost: {member.lost}")
        if closes:
            member.channel.abort()

    def _note_refusal(self, introduction: Introduction, reason: str) -> None:
        with self._lock:
            if (
                0 < introduction.node_rank < self.nodes
                and introduction.node_rank not in self._members
            ):
                self._refused[introduction.node_rank] = reason
            self._notes.append(f"refused: {reason}")

    def _note_stranger(self, peer: str, reason: str) -> None:
        self._strangers_named += 1
        if self._strangers_named <= _MAX_NOTES:
            self._add_note(f"a connection from {peer} was refused: {reason}")

    def _add_note(self, text: str) -> None:
        with self._lock:
            self._notes.append(text)


def connection_ending(error: BaseException, seconds: float) -> str:
    """Why a connection ended, in words."""
    if isinstance(error, asyncio.TimeoutError):
        return f"silent for {seconds:g} s"
    if isinstance(error, asyncio.IncompleteReadError):
        return "the connection was closed"
    if isinstance(error, ValidationError):
        return "it sent a message that this version does not understand"
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return str(error)
