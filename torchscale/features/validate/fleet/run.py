"""``validate`` over several nodes: each node's checks, a collective over all, and pairs of nodes;
node 0 says what they mean."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import TypeAdapter

from torchscale.config.sections.launch import LaunchSettings
from torchscale.errors import ExitCode, MachineError, UsageError
from torchscale.features.cluster.cluster import Cluster, find_cluster
from torchscale.features.cluster.engines.choice import choose_engine
from torchscale.features.cluster.engines.engine import NodeEngine
from torchscale.features.cluster.engines.fleet import EngineFleet
from torchscale.features.cluster.nodes.descriptions import CheckDescription
from torchscale.features.cluster.nodes.fleet import Fleet
from torchscale.features.cluster.nodes.follower import Follower
from torchscale.features.cluster.nodes.messages import CheckStep, Start
from torchscale.features.cluster.nodes.roles import (
    CarryOut,
    Conclusion,
    FollowerRole,
    follow_node_0,
    lead_nodes,
    led,
    show_notes,
)
from torchscale.features.cluster.token import read_token
from torchscale.features.validate.fleet.checks import take_part
from torchscale.features.validate.fleet.node_part import FleetOptions, NodePart
from torchscale.features.validate.fleet.steps import FleetSteps
from torchscale.features.validate.health.answer import exit_code
from torchscale.features.validate.names import FLEET
from torchscale.features.validate.run.validate import was_interrupted
from torchscale.launch.control import StopRequest
from torchscale.launch.machine import Detection
from torchscale.measure.context import stop_on_signals
from torchscale.measure.nodes import NodeOptions
from torchscale.observer import SILENT, Observer
from torchscale.schema.node.fleet import FleetValidation
from torchscale.util.files import atomic_write_model
from torchscale.util.processes.subprocesses import adopt_orphans
from torchscale.util.words import plural

_OPTIONS = TypeAdapter(FleetOptions)


@dataclass(frozen=True)
class FleetOutcome:
    """The fleet, and how the command ends."""

    validation: FleetValidation
    interrupted: bool

    @property
    def exit_code(self) -> ExitCode:
        """130 if interrupted, 3 where a node lacks what was required; of an acceptance that of its
        verdict, else 1 where the fleet is not fit."""
        if self.interrupted:
            return ExitCode.INTERRUPTED
        if any(node.lacks_required for node in self.validation.nodes):
            return ExitCode.UNABLE
        return exit_code(self.validation)


@dataclass(frozen=True)
class JoinedNodes:
    """The nodes to check: those of an engine, or of a cluster whose token all share."""

    engine: NodeEngine | None = None
    cluster: Cluster | None = None
    token: bytes = field(default=b"", repr=False)

    @property
    def is_leader(self) -> bool:
        """Whether this process leads."""
        return self.cluster is None or self.cluster.is_leader


def join_fleet(options: NodeOptions, observer: Observer = SILENT) -> JoinedNodes | None:
    """The nodes to check; ``None`` for a single node.

    Raises:
        UsageError: an option or variable is missing or wrong.
        MachineError: an engine does not answer.
    """
    chosen = choose_engine(options, None, os.environ)
    if chosen is not None:
        return JoinedNodes(chosen.start("check", options.ray_address, observer))
    cluster = find_cluster(options, None, os.environ)
    if cluster is None:
        return None
    token = read_token(options.token_file, lambda text: observer.note(f"warning: {text}"))
    return JoinedNodes(cluster=cluster, token=token)


def validate_fleet(
    nodes: JoinedNodes, options: FleetOptions, *, observer: Observer = SILENT
) -> FleetOutcome:
    """Check all nodes, as the process that leads.

    Raises:
        UsageError: the address that the others connect to cannot be used.
        MachineError: the nodes run different commands or do not reach each other.
    """
    adopt_orphans()
    with stop_on_signals() as stop, _leading(nodes, options, stop, observer) as fleet:
        validation = fleet.check()
        found = [node.validation for node in validation.nodes if node.validation is not None]
        interrupted = stop.asked or any(map(was_interrupted, found))
        outcome = FleetOutcome(validation, interrupted)
        fleet.conclusion.exit_code = outcome.exit_code
        _keep(validation, options.output_dir)
        return outcome


def _keep(validation: FleetValidation, output_dir: Path) -> None:
    """Write the answer over all nodes into node 0's folder of its acceptance, for `report`."""
    own = validation.nodes[0].validation
    if own is not None and own.acceptance is not None and own.acceptance.folder:
        folder = output_dir / own.acceptance.folder
        folder.mkdir(parents=True, exist_ok=True)  # where node 0 is not here, and shares no disk
        atomic_write_model(folder / FLEET, validation)


