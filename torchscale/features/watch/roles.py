"""A job whose programs have roles: a folder with one of each program."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from torchscale.errors import StoreError
from torchscale.features.watch.job.liveness import RUNS
from torchscale.features.watch.job.read import read_watch
from torchscale.features.watch.terminal import print_watch
from torchscale.features.watch.text import summary_line
from torchscale.schema.watch.report import JobState, WatchReport
from torchscale.schema.watch.roles import WatchedRoles
from torchscale.store.locations import WATCH_REPORT
from torchscale.util.roles import MARKER
from torchscale.util.words import listed

if TYPE_CHECKING:
    from rich.console import Console

_WORST_FIRST = (JobState.FAILED, JobState.LOST, JobState.RUNNING, JobState.DONE)
"""The job is in the first of these that one of its programs is in."""


def has_roles(directory: Path) -> bool:
    """Whether a folder is that of a job whose programs have roles."""
    return (directory / MARKER).is_file() and not (directory / WATCH_REPORT).is_file()


def read_roles(directory: Path, price: float | None = None) -> WatchedRoles:
    """The programs of the job in ``directory``; with ``price``, in dollars for a device and hour,
    with what they cost.

    Raises:
        StoreError: none was judged yet, or a report is damaged.
    """
    folders = sorted(path.parent for path in directory.glob(f"*/{RUNS}"))
    judged = [folder for folder in folders if (folder / WATCH_REPORT).is_file()]
    if not judged:
        raise StoreError(
            f"{directory}: none of its roles was judged yet",
            hint="a program is judged 15 s after its first step, and at its end",
        )
    reports = tuple(_named(read_watch(folder, price), folder.name) for folder in judged)
    waiting = tuple(folder.name for folder in folders if folder not in judged)
    return WatchedRoles(roles=reports, unjudged=waiting)


def _named(report: WatchReport, role: str) -> WatchReport:
    """With the role that its folder is of, whatever the report says: each is there once."""
    return report if report.role == role else report.model_copy(update={"role": role})


def print_roles(found: WatchedRoles, console: Console) -> None:
    """Each program, one after the other."""
    for number, report in enumerate(found.roles):
        if number:
            console.print()
        print_watch(report, console)
    if found.unjudged:
        console.print(unjudged_text(found), highlight=False)


def unjudged_text(found: WatchedRoles) -> str:
    """``Not judged yet: rollout.``"""
    return f"Not judged yet: {listed(found.unjudged)}."


def state_of(found: WatchedRoles) -> JobState:
    """Of the whole job."""
    states = {report.state for report in found.roles}
    return next(state for state in _WORST_FIRST if state in states)


def listed_roles(directory: Path) -> tuple[str, str]:
    """State and headline of the job, for the list of runs.

    Raises:
        StoreError: it cannot be read.
    """
    found = read_roles(directory)
    told = [f"{report.role}: {summary_line(report)}" for report in found.roles]
    return state_of(found).value, "; ".join(told)
