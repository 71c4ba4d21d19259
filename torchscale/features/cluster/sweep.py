"""A sweep over several nodes: node 0 runs it and keeps the run folder, the others take part until
it ends."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from torchscale.config.experiment import Experiment
from torchscale.errors import ExitCode, MachineError, TorchscaleError
from torchscale.features.cluster.cluster import Cluster, find_cluster
from torchscale.features.cluster.engines.choice import choose_engine
from torchscale.features.cluster.nodes.descriptions import NodeDescription
from torchscale.features.cluster.nodes.fleet import Fleet
from torchscale.features.cluster.nodes.follower import Follower
from torchscale.features.cluster.nodes.launch import run_over_nodes
from torchscale.features.cluster.nodes.messages import CheckStep, Start
from torchscale.features.cluster.nodes.part import run_part
from torchscale.features.cluster.nodes.roles import (
    CarryOut,
    Conclusion,
    FollowerRole,
    follow_node_0,
    lead_nodes,
    show_notes,
)
from torchscale.features.cluster.token import read_token
from torchscale.launch.control import LaunchLimits, StopRequest
from torchscale.launch.machine import Detection
from torchscale.measure.context import PlannedRun, stop_on_signals
from torchscale.measure.nodes import ClusterNode, NodeOptions, Planner, SweepNodes
from torchscale.observer import Observer
from torchscale.plan.expand import Plan
from torchscale.schema.cells.kinds import AnyCell
from torchscale.schema.launch.progress import Progress
from torchscale.schema.launch.record import LaunchRecord
from torchscale.schema.launch.task import LaunchTask
from torchscale.util.processes.subprocesses import POLL_SECONDS
from torchscale.util.redaction import redact
from torchscale.util.words import plural


def join_cluster(
    experiment: Experiment, options: NodeOptions, observer: Observer
) -> tuple[Experiment, ClusterNode | None]:
    """As :func:`torchscale.measure.nodes.join_nodes`."""
    asked = experiment.launch.nodes if "nodes" in experiment.launch.model_fields_set else None
    chosen = choose_engine(options, asked, os.environ)
    if chosen is not None:
        from torchscale.features.cluster.engines.sweep import start_sweep  # noqa: PLC0415 - it imports this

        return start_sweep(experiment, chosen, options.ray_address, observer)
    cluster = find_cluster(options, asked, os.environ)
    if cluster is None:
        return experiment, None
    token = read_token(options.token_file, lambda text: observer.note(f"warning: {text}"))
    launch = experiment.launch.model_copy(update={"nodes": cluster.nodes})
    return experiment.model_copy(update={"launch": launch}), _Node(cluster, token)


@dataclass(frozen=True)
class _Node:
    """A node of a sweep, with the secret of all."""

    cluster: Cluster
    token: bytes = field(repr=False)
    detection: Detection | None = None

    def close(self) -> None:
        """Nothing is started before :meth:`lead`."""

    @property
    def is_leader(self) -> bool:
        """Whether this is node 0."""
        return self.cluster.is_leader

    @contextmanager
    def lead(
        self, planned: PlannedRun, stop: StopRequest, observer: Observer
    ) -> Iterator[SweepNodes]:
        """Lead the others."""
        settings, description = planned.experiment.launch, describe_node(planned)
        leading = lead_nodes(
            self.cluster, self.token, description, settings, stop=stop, observer=observer
        )
        with leading as (fleet, conclusion):
            yield led_nodes(fleet, planned, conclusion, stop, observer)

    def follow(self, experiment: Experiment, observer: Observer, make: Planner) -> ExitCode | int:
        """Take part as another node than the first."""

        def prepare(follower: Follower, stop: StopRequest) -> FollowerRole:
            planned = planned_here(make, experiment, follower, observer)
            return FollowerRole(
                name=experiment.experiment_name,
                description=describe_node(planned),
                begin=lambda: part_runner(planned, follower, stop, observer),
            )

        return follow_node_0(
            self.cluster,
            self.token,
            experiment.launch,
            stopping=stop_on_signals(),
            observer=observer,
            prepare=prepare,
        )


def led_nodes(
    fleet: Fleet,
    planned: PlannedRun,
    conclusion: Conclusion,
    stop: StopRequest,
    observer: Observer,
) -> SweepNodes:
    """The nodes of a sweep once they have met; those that have not come are named."""
    settings = planned.experiment.launch
    nodes = _LedNodes(fleet, planned.plan, observer, conclusion)
    nodes.update()
    missing = fleet.missing()
    if missing and not stop.asked:
        observer.note(
            f"warning: {'; '.join(missing)} within {settings.join_timeout_seconds:g} s; "
            f"measuring what {plural(fleet.available, 'node')} can"
        )
    return nodes


class _LedNodes:
    """The nodes of a sweep that this process leads."""

    def __init__(
        self, fleet: Fleet, plan: Plan, observer: Observer, conclusion: Conclusion
    ) -> None:
        self._fleet, self._plan, self._observer = fleet, plan, observer
        self._conclusion = conclusion
        self._put_off: set[str] = set()

    @property
    def run_all(self) -> bool:
        """Whether also launches on a single node are theirs, and not of this machine."""
        return self._fleet.here is None

    def update(self) -> None:
        """Let nodes in that have come since the last call, and show what happened meanwhile."""
        self._fleet.admit_late()
        show_notes(self._fleet, self._observer)

    def can_run(self, cell: AnyCell) -> bool:
        """Whether as many nodes are there as ``cell`` needs."""
        possible = self._plan.nodes_of(cell.world_size) <= self._fleet.available
        if possible:
            self._put_off.discard(cell.id)
        else:
            self._put_off.add(cell.id)
        return possible

    def run(
        self,
        task: LaunchTask,
        directory: Path,
        *,
        limits: LaunchLimits,
        extra_env: Mapping[str, str],
        stop: StopRequest,
        on_progress: Callable[[Progress], None],
    ) -> LaunchRecord:
        """Run a launch over as many nodes as it needs. Returns its record."""
        world_size = task.cell.world_size
        nodes = self._fleet.layout(
            self._plan.nodes_of(world_size), self._plan.local_size(world_size)
        )
        return run_over_nodes(
            task,
            directory,
            self._fleet,
            nodes,
            limits=limits,
            extra_env=extra_env,
            stop=stop,
            on_progress=on_progress,
        )

    def conclude(self, exit_code: ExitCode, interrupted: bool) -> None:
        """The sweep has ended: say which cells wait for nodes, and what the other nodes are
        told."""
        show_notes(self._fleet, self._observer)
        self._conclusion.exit_code = exit_code
        if interrupted:
            self._conclusion.reason = "interrupted on node 0"
        elif self._put_off:
            where = "" if self.run_all else " on every node"
            self._observer.note(
                f"{plural(len(self._put_off), 'cell')} could not be measured for lack of nodes: "
                f"{'; '.join(self._fleet.missing())}. The same command{where} continues"
            )


def planned_here(
    make: Planner, experiment: Experiment, follower: Follower, observer: Observer
) -> PlannedRun:
    """The plan of this node; node 0 is told where there is none."""
    try:
        return make(experiment, observer)
    except TorchscaleError as error:
        with contextlib.suppress(TorchscaleError):  # what is wrong here is said below
            follower.join(None, POLL_SECONDS, lambda: True, error.message)
        raise


def part_runner(
    planned: PlannedRun, follower: Follower, stop: StopRequest, observer: Observer
) -> CarryOut:
    """Runs this node's part of the launches that node 0 orders."""
    cells = {cell.id: cell for cell in planned.plan.to_run}

    def run(order: Start | CheckStep) -> None:
        if not isinstance(order, Start):
            raise MachineError("node 0 wants checks of this node, which takes part in a sweep")
        cell = cells.get(order.cell_id)
        if cell is None:
            raise MachineError(f"node 0 wants {order.cell_id[:100]}, which this node cannot run")
        observer.detail(
            f"{cell.id}, launch {order.launch + 1}, node {order.node_rank} of {order.nodes}"
        )
        run_part(
            order,
            cell,
            plan=planned.plan,
            follower=follower,
            experiment=planned.experiment,
            stop=stop,
        )

    return run


def describe_node(planned: PlannedRun) -> NodeDescription:
    """What must be equal on all nodes."""
    plan, environment = planned.plan, planned.machine.environment
    names = {
        info.name
        for info in environment.devices
        if info.index in plan.device_indices and info.kind == plan.device
    }
    return NodeDescription(
        hostname=socket.gethostname(),
        versions=environment.versions,
        device=plan.device,
        device_names=tuple(sorted(names)) or (environment.cpu,),
        devices_per_node=plan.devices_per_node or len(plan.device_indices),
        threads_per_rank=plan.threads_per_rank,
        plan_hash=plan.hash,
        config=_flat(planned.experiment.model_dump(mode="json")),
    )


def _flat(config: Mapping[str, object]) -> dict[str, str]:
    """``section.key`` → value as JSON, secrets redacted."""
    values: dict[str, str] = {}
    for name, value in config.items():
        if not isinstance(value, dict):
            values[name] = json.dumps(value)
            continue
        for key, item in value.items():
            has_secrets = (name, key) == ("launch", "env") and isinstance(item, dict)
            shown = (
                {variable: redact(variable, str(text)) for variable, text in item.items()}
                if has_secrets
                else item
            )
            values[f"{name}.{key}"] = json.dumps(shown)
    return values
