"""A sweep over several nodes: node 0 runs it and keeps the run folder, the others take part until
it ends."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from torchscale.config.experiment import Experiment
from torchscale.errors import ExitCode, MachineError, TorchscaleError
from torchscale.launch.cluster import Cluster, ClusterOptions, find_cluster, read_token
from torchscale.launch.control import LaunchLimits, StopRequest
from torchscale.measure.context import PlannedRun, plan_run, stop_on_signals
from torchscale.nodes.follower import Follower
from torchscale.nodes.launch import run_over_nodes, run_part
from torchscale.nodes.leader import Leader
from torchscale.nodes.network import listen_as_leader
from torchscale.observer import Observer
from torchscale.plan.expand import Plan
from torchscale.report.text.labels import plural
from torchscale.schema.cells.kinds import AnyCell
from torchscale.schema.launch.nodes import Finish, NodeDescription, Start
from torchscale.schema.launch.progress import Progress
from torchscale.schema.launch.record import LaunchRecord
from torchscale.schema.launch.task import LaunchTask
from torchscale.util.process import POLL_SECONDS, adopt_orphans
from torchscale.util.redaction import redact

Planner = Callable[[Experiment, Observer], PlannedRun]
"""Plans an experiment for the machine at hand."""


def join_cluster(
    experiment: Experiment,
    *,
    nodes: int | None = None,
    node_rank: int | None = None,
    master: str | None = None,
    token_file: Path | None = None,
) -> tuple[Experiment, Cluster | None, bytes]:
    """The experiment with the number of its nodes, which node this is, and the nodes' token. On a
    single node: the experiment as it is, ``None`` and nothing.

    Args:
        experiment: Its ``launch.nodes`` counts where ``nodes`` is not given.
        nodes, node_rank, master: Which node of which cluster this is; what is not given is looked
            for in the environment.
        token_file: Holds the nodes' secret; by default ``TORCHSCALE_TOKEN`` does.

    Raises:
        UsageError: an option or variable is missing or wrong.
    """
    asked = experiment.launch.nodes if "nodes" in experiment.launch.model_fields_set else None
    options = ClusterOptions(nodes, node_rank, master, token_file)
    cluster = find_cluster(options, asked, os.environ)
    if cluster is None:
        return experiment, None, b""
    token = read_token(token_file)
    launch = experiment.launch.model_copy(update={"nodes": cluster.nodes})
    return experiment.model_copy(update={"launch": launch}), cluster, token


class SweepNodes:
    """The nodes of a sweep, as the loop over its launches needs them."""

    def __init__(self, leader: Leader, plan: Plan, observer: Observer) -> None:
        self._leader, self._plan, self._observer = leader, plan, observer
        self._put_off: set[str] = set()
        self.exit_code = ExitCode.FAILED
        self.reason = ""

    def update(self) -> None:
        """Let nodes in that have come since the last call, and show what happened meanwhile."""
        self._leader.admit_late()
        self._show_notes()

    def can_run(self, cell: AnyCell) -> bool:
        """Whether as many nodes are there as ``cell`` needs."""
        possible = self._plan.nodes_of(cell.world_size) <= self._leader.available
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
        nodes = self._leader.layout(
            self._plan.nodes_of(world_size), self._plan.local_size(world_size)
        )
        return run_over_nodes(
            task,
            directory,
            self._leader,
            nodes,
            limits=limits,
            extra_env=extra_env,
            stop=stop,
            on_progress=on_progress,
        )

    def conclude(self, exit_code: ExitCode, interrupted: bool) -> None:
        """The sweep has ended: say which cells wait for nodes, and what the other nodes are
        told."""
        self._show_notes()
        self.exit_code = exit_code
        if interrupted:
            self.reason = "interrupted on node 0"
        elif self._put_off:
            self._observer.note(
                f"{plural(len(self._put_off), 'cell')} could not be measured for lack of nodes: "
                f"{'; '.join(self._leader.missing())}. The same command on every node continues"
            )

    def _show_notes(self) -> None:
        for text in self._leader.take_notes():
            self._observer.note(text)


@contextmanager
def leading(
    cluster: Cluster | None,
    token: bytes,
    planned: PlannedRun,
    stop: StopRequest,
    observer: Observer,
) -> Iterator[SweepNodes | None]:
    """Wait for the other nodes, check them, and let them go at the end, whatever it is; ``None``
    without a cluster.

    Raises:
        UsageError: the address that they connect to cannot be used.
        MachineError: they do not fit together; nothing was started.
    """
    if cluster is None:
        yield None
        return
    settings = planned.experiment.launch
    leader = Leader(
        listen_as_leader(cluster, settings.join_timeout_seconds, lambda: stop.asked),
        token,
        describe_node(planned),
        cluster.nodes,
        silent_seconds=settings.node_timeout_seconds,
    )
    nodes = SweepNodes(leader, planned.plan, observer)
    try:
        others = plural(cluster.nodes - 1, "other node")
        with observer.status(f"Waiting for {others} at {cluster.master}"):
            leader.meet(settings.join_timeout_seconds, stop)
        nodes.update()
        missing = leader.missing()
        if missing and not stop.asked:
            observer.note(
                f"warning: {'; '.join(missing)} within {settings.join_timeout_seconds:g} s; "
                f"measuring what {plural(leader.available, 'node')} can"
            )
        yield nodes
    except TorchscaleError as error:
        nodes.exit_code, nodes.reason = error.exit_code, error.message
        raise
    finally:
        leader.close(int(nodes.exit_code), nodes.reason)


def follow(
    experiment: Experiment,
    cluster: Cluster,
    token: bytes,
    observer: Observer,
    make: Planner = plan_run,
) -> ExitCode | int:
    """Take part in a sweep as another node than the first, until it ends. Returns the exit code:
    that of node 0, where it says so. ``make`` plans the experiment as node 0 does.

    Raises:
        MachineError: node 0 cannot be reached or refuses this node, or the connection to it is
            lost.
        TorchscaleError: this node cannot take part; node 0 is told.
    """
    adopt_orphans()
    settings = experiment.launch
    follower = Follower(cluster, token, silent_seconds=settings.node_timeout_seconds)
    farewell = ""
    try:
        with stop_on_signals() as stop:
            planned = _planned(make, experiment, follower, observer)
            try:
                with observer.status(f"Waiting for node 0 at {cluster.master}"):
                    follower.join(
                        describe_node(planned), settings.join_timeout_seconds, lambda: stop.asked
                    )
            except TorchscaleError:
                if stop.asked:  # which ends the wait
                    return ExitCode.INTERRUPTED
                raise
            observer.note(
                f"{experiment.experiment_name}: node {cluster.node_rank} of {cluster.nodes}, "
                "results on node 0"
            )
            last = _obey(planned, follower, stop, observer)
            if last is None:
                farewell = "it was interrupted"
                return ExitCode.INTERRUPTED
    finally:
        follower.close(farewell)
    return finish_code(last)


def finish_code(last: Finish) -> ExitCode | int:
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


def _planned(
    make: Planner, experiment: Experiment, follower: Follower, observer: Observer
) -> PlannedRun:
    """The plan of this node; node 0 is told where there is none."""
    try:
        return make(experiment, observer)
    except TorchscaleError as error:
        with contextlib.suppress(TorchscaleError):  # what is wrong here is said below
            follower.join(None, POLL_SECONDS, lambda: True, error.message)
        raise


def _obey(
    planned: PlannedRun, follower: Follower, stop: StopRequest, observer: Observer
) -> Finish | None:
    """Run what node 0 orders until it says that the sweep is over; ``None`` where this node was
    interrupted."""
    cells = {cell.id: cell for cell in planned.plan.to_run}
    while not stop.asked:
        try:
            order = follower.orders.get(timeout=POLL_SECONDS)
        except queue.Empty:
            continue
        if isinstance(order, Finish):
            return order
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
    return None


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
