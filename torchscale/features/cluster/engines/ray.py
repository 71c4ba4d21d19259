"""Ray: an actor on each of the nodes of a placement group, which keeps an agent there and carries
what is sent and received. There is no token and no port of ours; authentication is Ray's."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torchscale.errors import MachineError, UsageError
from torchscale.features.cluster.engines.engine import AGENT, EngineNode, Role
from torchscale.features.cluster.engines.ray_actor import AgentActor
from torchscale.features.cluster.token import TOKEN_VARIABLE
from torchscale.util.ray_connection import connected
from torchscale.util.text import one_line
from torchscale.util.words import plural

_PLACE_SECONDS = 60.0
"""Time limit for Ray to find the nodes. It takes milliseconds where they are free; an autoscaler
that has to start machines takes minutes: start the command again then."""
_START_SECONDS = 60.0
"""Time limit for an actor to start: 0.5 s, more where Ray starts its first worker from a cold
disk."""
_POLL_SECONDS = 5.0
"""An actor's answer comes at the latest after this time, however long its agent says nothing."""
_ANSWER_SECONDS = 60.0
"""Time limit for an answer beyond that: a node that is gone is noticed by Ray itself after 10 to
63 s."""
_CARRIED = ("NCCL_", "RCCL_", "UCX_", "FI_", "GLOO_", "TORCH_", "TORCHSCALE_")
"""Beginnings of variables that agents get from the shell of the command, since they change what is
measured. All else is as Ray was started on each node; ``launch.env`` reaches the ranks as ever."""
_CHUNK = 1 << 20
_METHODS = 4
"""Methods of an actor that run at once: reading waits while others write and stop."""


class RayActors:
    """Starts agents in actors of a Ray cluster."""

    name = "ray"

    def __init__(self, role: Role, nodes: int | None, address: str | None) -> None:
        """
        Args:
            role: What the agents take part in.
            nodes: How many nodes; ``None``: all that have GPUs, or all where none has.
            address: Of the cluster; ``None``: ``RAY_ADDRESS``, or the cluster of this machine.

        Raises:
            UsageError: Ray is not installed.
            MachineError: no cluster answers, or it has not as many nodes free.
        """
        self._arguments = (AGENT, role, "detached")
        self._stack = contextlib.ExitStack()
        self.nodes: list[EngineNode] = []
        self._lines: dict[int, socket.socket] = {}
        self._used: set[int] = set()
        try:
            self._ray = self._stack.enter_context(connected(address))
            self._actors = self._place(nodes)
        except BaseException:
            self._stack.close()
            raise

    def _place(self, nodes: int | None) -> list[Any]:
        ray = self._ray
        alive = [node for node in ray.nodes() if node["Alive"]]
        kind, suited = _suited(alive)
        wanted = len(suited) if nodes is None else nodes
        if not suited:
            raise MachineError(
                f"no node of the Ray cluster has a GPU or a CPU, of {plural(len(alive), 'node')}",
                hint="add nodes (`ray start --address=…`); --num-cpus of theirs is over 0",
            )
        if wanted > len(suited):
            raise UsageError(
                f"--nnodes {wanted}: the Ray cluster has {len(suited)} {kind}",
                hint=f"add nodes (`ray start --address=…`), or ask for {len(suited)} at most",
            )
        bundle = _bundle(suited)
        from ray.util import (  # noqa: PLC0415 - an extra
            placement_group,
            remove_placement_group,
        )

        group = placement_group([bundle] * wanted, strategy="STRICT_SPREAD")
        self._stack.callback(_quietly, remove_placement_group, group)
        try:
            ray.get(group.ready(), timeout=_PLACE_SECONDS)
        except ray.exceptions.GetTimeoutError as error:
            raise MachineError(
                f"the Ray cluster has not {plural(wanted, 'node')} with {_amounts(bundle)} free "
                f"within {_PLACE_SECONDS:g} s: free in all are "
                f"{_amounts(ray.available_resources())} on {plural(len(alive), 'node')}",
                hint="wait for other jobs (`ray status` shows them), or ask for fewer --nnodes",
            ) from error
        self._group, self._bundle = group, bundle
        actors = [self._start_actor(place) for place in range(wanted)]
        here = ray.util.get_node_ip_address()
        found = [self._describe(actor) for actor in actors]
        order = sorted(range(wanted), key=lambda place: _place_key(found[place], here))
        self._places = order
        self.nodes = [found[place] for place in order]
        return [actors[place] for place in order]

    def _start_actor(self, place: int) -> Any:  # noqa: ANN401 - Ray's own handle
        from ray.util.scheduling_strategies import (  # noqa: PLC0415 - an extra
            PlacementGroupSchedulingStrategy,
        )

        strategy = PlacementGroupSchedulingStrategy(
            placement_group=self._group, placement_group_bundle_index=place
        )
        made = self._ray.remote(AgentActor).options(
            num_cpus=self._bundle.get("CPU", 0),
            num_gpus=self._bundle.get("GPU", 0),
            max_concurrency=_METHODS,
            scheduling_strategy=strategy,
        )
        return made.remote()

    def _describe(self, actor: Any) -> EngineNode:  # noqa: ANN401 - Ray's own handle
        try:
            name, address = self._ray.get(actor.node.remote(), timeout=_START_SECONDS)
        except Exception as error:
            raise MachineError(
                f"Ray cannot start an actor: {_said(error)}",
                hint="the nodes need the same version of torchscale as this machine",
            ) from error
        return EngineNode(name, address)

    def open(self, rank: int) -> socket.socket:
        """Start a node's agent, in a new actor where the last one has died: on another node where
        Ray has put that in the place of one that is gone.

        Raises:
            MachineError: Ray cannot start it, or has no node for it.
        """
        variables = {
            name: value
            for name, value in os.environ.items()
            if name.startswith(_CARRIED) and name != TOKEN_VARIABLE
        }
        arguments = (list(self._arguments), str(Path.cwd()), variables)
        try:
            if rank in self._used:
                self._end_line(rank)
                _quietly(self._ray.kill, self._actors[rank])
                self._require_nodes()
                self._actors[rank] = self._start_actor(self._places[rank])
                self.nodes[rank] = self._describe(self._actors[rank])
            self._used.add(rank)
            self._ray.get(self._actors[rank].start.remote(*arguments), timeout=_START_SECONDS)
        except MachineError:
            raise
        except Exception as error:  # of Ray, or what the actor met
            if isinstance(error.__cause__, KeyboardInterrupt):  # in the midst of Ray's own code
                raise error.__cause__ from error
            raise MachineError(f"Ray cannot start its agent: {_said(error)}") from error
        ours, theirs = socket.socketpair()
        self._lines[rank] = theirs
        for carry in (self._carry_out, self._carry_in):
            threading.Thread(
                target=carry, args=(self._actors[rank], theirs), name="ray", daemon=True
            ).start()
        return ours

    def _require_nodes(self) -> None:
        """
        Raises:
            MachineError: fewer nodes than there are bundles, so that an actor would be waited for
                in vain.
        """
        _, suited = _suited([node for node in self._ray.nodes() if node["Alive"]])
        if len(suited) < len(self._actors):
            raise MachineError(f"the Ray cluster has {plural(len(suited), 'node')} left")

    def _carry_out(self, actor: Any, line: socket.socket) -> None:  # noqa: ANN401 - Ray's own handle
        """What the agent writes → the line, until either ends."""
        with contextlib.suppress(OSError, *self._gone):
            while True:
                answer = actor.read.remote(_POLL_SECONDS)
                data = self._ray.get(answer, timeout=_POLL_SECONDS + _ANSWER_SECONDS)
                if data is None:
                    break
                line.sendall(data)
        with contextlib.suppress(OSError):
            line.shutdown(socket.SHUT_RDWR)

    def _carry_in(self, actor: Any, line: socket.socket) -> None:  # noqa: ANN401 - Ray's own handle
        """The line → what the agent reads, until either ends."""
        with contextlib.suppress(OSError, *self._gone):
            while data := line.recv(_CHUNK):
                self._ray.get(actor.write.remote(data), timeout=_ANSWER_SECONDS)
            self._ray.get(actor.stop.remote(), timeout=_ANSWER_SECONDS)

    @property
    def _gone(self) -> tuple[type[Exception], ...]:
        """What a call raises whose actor or node is gone, or does not answer."""
        exceptions = self._ray.exceptions
        return (exceptions.RayError, exceptions.GetTimeoutError)

    def why_ended(self, rank: int) -> str:
        """What Ray says of the node's actor, or the last thing that its agent said."""
        try:
            errors = self._ray.get(self._actors[rank].errors.remote(), timeout=_POLL_SECONDS)
        except Exception as error:  # noqa: BLE001 - of Ray: the actor or the node is gone
            return _said(error)
        lines = [line for line in errors.splitlines() if line.strip()]
        return one_line(lines[-1]) if lines else "its agent ended"

    def close(self) -> None:
        """End all actors, and the connection."""
        for actor in self._actors:
            _quietly(self._ray.kill, actor)
        for rank in list(self._lines):
            self._end_line(rank)
        self._stack.close()

    def _end_line(self, rank: int) -> None:
        """End the line of a node, and with it the threads that carry it."""
        line = self._lines.pop(rank, None)
        if line is not None:
            with contextlib.suppress(OSError):  # either side has ended it
                line.shutdown(socket.SHUT_RDWR)
            line.close()


