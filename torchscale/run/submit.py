"""Hand a benchmark to Slurm: render, check, submit, follow."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from torchscale.config.dump import to_yaml
from torchscale.config.experiment import Experiment
from torchscale.config.sections import MAX_NODES
from torchscale.errors import ExitCode, MachineError, OutputError, UsageError
from torchscale.launch.slurm import SlurmJob, job_state, parse_options, render_script, submit_script
from torchscale.run.benchmark import default_directory
from torchscale.util.files import atomic_write_text
from torchscale.util.interpreter import module_command

_NOT_IN_NAMES = re.compile(r"[^a-z0-9]+")
_LONGEST_JOB_NAME = 40
"""squeue shows 8 by default, and people read the rest in full listings."""


_POLL_SECONDS = 5.0
"""Between two questions to Slurm's controller, which serves the whole cluster."""
_PATIENCE_SECONDS = 900.0
"""A controller that is restarted, or fails over, is back within minutes."""
_ENDED = frozenset(
    {"BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "TIMEOUT"}
)
"""States of a job that does not run again."""


@dataclass(frozen=True)
class SlurmOptions:
    """What the command line says; ``None`` was not given."""

    nodes: int
    time: str
    gpus_per_node: int | None = None
    cpus_per_task: int | None = None
    account: str | None = None
    partition: str | None = None
    qos: str | None = None
    container: str | None = None
    job_name: str | None = None
    sbatch_options: tuple[str, ...] = ()


@dataclass(frozen=True)
class SubmittedJob:
    """A job in Slurm's queue.

    Attributes:
        job_id: Its number.
        directory: The run folder it writes.
        script: What was submitted.
        log: Its output.
    """

    job_id: str
    directory: Path
    script: Path
    log: Path


def slurm_job(experiment: Experiment, options: SlurmOptions, output_dir: Path | None) -> SlurmJob:
    """The job of an experiment.

    Raises:
        UsageError: an option is wrong.
    """
    check_counts(options.nodes, options.gpus_per_node, options.cpus_per_task)
    directory = (output_dir if output_dir is not None else default_directory(experiment)).absolute()
    return SlurmJob(
        config=to_yaml(experiment),
        directory=directory,
        working_directory=Path.cwd(),
        command=tuple(module_command("torchscale")),
        nodes=options.nodes,
        time=options.time,
        job_name=job_name(experiment, options.job_name),
        gpus_per_node=options.gpus_per_node,
        cpus_per_task=options.cpus_per_task,
        account=options.account,
        partition=options.partition,
        qos=options.qos,
        container=options.container,
        options=parse_options(list(options.sbatch_options)),
    )


def slurm_script(experiment: Experiment, options: SlurmOptions, output_dir: Path | None = None) -> str:
    """The batch script; nothing is written.

    Raises:
        UsageError: an option is wrong.
    """
    return render_script(slurm_job(experiment, options, output_dir))


def submit_to_slurm(experiment: Experiment, options: SlurmOptions, output_dir: Path | None = None) -> SubmittedJob:
    """Write the batch script beside the run folder and hand it to sbatch.

    Raises:
        UsageError: an option is wrong.
        OutputError: the script cannot be written.
        MachineError: sbatch cannot be started or refuses the job.
    """
    job = slurm_job(experiment, options, output_dir)
    text = render_script(job)
    state = job.state_directory
    try:
        state.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot make {state}: {error.strerror}", hint="choose another --output-dir") from error
    script = state / "job.sbatch"
    atomic_write_text(script, text)
    job_id = submit_script(script)
    return SubmittedJob(job_id, job.directory, script, state / f"slurm-{job_id}.out")


def follow(job: SubmittedJob, note: Callable[[str], None], *, poll_seconds: float = _POLL_SECONDS) -> int:
    """Wait for the end of a job, through requeues, and say what changes.

    Args:
        job: As :func:`submit_to_slurm` returned it.
        note: Takes a line for each change of the job's state or of the number of launches measured.
        poll_seconds: Between two questions to Slurm.

    Returns:
        Exit code of the benchmark; 1 where the job ended without one.

    Raises:
        MachineError: squeue cannot be started, or does not answer for a quarter of an hour.
    """
    last, silent_since = "", time.monotonic()
    while True:
        try:
            state = job_state(job.job_id)
            silent_since = time.monotonic()
        except OSError as error:
            state = last.partition(",")[0]
            if time.monotonic() - silent_since > _PATIENCE_SECONDS:
                hint = f"the job may be running; its log is {job.log}"
                raise MachineError(f"job {job.job_id}: squeue does not answer: {error}", hint=hint) from error
        launches = len(list(job.directory.glob("cells/*/launch-*/record.json")))
        current = f"{state or 'ended'}, launches measured: {launches}"
        if current != last:
            note(f"job {job.job_id}: {current}")
            last = current
        if state is None or state in _ENDED:
            return _exit_code(job)
        time.sleep(poll_seconds)


def _exit_code(job: SubmittedJob) -> int:
    """What the first node left."""
    try:
        return int((job.script.parent / f"exit-{job.job_id}").read_text())
    except (OSError, ValueError):
        return int(ExitCode.FAILED)


def job_name(experiment: Experiment, name: str | None) -> str:
    """The name that was given, else one made from the experiment's: small letters, digits and -."""
    if name is not None:
        return name
    plain = _NOT_IN_NAMES.sub("-", experiment.experiment_name.lower()).strip("-")
    return f"torchscale-{plain}"[:_LONGEST_JOB_NAME].rstrip("-")


def check_counts(nodes: int, gpus_per_node: int | None, cpus_per_task: int | None) -> None:
    """
    Raises:
        UsageError: a count is out of range.
    """
    if not 1 <= nodes <= MAX_NODES:
        raise UsageError(f"--nodes {nodes}: expected 1 to {MAX_NODES}")
    for option, count in {"--gpus-per-node": gpus_per_node, "--cpus-per-task": cpus_per_task}.items():
        if count is not None and not 1 <= count <= 4096:
            raise UsageError(f"{option} {count}: expected 1 to 4096")