def follow_fleet(
    nodes: JoinedNodes, options: FleetOptions, *, observer: Observer = SILENT
) -> ExitCode | int:
    """Take part as another node than the first, until it says that all is done. Returns the exit
    code of node 0.

    Raises:
        MachineError: node 0 cannot be reached or refuses this node, or the connection to it is
            lost.
    """

    def prepare(follower: Follower, stop: StopRequest) -> FollowerRole:
        return FollowerRole(
            name="validate",
            description=_description(options),
            begin=lambda: _checker(follower, options, stop, observer),
        )

    if nodes.cluster is None:  # agents of an engine are programs of their own
        raise UsageError("an engine's nodes follow by themselves")
    return follow_node_0(
        nodes.cluster,
        nodes.token,
        LaunchSettings(),
        stopping=stop_on_signals(),
        observer=observer,
        prepare=prepare,
    )


def _checker(
    follower: Follower, options: FleetOptions, stop: StopRequest, observer: Observer
) -> CarryOut:
    """Runs this node's part of the steps that node 0 orders."""
    here = NodePart(options, follower.leader_address, follower.local_address, observer)

    def run(order: Start | CheckStep) -> None:
        if not isinstance(order, CheckStep):
            raise MachineError("node 0 wants a launch of this node, which takes part in validate")
        take_part(order, follower, here.run, stop)

    return run


def _description(options: FleetOptions) -> CheckDescription:
    return CheckDescription(hostname=socket.gethostname(), settings=options.settings)


def prepare_check(
    content: bytes, follower: Follower, detection: Detection | None, stop: StopRequest
) -> FollowerRole:
    """An agent's part in a check."""
    del detection  # the checks examine the machine themselves
    options = _OPTIONS.validate_json(content)
    return FollowerRole(
        name="validate",
        description=_description(options),
        begin=lambda: _checker(follower, options, stop, SILENT),
    )


@contextmanager
def _leading(
    nodes: JoinedNodes, options: FleetOptions, stop: StopRequest, observer: Observer
) -> Iterator[FleetSteps]:
    """Wait for the nodes; whatever happens, they are let go."""
    with (
        tempfile.TemporaryDirectory(prefix="torchscale-fleet-") as name,
        _led(nodes, options, stop, observer) as (fleet, conclusion),
    ):
        show_notes(fleet, observer)
        yield FleetSteps(fleet, options, stop, observer, Path(name), conclusion=conclusion)


@contextmanager
def _led(
    nodes: JoinedNodes, options: FleetOptions, stop: StopRequest, observer: Observer
) -> Iterator[tuple[Fleet, Conclusion]]:
    description, bounds = _description(options), LaunchSettings()
    if nodes.cluster is not None:
        with lead_nodes(
            nodes.cluster, nodes.token, description, bounds, stop=stop, observer=observer
        ) as leading:
            yield leading
    elif nodes.engine is not None:
        fleet = EngineFleet(nodes.engine, "check")
        where = f"{plural(fleet.nodes, 'agent')} of {nodes.engine.name}"
        try:
            fleet.begin(description, _OPTIONS.dump_json(options), bounds.node_timeout_seconds)
        except BaseException:
            fleet.close(int(ExitCode.UNABLE))
            raise
        with led(fleet, where, bounds, stop=stop, observer=observer) as conclusion:
            yield fleet, conclusion
