"""Watch a program of the user's own, and leave a run folder of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torchscale.errors import TorchscaleError
from torchscale.features.watch.job.run import Watched
from torchscale.features.watch.job.watched_run import write_run
from torchscale.launch.machine import MachineDetection, detect_machine
from torchscale.store.derived_files import write_derived_files


@contextmanager
def detecting() -> Iterator[MachineDetection | None]:
    """A detection of the machine, for :func:`keep_run`: it runs while the job that has ended is
    judged. ``None`` where it cannot be started; :func:`keep_run` then says why."""
    try:
        detection = MachineDetection()
    except TorchscaleError:
        yield None
        return
    with detection:
        yield detection


def keep_run(watched: Watched, detection: MachineDetection | None = None) -> str:
    """Write the run of a job that has ended beside its ``watch.json``, with the machine as of any
    run; its ``detection`` may have been started before. A job without ranks leaves none.

    Returns:
        Why it could not be written; empty where it was, or there is none to write.
    """
    if not watched.job.streams:
        return ""
    try:
        machine = detect_machine() if detection is None else detection.result()
        folder = write_run(watched.directory, watched.job, watched.report, machine.environment)
    except TorchscaleError as error:
        return error.message
    write_derived_files(folder)
    return ""
