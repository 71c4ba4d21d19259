"""The nodes of a sweep or a check, for the process that leads them: who takes part, the launches
that they run, the files that they send.

How nodes come to take part differs: they connect with a token (:mod:`.leader`), or an engine starts
an agent on each (:mod:`torchscale.features.cluster.engines.fleet`). What runs and judges launches
sees the :class:`Fleet` alone. The network is served in a thread of its own (``member_network.py``);
everything here is called from the main thread. What both know is in ``membership.py``.
"""

from __future__ import annotations

import contextlib
import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pydantic import BaseModel

from torchscale.features.cluster.nodes.loop import LoopThread
from torchscale.features.cluster.nodes.member import Member
from torchscale.features.cluster.nodes.member_network import CLOSE_SECONDS, MemberNetwork
from torchscale.features.cluster.nodes.membership import Membership
from torchscale.features.cluster.nodes.messages import (
    CheckStep,
    End,
    Farewell,
    Inspect,
    Start,
)
from torchscale.features.cluster.nodes.remote_launch import RemoteLaunch
from torchscale.launch.control import StopRequest
from torchscale.schema.launch.nodes import LaunchNode

END_SECONDS = 30.0
"""Time limit for the other nodes' torchruns after the first one's: TERM and KILL take up to 10 s,
and torchrun's own barrier at the end waits for all nodes."""
FILES_SECONDS = 300.0
"""Time limit for the files of all nodes, as long as a node may take to send them."""


class Fleet(ABC):
    """Leads nodes until it is closed."""

    def __init__(self, loop: LoopThread, membership: Membership, network: MemberNetwork) -> None:
        self.nodes = membership.nodes
        self._loop, self._membership, self._network = loop, membership, network
        self._orders = itertools.count(1)

    @property
    @abstractmethod
    def here(self) -> LaunchNode | None:
        """This machine as node 0 of a launch of one rank; ``None`` where it is none of the nodes,
        which all run their parts themselves then."""

    @abstractmethod
    def meet(self, seconds: float, stop: StopRequest) -> None:
        """Wait until all nodes have joined, or ``seconds`` have passed, and check that those that
        have fit together.

        Raises:
            MachineError: they do not fit; every node is told, and ends.
        """

    @abstractmethod
    def admit_late(self) -> None:
        """Let nodes take part that have come since the last call; those that do not fit are
        refused."""

    @abstractmethod
    def free_port(self, nodes: Sequence[LaunchNode]) -> int:
        """A free port at the address of the first of ``nodes``.

        Raises:
            MachineError: there is none, or the node does not answer.
        """

    @property
    def available(self) -> int:
        """Nodes that can run a launch now, this one included where it is one."""
        return self._membership.first + len(self._membership.taking_part())

    def missing(self) -> tuple[str, ...]:
        """``node 2 did not join`` or ``node 1 (n2) was lost: …``, for every node that cannot run a
        launch."""
        return self._membership.missing()

    def take_notes(self) -> list[str]:
        """What happened since the last call, a line each."""
        return self._membership.take_notes()

    def layout(self, nodes: int, ranks: int) -> tuple[LaunchNode, ...]:
        """The nodes of a launch in order, with ``ranks`` ranks each; this machine first where it is
        one of them."""
        own = [] if self.here is None else [self.here.model_copy(update={"ranks": ranks})]
        members = self._membership.taking_part()[: nodes - len(own)]
        zero = 0.0 if own or not members else members[0].clock_offset_seconds
        others = [
            LaunchNode(
                node_rank=member.node_rank,
                hostname=member.description.hostname,
                address=member.address,
                first_rank=place * ranks,
                ranks=ranks,
                clock_offset_seconds=member.clock_offset_seconds - zero if place else None,
            )
            for place, member in enumerate(members, start=len(own))
        ]
        return (*own, *others)

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
        """Start a launch on those of ``nodes`` that are not this machine. ``names``: which files
        each may send, and where they go."""

        def order(number: int, place: int) -> Start:
            return Start(
                order=number,
                cell_id=cell_id,
                launch=launch,
                node_rank=place,
                nodes=len(nodes),
                master_port=master_port,
                master_address=self._master_address(nodes),
                counts_flops=counts_flops,
            )

        return self._begin(nodes, names, order)

    def start_check(
        self,
        nodes: Sequence[LaunchNode],
        names: Callable[[LaunchNode], Mapping[str, Path]],
        steps: Sequence[CheckStep],
    ) -> RemoteLaunch:
        """Start a step of ``validate`` on those of ``nodes`` that are not this machine:
        ``steps[i]`` on ``nodes[i]``, but for its number."""

        def order(number: int, place: int) -> CheckStep:
            update = {
                "order": number,
                "node_rank": place,
                "master_address": self._master_address(nodes),
            }
            return steps[place].model_copy(update=update)

        return self._begin(nodes, names, order)

    def _master_address(self, nodes: Sequence[LaunchNode]) -> str:
        """Where the store of a launch is; empty where nodes know this machine by its name."""
        return nodes[0].address if self.here is None else ""

    def _begin(
        self,
        nodes: Sequence[LaunchNode],
        names: Callable[[LaunchNode], Mapping[str, Path]],
        order: Callable[[int, int], BaseModel],
    ) -> RemoteLaunch:
        remote = self._membership.begin(next(self._orders), nodes, names)
        for place, part in enumerate(remote.parts, start=self._membership.first):
            self._loop.start(self._network.tell(part.member, order(remote.order, place)))
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
                self._loop.start(self._network.tell(part.member, order))

    def forget(self, remote: RemoteLaunch, unfinished: str) -> None:
        """A launch is over: what still comes of it is ignored, and a node that has not sent its
        files by now is lost for the reason ``unfinished``."""
        late = self._membership.finish(remote)
        for part in remote.parts:
            part.drop_file()
        for member in late:
            self._dismiss(member, unfinished)

    def close(self, exit_code: int, reason: str = "") -> None:
        """Tell every node that the sweep is over, and stop serving."""
        members = self._membership.present()
        farewell = Farewell(exit_code=exit_code, reason=reason[:2000])
        with contextlib.suppress(
            TimeoutError
        ):  # whoever does not take it notices the closed connection
            self._loop.call(self._network.part_from(members, farewell), 2 * CLOSE_SECONDS)
        self._loop.close()

    def _dismiss(self, member: Member, reason: str) -> None:
        """Lose a node for a reason of ours, and tell it."""
        self._network.lose(member, reason, closes=False)
        self._loop.start(self._network.refuse(member.channel, reason))