def _place_key(node: EngineNode, here: str) -> tuple[object, ...]:
    """This machine first, then by the numbers in the names: ``n2`` before ``n10``."""
    parts = re.split(r"(\d+)", node.name)
    return (node.address != here, [int(part) if part.isdigit() else part for part in parts])


def _suited(alive: list[dict[str, Any]]) -> tuple[str, list[dict[str, Any]]]:
    """The nodes that may be measured, with what they are called: those with GPUs, else those with
    cores. A head is often told to have none, so that it gets no work."""
    with_gpus = [node for node in alive if node["Resources"].get("GPU")]
    if with_gpus:
        return "nodes with GPUs", with_gpus
    return "nodes with CPUs", [node for node in alive if node["Resources"].get("CPU")]


def _bundle(nodes: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """What a node is asked for, so that Ray gives it to nobody else meanwhile: all GPUs that every
    node has, else all cores."""
    resources = [node["Resources"] for node in nodes]
    gpus = min(each.get("GPU", 0) for each in resources)
    cpus = min(each.get("CPU", 0) for each in resources)
    if gpus:
        return {"GPU": gpus, "CPU": min(1, cpus)}
    return {"CPU": cpus}


def _amounts(resources: Mapping[str, float]) -> str:
    """``8 GPUs and 1 CPU``."""
    shown = [plural(int(resources[name]), name) for name in ("GPU", "CPU") if resources.get(name)]
    return " and ".join(shown) or "no CPU"


def _said(error: Exception) -> str:
    """What Ray says, in a line without a full stop: its reasons are paragraphs with the trace of
    the actor."""
    lines = [line.strip().rstrip(".") for line in str(error).splitlines() if line.strip()]
    return one_line(f"{type(error).__name__}: {lines[0] if lines else 'no reason'}")[:300]


def _quietly(call: Any, *arguments: object) -> None:  # noqa: ANN401 - Ray's functions have no types
    """Call Ray where it does not matter whether what is meant is still there."""
    with contextlib.suppress(Exception):
        call(*arguments)
