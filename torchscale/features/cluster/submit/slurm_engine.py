"""A benchmark as a job of Slurm: a batch script beside the run folder."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from torchscale.config.dump import to_yaml
from torchscale.config.experiment import Experiment
from torchscale.errors import ExitCode, OutputError
from torchscale.features.cluster.submit.engine import (
    SubmitOptions,
    SubmittedJob,
    SubmittedState,
    check_counts,
    job_name,
    take_secrets,
)
from torchscale.features.cluster.submit.slurm import SlurmJob, parse_options, render_script
from torchscale.features.cluster.submit.slurm_queue import job_state, submit_script
from torchscale.store.locations import default_directory
from torchscale.util.files import atomic_write_text
from torchscale.util.interpreter import module_command

_DEFAULT_TIME = "1:00:00"
"""Partitions without a default of their own refuse a job that names no limit."""
_ENDED = frozenset(
    {
        "BOOT_FAIL",
        "CANCELLED",
        "COMPLETED",
        "DEADLINE",
        "FAILED",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "TIMEOUT",
    }
)
"""States of a job that does not run again."""


class SlurmEngine:
    """Renders a batch script, hands it to sbatch, asks squeue."""

    scheduler = "squeue"

    def __init__(
        self, experiment: Experiment, options: SubmitOptions, output_dir: Path | None
    ) -> None:
        """
        Raises:
            UsageError: an option is wrong.
        """
        job, slurm = options.job, options.slurm
        check_counts(job)
        experiment, _, self._secrets = take_secrets(experiment)
        directory = (
            output_dir if output_dir is not None else default_directory(experiment.experiment_name)
        )
        self.job = SlurmJob(
            config=to_yaml(experiment),
            directory=directory.absolute(),
            working_directory=Path.cwd(),
            command=tuple(module_command("torchscale")),
            nodes=job.nodes,
            time=job.time if job.time is not None else _DEFAULT_TIME,
            job_name=job_name(experiment, job.job_name),
            gpus_per_node=job.gpus_per_node,
            cpus_per_task=job.cpus_per_task,
            account=slurm.account,
            partition=slurm.partition,
            qos=slurm.qos,
            container=job.image,
            options=parse_options(list(slurm.sbatch_option)),
        )

    @property
    def by_hand(self) -> Sequence[str]:
        """The script takes secrets from the environment of whoever submits it."""
        if not self._secrets:
            return ()
        names = ", ".join(self._secrets)
        return (
            f"launch.env: the script is without {names}, and takes it from the shell that submits "
            "it",
            f"first: {'; '.join(f'read -rs {name}; export {name}' for name in self._secrets)}",
        )

    def render(self) -> str:
        """The batch script."""
        return render_script(self.job)

    def submit(self) -> SubmittedJob:
        """Write the batch script beside the run folder and hand it to sbatch."""
        text = self.render()
        state = self.job.state_directory
        try:
            state.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(
                f"cannot make {state}: {error.strerror}", hint="choose another --output-dir"
            ) from error
        script = state / "job.sbatch"
        atomic_write_text(script, text)
        job_id = submit_script(script, {**os.environ, **self._secrets})
        return SubmittedJob(job_id, str(self.job.directory), str(state / f"slurm-{job_id}.out"))

    def state(self, job: SubmittedJob) -> SubmittedState:
        """Slurm's word for the state, and how many launches the run folder has."""
        state = job_state(job.job_id)
        launches = len(list(self.job.directory.glob("cells/*/launch-*/record.json")))
        text = f"{state or 'ended'}, launches measured: {launches}"
        exit_code = None
        if state is None or state in _ENDED:
            exit_code = self._exit_code(job.job_id)
        return SubmittedState(text, exit_code)

    def _exit_code(self, job_id: str) -> int:
        """What the first node left."""
        try:
            return int((self.job.state_directory / f"exit-{job_id}").read_text())
        except (OSError, ValueError):
            return int(ExitCode.FAILED)
