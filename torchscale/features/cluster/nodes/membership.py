"""Who takes part in what the first node leads. Every method may be called from either of its
threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from torchscale.features.cluster.nodes.handshake import Introduction
from torchscale.features.cluster.nodes.member import Member
from torchscale.features.cluster.nodes.remote_launch import RemoteLaunch, RemotePart
from torchscale.schema.launch.nodes import LaunchNode

_MAX_NOTES = 50
"""Refused connections that are named; a scanner must not fill the terminal."""


class Membership:
    """The nodes that have joined or were refused, what happened, and the launch that runs.

    ``first`` is the rank of the first that joins: 1 where the process that leads is on node 0 and
    runs its parts itself, 0 where all nodes join.
    """

    def __init__(self, nodes: int, first: int = 1) -> None:
        self.nodes, self.first = nodes, first
        self._lock = threading.Lock()
        self._members: dict[int, Member] = {}
        self._admitted: set[int] = set()
        self._notes: list[str] = []
        self._refused: dict[int, str] = {}
        self._connections_named = 0
        self._running: RemoteLaunch | None = None

    def enter(self, member: Member) -> Member | None:
        """Let a node join, in the place of a lost one too. Returns the one that has its place, if it
        is taken."""
        with self._lock:
            earlier = self._members.get(member.node_rank)
            if earlier is not None and not earlier.lost:
                return earlier
            self._members[member.node_rank] = member
            self._admitted.discard(member.node_rank)
            self._refused.pop(member.node_rank, None)
        return None

    def admit_all(self) -> None:
        """All that have joined take part."""
        with self._lock:
            self._admitted |= self._members.keys()

    def admit(self, member: Member) -> None:
        """A node that joined late takes part."""
        with self._lock:
            self._admitted.add(member.node_rank)
            self._notes.append(f"{member.label} joined")

    def heard_of_all(self) -> bool:
        """Whether all nodes have joined or were refused."""
        with self._lock:
            return len(self._members.keys() | self._refused.keys()) >= self.nodes - self.first

    def refused(self) -> dict[int, str]:
        """Why nodes were refused, in the order of their ranks."""
        with self._lock:
            return dict(sorted(self._refused.items()))

    def member(self, rank: int) -> Member:
        """A node that has joined."""
        with self._lock:
            return self._members[rank]

    def absent(self) -> list[int]:
        """Ranks of nodes that are not there."""
        present = {member.node_rank for member in self.present()}
        return [rank for rank in range(self.first, self.nodes) if rank not in present]

    def present(self) -> list[Member]:
        """Nodes that are there, in the order of their ranks."""
        with self._lock:
            return [member for _, member in sorted(self._members.items()) if not member.lost]

    def late(self) -> list[Member]:
        """Nodes that are there and do not take part yet."""
        with self._lock:
            return [
                member
                for rank, member in self._members.items()
                if rank not in self._admitted and not member.lost
            ]

    def taking_part(self) -> list[Member]:
        """Nodes that are there and take part, in the order of their ranks."""
        with self._lock:
            admitted = [
                self._members[rank] for rank in sorted(self._admitted) if rank in self._members
            ]
        return [member for member in admitted if not member.lost]

    def missing(self) -> tuple[str, ...]:
        """``node 2 did not join`` or ``node 1 (n2) was lost: …``, for every node that cannot run a
        launch."""
        with self._lock:
            members = dict(self._members)
            refused = dict(self._refused)
        texts = []
        for rank in range(self.first, self.nodes):
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

    def begin(
        self,
        order: int,
        nodes: Sequence[LaunchNode],
        names: Callable[[LaunchNode], Mapping[str, Path]],
    ) -> RemoteLaunch:
        """A launch on ``nodes`` runs from now on. ``names``: which files each may send, and where
        they go."""
        remote = RemoteLaunch(order)
        with self._lock:
            remote.parts = tuple(
                RemotePart(self._members[node.node_rank], names(node))
                for node in nodes[self.first :]
            )
            self._running = remote
        return remote

    def finish(self, remote: RemoteLaunch) -> list[Member]:
        """No launch runs from now on. Returns the nodes that have not sent their files."""
        with self._lock:
            self._running = None
            return [
                part.member for part in remote.parts if not part.collected and not part.member.lost
            ]

    def running_part(self, member: Member, order: int | None = None) -> RemotePart | None:
        """A node's part of the launch that runs; ``None`` where none does, or one of another
        number than ``order``."""
        with self._lock:
            running = self._running
        if running is None or (order is not None and running.order != order):
            return None
        return running.part_of(member)

    def lose(self, member: Member, reason: str) -> bool:
        """A node is lost. Returns whether it was there until now."""
        with self._lock:
            if member.lost:
                return False
            member.lost = reason or "unknown"
            if member.node_rank in self._admitted:
                self._notes.append(f"{member.label} was lost: {member.lost}")
        return True

    def refuse(self, introduction: Introduction, reason: str) -> None:
        """A node cannot take part."""
        with self._lock:
            if (
                self.first <= introduction.node_rank < self.nodes
                and introduction.node_rank not in self._members
            ):
                self._refused[introduction.node_rank] = reason
            self._notes.append(f"refused: {reason}")

    def note_refused_connection(self, peer: str, reason: str) -> None:
        """Somebody connected who is no node; only the first are named."""
        self._connections_named += 1
        if self._connections_named <= _MAX_NOTES:
            self.add_note(f"a connection from {peer} was refused: {reason}")

    def add_note(self, text: str) -> None:
        """Something that happened, in a line."""
        with self._lock:
            self._notes.append(text)
