"""Watch a program of the user's own, and leave a run folder of it."""

from __future__ import annotations

from torchscale.errors import TorchscaleError
from torchscale.features.watch.job.run import Watched
from torchscale.features.watch.job.watched_run import write_run
from torchscale.launch.machine import detect_machine
from torchscale.store.derived_files import write_derived_files


def keep_run(watched: Watched) -> str:
    """Write the run of a job that has ended beside its ``watch.json``, with the machine as of any
    run. A job without ranks leaves none.

    Returns:
        Why it could not be written; empty where it was, or there is none to write.
    """
    if not watched.job.streams:
        return ""
    try:
        environment = detect_machine().environment
        folder = write_run(watched.directory, watched.job, watched.report, environment)
    except TorchscaleError as error:
        return error.message
    write_derived_files(folder)
    return ""
