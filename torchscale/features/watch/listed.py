"""A watched job in the list of runs."""

from __future__ import annotations

from pathlib import Path

from torchscale.features.watch.job.read import read_watch
from torchscale.features.watch.text import summary_line
from torchscale.schema.watch.report import JobState


def listed_job(directory: Path) -> tuple[str, str]:
    """State and headline of the job, with what it lost most by.

    Raises:
        StoreError: its report cannot be read.
    """
    report = read_watch(directory)
    told = summary_line(report)
    if report.state is JobState.FAILED and report.failure is None:
        told = f"exit code {report.exit_code}; {told}"
    return report.state.value, told
