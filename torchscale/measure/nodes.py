"""A sweep over several nodes, as the commands and the loop over its launches see it. A feature runs
it: it is asked only where something says that there are several."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from torchscale.door import Slot
from torchscale.observer import SILENT, Observer

if TYPE_CHECKING:  # every command with options of nodes imports this module, most for one node
    from torchscale.config.engines import EngineChoice
    from torchscale.config.experiment import Experiment
    from torchscale.errors import ExitCode
    from torchscale.launch.control import LaunchLimits, StopRequest
    from torchscale.launch.machine import Detection
    from torchscale.measure.context import PlannedRun
    from torchscale.schema.cells.kinds import AnyCell
    from torchscale.schema.launch.progress import Progress
    from torchscale.schema.launch.record import LaunchRecord
    from torchscale.schema.launch.task import LaunchTask

COUNT_VARIABLES = (
    "PET_NNODES",
    "SLURM_STEP_NUM_NODES",
    "SKYPILOT_NUM_NODES",
    "OMPI_COMM_WORLD_SIZE",
    "SLURM_JOB_NUM_NODES",
    "RAY_ADDRESS",
)
"""Where who starts a program says that there are nodes: torchrun (Kubeflow), a step of Slurm,
SkyPilot, Open MPI, a job of Slurm, Ray."""

Planner = Callable[["Experiment", Observer], "PlannedRun"]
"""Plans an experiment for the machine at hand."""


@dataclass(frozen=True)
class NodeOptions:
    """What the command line says about the nodes; ``None`` was not given."""

    nodes: int | None = None
    node_rank: int | None = None
    master: str | None = None
    token_file: Path | None = None
    engine: EngineChoice | None = None
    ray_address: str | None = None


def say_nodes(options: NodeOptions) -> bool:
    """Whether options or the environment say that there may be several nodes."""
    return any(value is not None for value in astuple(options)) or any(
        os.environ.get(name) for name in COUNT_VARIABLES
    )


class SweepNodes(Protocol):
    """The nodes of a sweep, as the loop over its launches needs them."""

    @property
    def run_all(self) -> bool:
        """Whether also launches on a single node are theirs, and not of this machine."""

    def update(self) -> None:
        """Let nodes in that have come since the last call, and show what happened meanwhile."""

    def can_run(self, cell: AnyCell) -> bool:
        """Whether as many nodes are there as ``cell`` needs."""

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

    def conclude(self, exit_code: ExitCode, interrupted: bool) -> None:
        """The sweep has ended: say which cells wait for nodes, and what the other nodes are
        told."""


class ClusterNode(Protocol):
    """This node, of several that run a sweep together."""

    @property
    def is_leader(self) -> bool:
        """Whether this process runs the sweep and keeps the run folder, as that of node 0 does."""

    @property
    def detection(self) -> Detection | None:
        """Of the machine that the sweep is planned for, where that is not this one."""

    def lead(
        self, planned: PlannedRun, stop: StopRequest, observer: Observer
    ) -> AbstractContextManager[SweepNodes]:
        """Wait for the other nodes, check them, and let them go at the end, whatever it is.

        Raises:
            UsageError: the address that they connect to cannot be used.
            MachineError: they do not fit together; nothing was started.
        """

    def close(self) -> None:
        """End what was started for :meth:`lead`, which may never come. Once is enough."""

    def follow(self, experiment: Experiment, observer: Observer, make: Planner) -> ExitCode | int:
        """Take part in a sweep as another node than the first, until it ends. Returns the exit
        code: that of node 0, where it says so. ``make`` plans the experiment as node 0 does.

        Raises:
            MachineError: node 0 cannot be reached or refuses this node, or the connection to it is
                lost.
            TorchscaleError: this node cannot take part; node 0 is told.
        """


JoinCluster = Callable[
    ["Experiment", NodeOptions, Observer], tuple["Experiment", ClusterNode | None]
]
"""As :func:`join_nodes`."""
_NODES: Slot[JoinCluster] = Slot("nodes")
_DESCRIBED: Slot[Callable[[Experiment, NodeOptions, Observer], Experiment]] = Slot("nodes of plans")


def join_nodes(
    experiment: Experiment, options: NodeOptions, observer: Observer = SILENT
) -> tuple[Experiment, ClusterNode | None]:
    """The experiment with the number of its nodes, and which node this is. On a single node: the
    experiment as it is, and ``None``.

    Args:
        experiment: The experiment, whose ``launch.nodes`` counts where ``options`` name no number.
        options: Which node of which cluster this is; what is not given is looked for in the
            environment.
        observer: Shows who else can read the nodes' secret.

    Raises:
        UsageError: an option or variable is missing or wrong.
    """
    if "nodes" not in experiment.launch.model_fields_set and not say_nodes(options):
        return experiment, None
    return _NODES["cluster"](experiment, options, observer)


def describe_nodes(
    experiment: Experiment, options: NodeOptions, observer: Observer = SILENT
) -> Experiment:
    """The experiment with the number of its nodes, for a plan that is only shown; says what would
    carry its launches, and why. Nothing is started.

    Raises:
        UsageError: options contradict each other.
    """
    if "nodes" not in experiment.launch.model_fields_set and not say_nodes(options):
        return experiment
    return _DESCRIBED["cluster"](experiment, options, observer)


@contextmanager
def closing_on_error(node: ClusterNode | None) -> Iterator[None]:
    """Whatever happens before a sweep is led, what was started for it ends."""
    try:
        yield
    except BaseException:
        if node is not None:
            node.close()
        raise


def leading(
    node: ClusterNode | None, planned: PlannedRun, stop: StopRequest, observer: Observer
) -> AbstractContextManager[SweepNodes | None]:
    """As :meth:`ClusterNode.lead`; ``None`` on a single node."""
    if node is None:
        return nullcontext()
    return node.lead(planned, stop, observer)
