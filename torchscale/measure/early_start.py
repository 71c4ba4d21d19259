"""Starts the process of a sweep's launches before the sweep is planned. Imports little, so that a
command can start it first and import the rest while it runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from torchscale.config.choices import DeviceKind
from torchscale.config.experiment import Experiment
from torchscale.config.script import ScriptChoice
from torchscale.config.secrets import hidden_environment
from torchscale.errors import MachineError
from torchscale.launch.agents.forker import AgentForker, forks_ranks
from torchscale.launch.environment import cpu_environment
from torchscale.launch.machine import has_gpu_driver, usable_cores
from torchscale.plan.devices import cpu_threads_per_rank
from torchscale.store.locations import default_directory

GROUP = ".group"
"""Directory in the run folder, while a process runs that many launches use: what is handed to it,
and its logs."""


def shares_processes(experiment: Experiment, device: DeviceKind) -> bool:
    """Whether launches on this device use what was started for others. By default on CPUs alone,
    where that is a process which forks the agent of each: results are equal to those of a torchrun
    command within noise (``docs/tested-on.md``)."""
    isolation = experiment.launch.isolation
    return isolation == "group" or (isolation == "auto" and device == "cpu")


@contextmanager
def started_ahead(
    experiment: Experiment, output_dir: Path | None = None
) -> Iterator[AgentForker | None]:
    """The process that forks the agents of a sweep on CPUs in a run folder: it imports torch while
    the machine is detected and the plan is made. Within the context; ``None`` where there may be
    GPUs or launches have processes of their own, as those of scripts have, and for a folder that is
    there already, in which nothing may be left to run.

    Raises:
        MachineError: it cannot be started.
    """
    forker = None
    directory = (
        output_dir if output_dir is not None else default_directory(experiment.experiment_name)
    )
    if _will_fork(experiment) and not directory.exists():
        # Cores or threads that are not there are told by the plan.
        with suppress(MachineError):
            threads = cpu_threads_per_rank(experiment, usable_cores())
            environment = cpu_environment(threads, hidden_environment(experiment))
            forker = AgentForker(directory / GROUP, environment)
    try:
        yield forker
    finally:
        if forker is not None:
            forker.close()


def _will_fork(experiment: Experiment) -> bool:
    if any(isinstance(model, ScriptChoice) for model in experiment.models):
        return False  # it would import torch for nothing, or beside a script that is measured
    asked = experiment.device
    on_cpu = asked == "cpu" or (asked == "auto" and not has_gpu_driver())
    return on_cpu and shares_processes(experiment, "cpu") and forks_ranks("cpu")
