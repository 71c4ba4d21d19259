"""A sweep over the nodes of an engine: this process leads, the agents of all nodes take part."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from torchscale.config.dump import to_json
from torchscale.config.experiment import Experiment
from torchscale.errors import ExitCode, UsageError
from torchscale.features.cluster.engines.choice import Chosen
from torchscale.features.cluster.engines.engine import NodeEngine
from torchscale.features.cluster.engines.fleet import EngineFleet
from torchscale.features.cluster.nodes.follower import Follower
from torchscale.features.cluster.nodes.roles import FollowerRole, led
from torchscale.features.cluster.sweep import describe_node, led_nodes, part_runner
from torchscale.launch.control import StopRequest
from torchscale.launch.machine import Detection
from torchscale.measure.context import PlannedRun, plan_run
from torchscale.measure.nodes import Planner, SweepNodes
from torchscale.observer import SILENT, Observer
from torchscale.schema.cells.kinds import training_workload
from torchscale.schema.node.machine import Machine
from torchscale.util.redaction import note_removed, note_secrets
from torchscale.util.words import plural


class EngineSweep:
    """The process that leads a sweep over the nodes of an engine, and keeps the run folder."""

    is_leader = True

    def __init__(self, engine: NodeEngine) -> None:
        """Start the agents."""
        self._fleet = EngineFleet(engine, "sweep")
        self._where = f"{plural(len(engine.nodes), 'agent')} of {engine.name}"

    @property
    def detection(self) -> Detection:
        """Of the first node."""
        return self

    def result(self) -> Machine:
        """The machine that the sweep is planned for: the first node.

        Raises:
            MachineError: it cannot be examined.
        """
        return self._fleet.machine()

    @contextmanager
    def lead(
        self, planned: PlannedRun, stop: StopRequest, observer: Observer
    ) -> Iterator[SweepNodes]:
        """As :meth:`torchscale.measure.nodes.ClusterNode.lead`.

        Raises:
            UsageError: a cell is a script of the user's own, which runs on one machine.
            MachineError: the nodes do not fit together.
        """
        settings, name = planned.experiment.launch, planned.machine.environment.hostname
        description = describe_node(planned).model_copy(update={"hostname": name})
        content = write_experiment(planned.experiment)
        self._fleet.begin(description, content, settings.node_timeout_seconds)
        with led(self._fleet, self._where, settings, stop=stop, observer=observer) as conclusion:
            _refuse_scripts(planned)
            yield led_nodes(self._fleet, planned, conclusion, stop, observer)

    def close(self) -> None:
        """As :meth:`torchscale.measure.nodes.ClusterNode.close`."""
        self._fleet.close(int(ExitCode.UNABLE))

    def follow(self, experiment: Experiment, observer: Observer, make: Planner) -> ExitCode | int:
        """Nothing follows a process that leads."""
        raise NotImplementedError


def start_sweep(
    experiment: Experiment, chosen: Chosen, address: str | None, observer: Observer
) -> tuple[Experiment, EngineSweep]:
    """The experiment over all nodes of an engine, whose agents are started.

    Raises:
        UsageError: the engine has fewer nodes than asked for.
        MachineError: the engine does not answer.
    """
    engine = chosen.start("sweep", address, observer)
    launch = experiment.launch.model_copy(update={"nodes": len(engine.nodes)})
    return experiment.model_copy(update={"launch": launch}), EngineSweep(engine)


def write_experiment(experiment: Experiment) -> bytes:
    """An experiment with its secrets, for the agents."""
    content = {"config": json.loads(to_json(experiment)), "hidden": dict(experiment.hidden)}
    return json.dumps(content).encode()


def read_experiment(content: bytes) -> Experiment:
    """What :func:`write_experiment` wrote."""
    read = json.loads(content)
    experiment = Experiment.model_validate(read["config"]).with_hidden(read["hidden"])
    note_secrets(experiment.launch.env)  # else logs of this node have them
    for shown, value in experiment.hidden.items():
        note_removed(str(value), shown)
    return experiment


def prepare_sweep(
    content: bytes, follower: Follower, detection: Detection | None, stop: StopRequest
) -> FollowerRole:
    """An agent's part in a sweep.

    Raises:
        TorchscaleError: this node cannot take part.
    """
    experiment = read_experiment(content)
    planned = plan_run(experiment, SILENT, detection=detection)
    return FollowerRole(
        name=experiment.experiment_name,
        description=describe_node(planned),
        begin=lambda: part_runner(planned, follower, stop, SILENT),
    )


def _refuse_scripts(planned: PlannedRun) -> None:
    for cell in planned.plan.to_run:
        trained = training_workload(cell)
        if trained is not None and trained.script is not None:
            raise UsageError(
                f"{cell.id}: a script of your own is measured on one machine",
                hint="add --nnodes 1, and run the command on the machine to be measured",
            )
