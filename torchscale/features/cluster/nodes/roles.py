"""Leading and following: what every command over nodes does alike. Node 0 waits for the others,
runs its part and tells them how it ended; each other node joins and carries out orders until it is
told."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from torchscale.config.sections.launch import LaunchSettings
from torchscale.errors import ExitCode, MachineError, TorchscaleError
from torchscale.features.cluster.cluster import Cluster
from torchscale.features.cluster.nodes.descriptions import Description
from torchscale.features.cluster.nodes.fleet import Fleet
from torchscale.features.cluster.nodes.follower import Follower
from torchscale.features.cluster.nodes.joining_follower import JoiningFollower
from torchscale.features.cluster.nodes.leader import Leader
from torchscale.features.cluster.nodes.messages import CheckStep, Farewell, Start
from torchscale.features.cluster.nodes.network import listen_as_leader
from torchscale.launch.control import StopRequest
from torchscale.observer import Observer
from torchscale.util.processes.subprocesses import POLL_SECONDS, adopt_orphans
from torchscale.util.words import plural

CarryOut = Callable[[Start | CheckStep], None]
"""Does what node 0 orders."""


@dataclass
class Conclusion:
    """What the other nodes are told at the end: a failure, until something else is known."""

    exit_code: ExitCode = ExitCode.FAILED
    reason: str = ""


@contextmanager
def led(
    fleet: Fleet, where: str, settings: LaunchSettings, *, stop: StopRequest, observer: Observer
) -> Iterator[Conclusion]:
    """Wait for the nodes of a fleet, check that they fit together, and let them go at the end,
    whatever it is.

    Args:
        fleet: The nodes.
        where: ``1 other node at 10.0.0.1:29500``: for what is waited.
        settings: Bounds on waiting, in seconds.
        stop: Ends the wait.
        observer: Is told for what is waited.

    Raises:
        MachineError: they do not fit together; nothing was started.
    """
    conclusion = Conclusion()
    try:
        with observer.status(f"Waiting for {where}"):
            fleet.meet(settings.join_timeout_seconds, stop)
        yield conclusion
    except TorchscaleError as error:
        conclusion.exit_code, conclusion.reason = error.exit_code, error.message
        raise
    finally:
        fleet.close(int(conclusion.exit_code), conclusion.reason)


@contextmanager
def lead_nodes(
    cluster: Cluster,
    token: bytes,
    description: Description,
    settings: LaunchSettings,
    *,
    stop: StopRequest,
    observer: Observer,
) -> Iterator[tuple[Fleet, Conclusion]]:
    """As :func:`led`, of the nodes that connect to this one with a token.

    Args:
        cluster, token: Cluster and token of these nodes.
        description: What must be equal on all nodes.
        settings, stop, observer: As of :func:`led`.

    Raises:
        UsageError: the address that they connect to cannot be used.
        MachineError: they do not fit together; nothing was started.
    """
    leader = Leader(
        listen_as_leader(cluster, settings.join_timeout_seconds, lambda: stop.asked),
        token,
        description,
        cluster.nodes,
        silent_seconds=settings.node_timeout_seconds,
    )
    where = f"{plural(cluster.nodes - 1, 'other node')} at {cluster.master}"
    with led(leader, where, settings, stop=stop, observer=observer) as conclusion:
        yield leader, conclusion


def show_notes(fleet: Fleet, observer: Observer) -> None:
    """What happened between the nodes since the last call."""
    for text in fleet.take_notes():
        observer.note(text)


@dataclass(frozen=True)
class FollowerRole:
    """A node's part in what node 0 leads.

    Attributes:
        name: Name of what node 0 leads, for messages.
        description: What must be equal on all nodes.
        begin: Called once this node has joined; returns what carries out orders.
    """

    name: str
    description: Description
    begin: Callable[[], CarryOut]


def follow_node_0(
    cluster: Cluster,
    token: bytes,
    settings: LaunchSettings,
    *,
    stopping: AbstractContextManager[StopRequest],
    observer: Observer,
    prepare: Callable[[Follower, StopRequest], FollowerRole],
) -> ExitCode | int:
    """Take part as another node than the first, until node 0 says that all is done. Returns the
    exit code: that of node 0, where it says so.

    Args:
        cluster, token: Cluster and token of these nodes.
        settings: Bounds on waiting, in seconds.
        stopping: Handles stop signals while this node takes part.
        observer: Is told for what is waited.
        prepare: Called before this node joins.

    Raises:
        MachineError: node 0 cannot be reached or refuses this node, or the connection to it is
            lost.
        TorchscaleError: ``prepare`` raised it.
    """
    adopt_orphans()
    follower = JoiningFollower(cluster, token, silent_seconds=settings.node_timeout_seconds)
    farewell = ""
    try:
        with stopping as stop:
            part = prepare(follower, stop)
            try:
                with observer.status(f"Waiting for node 0 at {cluster.master}"):
                    follower.join(
                        part.description, settings.join_timeout_seconds, lambda: stop.asked
                    )
            except TorchscaleError:
                if stop.asked:  # which ends the wait
                    return ExitCode.INTERRUPTED
                raise
            observer.note(
                f"{part.name}: node {cluster.node_rank} of {cluster.nodes}, results on node 0"
            )
            last = obey(follower, part.begin(), stop)
            if last is None:
                farewell = "it was interrupted"
                return ExitCode.INTERRUPTED
    finally:
        follower.close(farewell)
    return finish_code(last)


def finish_code(last: Farewell) -> ExitCode | int:
    """The exit code that node 0 gave.

    Raises:
        MachineError: with the reason that node 0 gave.
    """
    if last.exit_code == ExitCode.INTERRUPTED or not last.reason:
        return last.exit_code
    error = MachineError(last.reason)
    error.exit_code = ExitCode.FAILED
    if last.exit_code in set(ExitCode):
        error.exit_code = ExitCode(last.exit_code)
    raise error


def obey(follower: Follower, carry_out: CarryOut, stop: StopRequest) -> Farewell | None:
    """Carry out what is ordered until all is done; ``None`` where this node was interrupted."""
    while not stop.asked:
        try:
            order = follower.orders.get(timeout=POLL_SECONDS)
        except queue.Empty:
            continue
        if isinstance(order, Farewell):
            return order
        carry_out(order)
    return None
