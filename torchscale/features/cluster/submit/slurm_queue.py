"""Slurm's queue: a script is handed to sbatch, and squeue says how its job is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torchscale.errors import MachineError
from torchscale.util.processes.bounded import Finished, run_bounded

SUBMIT_SECONDS = 60.0
"""Time limit for one sbatch or squeue: a busy controller answers within its MessageTimeout, which
is 10 s by default."""


def submit_script(path: Path, env: Mapping[str, str] | None = None) -> str:
    """Hand a script to sbatch; the job's number.

    Args:
        path: Path of the script.
        env: The environment that the job takes over; ``None`` is that of this process.

    Raises:
        MachineError: there is no sbatch, it refuses the job, or it does not answer.
    """
    done = _ask(["sbatch", "--parsable", str(path)], env)
    job_id = done.stdout.strip().partition(";")[0]
    if done.returncode != 0 or not job_id.isdigit():
        raise MachineError(f"sbatch refused the job: {_reason(done)}", hint=f"the script is {path}")
    return job_id


def job_state(job_id: str) -> str | None:
    """Slurm's word for the state of a job, ``PENDING``, ``RUNNING`` …; ``None`` when it is no
    longer in the queue.

    Raises:
        MachineError: squeue cannot be started.
        OSError: it does not answer this time, as when the controller is restarted.
    """
    done = _ask(["squeue", "--noheader", "--states=all", f"--jobs={job_id}", "--format=%T"])
    if done.returncode == 0:
        return next(iter(done.stdout.split()), None)
    if "invalid job id" in done.stderr.lower():
        return None
    raise OSError(_reason(done))


def _ask(argv: list[str], env: Mapping[str, str] | None = None) -> Finished:
    try:
        return run_bounded(argv, timeout_seconds=SUBMIT_SECONDS, env=env)
    except MachineError as error:
        raise MachineError(
            f"{argv[0]} cannot be started: is Slurm installed here?",
            hint="run this on a login node, or use --print and take the script there",
        ) from error


def _reason(done: Finished) -> str:
    if done.timed_out:
        return f"no answer within {SUBMIT_SECONDS:.0f} s"
    lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
    if lines:
        return lines[-1]
    return f"exit code {done.returncode}"
