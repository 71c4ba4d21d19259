"""Which engine carries a sweep or a check over nodes, and why."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from torchscale.config.engines import EngineChoice
from torchscale.config.experiment import Experiment
from torchscale.errors import TorchscaleError, UsageError
from torchscale.features.cluster.engines.engine import NodeEngine, Role
from torchscale.features.cluster.engines.slurm import SlurmSteps, allocated_nodes
from torchscale.measure.nodes import NodeOptions
from torchscale.observer import Observer
from torchscale.util.words import plural

_STEP = ("SLURM_STEP_NUM_NODES", "SLURM_STEP_NODELIST")
_STARTED_ON_NODES = ("PET_NNODES", "SKYPILOT_NUM_NODES", "OMPI_COMM_WORLD_SIZE")
_INTERACTIVE_STEP = str(0xFFFFFFFA)
"""The step that ``salloc`` runs a shell in, on the first node of the allocation."""


@dataclass(frozen=True)
class Chosen:
    """The engine of a sweep. ``nodes``: how many; ``None``: all that the engine has."""

    engine: EngineChoice
    nodes: int | None
    reason: str
    otherwise: str = ""
    """What to type to go without an engine that nobody asked for by an option."""

    def start(self, role: Role, address: str | None, observer: Observer) -> NodeEngine:
        """Connect to it, and say which nodes it has; no agent runs yet. ``address``: of a Ray
        cluster.

        Raises:
            UsageError: it has fewer nodes than asked for.
            MachineError: it does not answer.
        """
        with observer.status(f"Asking {self.engine.value} for nodes"):
            try:
                engine = self._connect(role, address)
            except TorchscaleError as error:
                error.hint = "; ".join(filter(None, (error.hint, self.otherwise))) or None
                raise
        names = ", ".join(node.name for node in engine.nodes)
        nodes = plural(len(engine.nodes), "node")
        observer.note(f"{engine.name}: {nodes} ({names}), since {self.reason}")
        return engine

    def _connect(self, role: Role, address: str | None) -> NodeEngine:
        if self.engine is EngineChoice.SLURM:
            return SlurmSteps(role, self.nodes or 1)
        from torchscale.features.cluster.engines.ray import RayActors  # noqa: PLC0415 - an extra

        return RayActors(role, self.nodes, address)


def describe_choice(experiment: Experiment, options: NodeOptions, observer: Observer) -> Experiment:
    """As :func:`torchscale.measure.nodes.describe_nodes`."""
    asked = experiment.launch.nodes if "nodes" in experiment.launch.model_fields_set else None
    chosen = choose_engine(options, asked, os.environ)
    if chosen is None:
        if (options.nodes or asked or 1) > 1:
            observer.note(f"engine: channel, since {_why_channel(options, os.environ)}")
        return experiment
    nodes = chosen.nodes
    count = plural(nodes, "node") if nodes is not None else "all nodes of the cluster"
    observer.note(f"engine: {chosen.engine.value} with {count}, since {chosen.reason}")
    if nodes is None:
        return experiment
    launch = experiment.launch.model_copy(update={"nodes": nodes})
    return experiment.model_copy(update={"launch": launch})


def choose_engine(options: NodeOptions, nodes: int | None, env: Mapping[str, str]) -> Chosen | None:
    """The engine of a sweep or a check; ``None`` where the channel carries it, or one node.

    Args:
        options: Options of the command line.
        nodes: ``launch.nodes`` of the config where it is set; an option wins over it.
        env: ``SLURM_*`` of a job, ``RAY_ADDRESS``.

    Raises:
        UsageError: options contradict each other, there is no job of Slurm, or it has fewer nodes.
    """
    count = options.nodes if options.nodes is not None else nodes
    given = _of_channel(options)
    asked = options.engine
    reason = f"--engine {asked.value} is given" if asked is not None else ""
    if options.ray_address is not None:
        if asked not in (None, EngineChoice.RAY):
            raise UsageError(f"--ray-address is for Ray, and --engine is {asked.value}")
        asked, reason = EngineChoice.RAY, "--ray-address is given"
    if asked in (EngineChoice.SLURM, EngineChoice.RAY) and given:
        raise UsageError(
            f"{given[0]} is for the channel: {asked.value} knows its nodes",
            hint=f"leave out {given[0]}, or --engine {asked.value}",
        )
    if asked is EngineChoice.CHANNEL or given:
        return None
    if asked is EngineChoice.RAY:
        return Chosen(asked, count, reason)
    allocated = allocated_nodes(env)
    if asked is EngineChoice.SLURM:
        if allocated is None:
            raise UsageError(
                "--engine slurm: this is no job of Slurm (SLURM_JOB_ID is not set)",
                hint="run it in sbatch or salloc; `torchscale submit` writes the job",
            )
        return _in_job(count, allocated, f"{reason}, in job {env['SLURM_JOB_ID']}", env)
    if count == 1 or any(env.get(name) for name in _STARTED_ON_NODES):
        return None
    if env.get("RAY_ADDRESS"):
        otherwise = "--engine slurm or --nnodes 1" if (allocated or 1) > 1 else "--nnodes 1"
        return Chosen(
            EngineChoice.RAY,
            count,
            f"RAY_ADDRESS is {env['RAY_ADDRESS']}",
            otherwise=f"{otherwise} goes without Ray, though RAY_ADDRESS is set",
        )
    if allocated is None or allocated == 1 or _is_step(env):
        return None
    reason = f"job {env['SLURM_JOB_ID']} of Slurm has {allocated} nodes"
    return _in_job(count, allocated, reason, env)


def _in_job(count: int | None, allocated: int, reason: str, env: Mapping[str, str]) -> Chosen:
    """
    Raises:
        UsageError: the job has fewer nodes.
    """
    if count is not None and count > allocated:
        nodelist = env.get("SLURM_JOB_NODELIST", "")
        raise UsageError(
            f"--nnodes {count}: job {env['SLURM_JOB_ID']} of Slurm has {allocated} nodes ({nodelist})",
            hint=f"ask for more (salloc --nodes {count}), or for {allocated} at most",
        )
    return Chosen(EngineChoice.SLURM, count or allocated, reason)


def _of_channel(options: NodeOptions) -> list[str]:
    """Options that are given and are about the channel alone."""
    channel = {
        "--node-rank": options.node_rank,
        "--master": options.master,
        "--token-file": options.token_file,
    }
    return [name for name, value in channel.items() if value is not None]


def _is_step(env: Mapping[str, str]) -> bool:
    """Whether this is a task that somebody's srun has started."""
    has_step = env.get("SLURM_STEP_ID") not in (None, "", _INTERACTIVE_STEP)
    return has_step and any(env.get(name) for name in _STEP)


def _why_channel(options: NodeOptions, env: Mapping[str, str]) -> str:
    """Why no engine carries launches over several nodes."""
    given = _of_channel(options)
    if options.engine is not None or given:
        return f"{given[0] if given else '--engine channel'} is given"
    started = [name for name in _STARTED_ON_NODES if env.get(name)]
    if started:
        return f"{started[0]} is set"
    if _is_step(env):
        return f"this is a task of step {env['SLURM_STEP_ID']} of Slurm"
    return "neither a job of Slurm on several nodes nor RAY_ADDRESS is here"
