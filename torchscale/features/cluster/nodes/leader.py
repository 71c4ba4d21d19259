"""Nodes that connect to the first one with the token of the sweep: bare machines, pods, a step of
Slurm with a task on each node."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from torchscale.errors import MachineError
from torchscale.features.cluster.nodes.descriptions import Description
from torchscale.features.cluster.nodes.fleet import Fleet
from torchscale.features.cluster.nodes.leader_network import LeaderNetwork
from torchscale.features.cluster.nodes.loop import LoopThread
from torchscale.features.cluster.nodes.member import Member
from torchscale.features.cluster.nodes.member_network import CLOSE_SECONDS
from torchscale.features.cluster.nodes.membership import Membership
from torchscale.features.cluster.nodes.network import free_port, listen
from torchscale.features.cluster.nodes.reachability import REACH_SECONDS
from torchscale.launch.control import StopRequest
from torchscale.schema.launch.nodes import LaunchNode
from torchscale.util.processes.subprocesses import wait_until
from torchscale.version import __version__


class Leader(Fleet):
    """Serves the other nodes of a sweep, as the first of them."""

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
        self.description = description
        self.address = str(server.getsockname()[0])
        pair_server = listen(self.address, 0)
        loop, membership = LoopThread("nodes"), Membership(nodes)
        self._pairs = LeaderNetwork(
            loop,
            membership,
            token,
            description,
            self.address,
            silent_seconds=silent_seconds,
            version=version,
        )
        super().__init__(loop, membership, self._pairs)
        loop.call(self._pairs.serve(server, pair_server), CLOSE_SECONDS)

    @property
    def here(self) -> LaunchNode:
        """This machine, which is node 0."""
        return LaunchNode(
            node_rank=0,
            hostname=self.description.hostname,
            address=self.address,
            first_rank=0,
            ranks=1,
        )

    def free_port(self, nodes: Sequence[LaunchNode]) -> int:
        """A free port of this machine."""
        del nodes  # the first of them is this machine
        return free_port(self.address)

    def meet(self, seconds: float, stop: StopRequest) -> None:
        """As :meth:`Fleet.meet`.

        Raises:
            MachineError: a node differs, or two nodes do not reach each other; every node is told,
                and ends.
        """
        wait_until(
            lambda: stop.asked or self._membership.heard_of_all(),
            timeout_seconds=seconds,
        )
        if stop.asked:
            return
        differing = list(self._membership.refused().values())
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

    def _unreached(self, members: Sequence[Member]) -> list[str]:
        """Pairs of nodes of which one cannot connect to the other, as ``n2 cannot connect to n3
        (10.0.0.3): …``."""
        if not members:
            return []
        bound = 2 * REACH_SECONDS
        ours = self._loop.call(self._pairs.reach_all(members), 2 * bound)
        hostname = self.description.hostname
        labels = {0: f"{hostname} ({self.address})"}
        labels |= {
            member.node_rank: f"{member.description.hostname} ({member.address})"
            for member in members
        }
        failures = [
            f"{hostname} cannot connect to {labels[rank]}: {reason}"
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
