"""The first node's side of a sweep over nodes: who takes part, the launches that they run, the
files that they send.

The network is served in a thread of its own (``leader_network.py``); everything here is called from
the main thread. What both know is in ``membership.py``.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pydantic import BaseModel

from torchscale.errors import MachineError
from torchscale.features.cluster.nodes.leader_network import CLOSE_SECONDS, LeaderNetwork
from torchscale.features.cluster.nodes.loop import LoopThread
from torchscale.features.cluster.nodes.member import Member
from torchscale.features.cluster.nodes.membership import Membership
from torchscale.features.cluster.nodes.messages import (
    CheckStep,
    Description,
    End,
    Farewell,
    Inspect,
    Start,
)
from torchscale.features.cluster.nodes.network import listen
from torchscale.features.cluster.nodes.reachability import REACH_SECONDS
from torchscale.features.cluster.nodes.remote_launch import RemoteLaunch
from torchscale.launch.control import StopRequest
from torchscale.schema.launch.nodes import LaunchNode
from torchscale.util.processes.subprocesses import wait_until
from torchscale.version import __version__

END_SECONDS = 30.0
"""Time limit for the other nodes' torchruns after the first one's: TERM and KILL take up to 10 s,
and torchrun's own barrier at the end waits for all nodes."""
FILES_SECONDS = 300.0
"""Time limit for the files of all nodes, as long as a node may take to send them."""


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
        pair_server = listen(self.address, 0)
        self._membership = Membership(nodes)
        self._orders = itertools.count(1)
        self._loop = LoopThread("nodes")
        self._network = LeaderNetwork(
            self._loop,
            self._membership,
            token,
            description,
            self.address,
            silent_seconds=silent_seconds,
            version=version,
        )
        self._loop.call(self._network.serve(server, pair_server), CLOSE_SECONDS)

    @property
    def hostname(self) -> str:
        """Hostname of this node."""
        return self.description.hostname

    def meet(self, seconds: float, stop: StopRequest) -> None:
        """Wait until all nodes have joined, or ``seconds`` have passed, and check that those that
        have fit together.

        Raises:
            MachineError: a node differs, or two nodes do not reach each other; every node is told,
                and ends.
        """
        wait_until(
            lambda: stop.asked or self._membership.heard_of() >= self.nodes - 1,
            timeout_seconds=seconds,
        )
        if stop.asked:
            return
        differing = self._membership.refused()
        problems = differing or self._unreached(self._membership.present())
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
        self._membership.admit_all()

    def admit_late(self) -> None:
        """Let nodes take part that have joined since :meth:`meet`; those that do not fit are
        refused."""
        for member in self._membership.late():
            problems = self._unreached([*self._membership.taking_part(), member])
            if problems:
                self._dismiss(member, "; ".join(problems))
            else:
                self._membership.admit(member)

    @property
    def available(self) -> int:
        """Nodes that can run a launch now, this one included."""
        return 1 + len(self._membership.taking_part())

    def missing(self) -> tuple[str, ...]:
        """``node 2 did not join`` or ``node 1 (n2) was lost: …``, for every node that cannot run a
        launch."""
        return self._membership.missing()

    def take_notes(self) -> list[str]:
        """What happened since the last call, a line each."""
        return self._membership.take_notes()

    def layout(self, nodes: int, ranks: int) -> tuple[LaunchNode, ...]:
        """The nodes of a launch in order, this one first, with ``ranks`` ranks each."""
        members = self._membership.taking_part()[: nodes - 1]
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
        remote = self._membership.begin(next(self._orders), nodes, names)
        for place, part in enumerate(remote.parts, start=1):
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

    def _unreached(self, members: Sequence[Member]) -> list[str]:
        """Pairs of nodes of which one cannot connect to the other, as ``n2 cannot connect to n3
        (10.0.0.3): …``."""
        if not members:
            return []
        bound = 2 * REACH_SECONDS
        ours = self._loop.call(self._network.reach_all(members), 2 * bound)
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
        self._network.lose(member, reason, closes=False)
        self._loop.start(self._network.refuse(member.channel, reason))
