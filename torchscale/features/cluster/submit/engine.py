"""What every scheduler offers to ``submit``, and what the command line says to all of them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from torchscale.config.choices import MAX_NODES
from torchscale.config.experiment import Experiment
from torchscale.errors import UsageError
from torchscale.util.redaction import note_values, redact

_NOT_IN_NAMES = re.compile(r"[^a-z0-9]+")
_LONGEST_JOB_NAME = 40
"""squeue shows 8 by default, and people read the rest in full listings; Kubernetes takes a few
more."""


@dataclass(frozen=True)
class JobOptions:
    """What holds for every scheduler; ``None`` was not given.

    Attributes:
        nodes: Number of nodes of the job.
        time: Limit, as Slurm writes it: H:M:S, D-H:M:S or minutes.
        gpus_per_node, cpus_per_task: GPUs and CPUs to ask for on each node; a node has one task.
        image: Container image to run in.
        job_name: Default: made from the experiment's.
    """

    nodes: int = 1
    time: str | None = None
    gpus_per_node: int | None = None
    cpus_per_task: int | None = None
    image: str | None = None
    job_name: str | None = None


@dataclass(frozen=True)
class SlurmOptions:
    """What Slurm alone knows."""

    account: str | None = None
    partition: str | None = None
    qos: str | None = None
    sbatch_option: tuple[str, ...] = ()


@dataclass(frozen=True)
class KubernetesOptions:
    """What both forms on Kubernetes know."""

    namespace: str | None = None
    results_claim: str | None = None
    token_secret: str | None = None
    gpu_resource: str | None = None
    rdma: tuple[str, ...] = ()
    shm_size: str | None = None
    env: tuple[str, ...] = ()
    node_selector: tuple[str, ...] = ()
    run_as_user: int | None = None


@dataclass(frozen=True)
class TrainJobOptions:
    """What Kubeflow Trainer alone knows."""

    runtime: str | None = None


@dataclass(frozen=True)
class IndexedJobOptions:
    """What a Job without Kubeflow alone knows."""

    restarts: int | None = None


@dataclass(frozen=True)
class SubmitOptions:
    """All options of the command line; a field is named as its option is. An engine that does not
    know an option that was given refuses it."""

    job: JobOptions = JobOptions()
    slurm: SlurmOptions = SlurmOptions()
    kubernetes: KubernetesOptions = KubernetesOptions()
    train_job: TrainJobOptions = TrainJobOptions()
    indexed_job: IndexedJobOptions = IndexedJobOptions()


@dataclass(frozen=True)
class SubmittedJob:
    """A job that a scheduler has taken.

    Attributes:
        job_id: Id that the scheduler gave the job.
        results: Where its run folder is, for people.
        log: Where its output is, or the command that shows it.
    """

    job_id: str
    results: str
    log: str


@dataclass(frozen=True)
class SubmittedState:
    """How a job is.

    Attributes:
        text: State for people.
        exit_code: Exit code of the benchmark, once the job has ended for good; 1 where it left
            none. ``None`` before.
    """

    text: str
    exit_code: int | None = None


class Engine(Protocol):
    """A benchmark, ready for one scheduler."""

    scheduler: str
    """What is asked, for messages: ``squeue``, ``kubectl``."""

    @property
    def by_hand(self) -> Sequence[str]:
        """What to do, beside handing over what :meth:`render` gives: commands and sentences, one a
        line."""

    def render(self) -> str:
        """What :meth:`submit` hands over, without secrets; nothing is written.

        Raises:
            UsageError: an option is wrong.
        """

    def submit(self) -> SubmittedJob:
        """Hand the job over.

        Raises:
            UsageError: an option is wrong.
            OutputError: what the job needs cannot be written.
            MachineError: the scheduler cannot be reached, or refuses the job.
        """

    def state(self, job: SubmittedJob) -> SubmittedState:
        """Ask once how the job is; bounded.

        Raises:
            MachineError: the scheduler cannot be asked from here.
            OSError: it does not answer this time.
        """


class Preparation(Protocol):
    """How an engine comes from an experiment."""

    def __call__(
        self, experiment: Experiment, options: SubmitOptions, output_dir: Path | None
    ) -> Engine:
        """
        Raises:
            UsageError: an option is wrong.
        """


def take_secrets(
    experiment: Experiment, env: Mapping[str, str] | None = None
) -> tuple[Experiment, dict[str, str], dict[str, str]]:
    """The experiment and ``env`` without the variables that carry a secret, and these: scripts and
    manifests are shown, kept and committed. Their values are redacted from now on wherever they
    turn up.

    Args:
        experiment: The experiment whose ``launch.env`` is searched.
        env: Further variables of the job.
    """
    of_ranks, of_job = experiment.launch.env, dict(env or {})
    secrets = {
        name: value
        for name, value in {**of_job, **of_ranks}.items()
        if redact(name, value) != value
    }
    note_values(secrets.values())
    kept = {name: value for name, value in of_ranks.items() if name not in secrets}
    launch = experiment.launch.model_copy(update={"env": kept})
    without = {name: value for name, value in of_job.items() if name not in secrets}
    return experiment.model_copy(update={"launch": launch}), without, secrets


def job_name(experiment: Experiment, name: str | None) -> str:
    """The name that was given, else one made from the experiment's: small letters, digits and -."""
    if name is not None:
        return name
    plain = _NOT_IN_NAMES.sub("-", experiment.experiment_name.lower()).strip("-")
    return f"torchscale-{plain}"[:_LONGEST_JOB_NAME].rstrip("-")


def check_counts(job: JobOptions) -> None:
    """
    Raises:
        UsageError: a count is out of range.
    """
    if not 1 <= job.nodes <= MAX_NODES:
        raise UsageError(f"--nodes {job.nodes}: expected 1 to {MAX_NODES}")
    for option, count in {
        "--gpus-per-node": job.gpus_per_node,
        "--cpus-per-task": job.cpus_per_task,
    }.items():
        if count is not None and not 1 <= count <= 4096:
            raise UsageError(f"{option} {count}: expected 1 to 4096")
