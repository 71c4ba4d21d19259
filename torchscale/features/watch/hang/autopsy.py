"""Why a job makes no progress, from its dumps or from its processes."""

from __future__ import annotations

from pathlib import Path

from torchscale.features.watch.hang.dumps import read_directory
from torchscale.features.watch.hang.explain import explain_hang
from torchscale.features.watch.hang.running_job import inspect_job
from torchscale.observer import SILENT, Observer
from torchscale.schema.launch.hang import Autopsy


def autopsy_of_dumps(directory: Path, observer: Observer = SILENT) -> Autopsy:
    """Explain a hang from the dumps in ``directory``: those of torch's flight recorder, or a launch
    directory of torchscale.

    Raises:
        UsageError: there are none.
    """
    with observer.status(f"Reading the dumps in {directory}"):
        evidence, facts = read_directory(directory)
        return explain_hang(evidence, facts.notes, facts.moved_seconds_ago)


def autopsy_of_process(pid: int, observer: Observer = SILENT) -> Autopsy:
    """Explain a hang from the processes of a job on this machine, which are only read.

    Raises:
        UsageError: ``pid`` is no process, or has no ranks.
    """
    with observer.status(f"Looking at the ranks of process {pid}"):
        evidence, notes = inspect_job(pid)
        return explain_hang(evidence, notes)
