"""``validate`` over several nodes: each node's checks, a collective over all, and pairs of nodes;
node 0 says what they mean."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from torchscale.config.sections.launch import LaunchSettings
from torchscale.errors import ExitCode, MachineError
from torchscale.features.cluster.cluster import Cluster, find_cluster
from torchscale.features.cluster.nodes.follower import Follower
from torchscale.features.cluster.nodes.messages import CheckDescription, CheckStep, Start
from torchscale.features.cluster.nodes.roles import (
    CarryOut,
    FollowerRole,
    follow_node_0,
    lead_nodes,
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
from torchscale.measure.context import stop_on_signals
from torchscale.measure.nodes import NodeOptions
from torchscale.observer import SILENT, Observer
from torchscale.schema.node.fleet import FleetValidation
from torchscale.util.files import atomic_write_model
from torchscale.util.processes.subprocesses import adopt_orphans


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


def join_fleet(options: NodeOptions, observer: Observer = SILENT) -> tuple[Cluster | None, bytes]:
    """Which node of which cluster this is, and the nodes' token; ``None`` and nothing for a single
    node.

    Raises:
        UsageError: an option or variable is missing or wrong.
    """
    cluster = find_cluster(options, None, os.environ)
    if cluster is None:
        return None, b""
    return cluster, read_token(options.token_file, lambda text: observer.note(f"warning: {text}"))


def validate_fleet(
    cluster: Cluster, token: bytes, options: FleetOptions, *, observer: Observer = SILENT
) -> FleetOutcome:
    """Check all nodes, as node 0.

    Raises:
        UsageError: the address that the others connect to cannot be used.
        MachineError: the nodes run different commands or do not reach each other.
    """
    adopt_orphans()
    with stop_on_signals() as stop, _leading(cluster, token, options, stop, observer) as fleet:
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
        atomic_write_model(output_dir / own.acceptance.folder / FLEET, validation)


def follow_fleet(
    cluster: Cluster, token: bytes, options: FleetOptions, *, observer: Observer = SILENT
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

    return follow_node_0(
        cluster,
        token,
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


@contextmanager
def _leading(
    cluster: Cluster, token: bytes, options: FleetOptions, stop: StopRequest, observer: Observer
) -> Iterator[FleetSteps]:
    """Wait for the other nodes; whatever happens, they are let go."""
    description, bounds = _description(options), LaunchSettings()
    with (
        tempfile.TemporaryDirectory(prefix="torchscale-fleet-") as name,
        lead_nodes(cluster, token, description, bounds, stop=stop, observer=observer) as (
            leader,
            conclusion,
        ),
    ):
        show_notes(leader, observer)
        yield FleetSteps(leader, options, stop, observer, Path(name), conclusion=conclusion)
