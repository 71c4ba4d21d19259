"""What is known of a watched job, from its folder."""

from __future__ import annotations

import time
from pathlib import Path

from pydantic import ValidationError

from torchscale.errors import StoreError
from torchscale.features.watch.analysis.goodput import with_price
from torchscale.features.watch.job.liveness import RUNS, gave_sign, is_followed
from torchscale.features.watch.job.runs import read_runs
from torchscale.schema.watch.report import JobState, WatchReport
from torchscale.store.locations import WATCH_REPORT
from torchscale.util.files import read_bounded

_MAX_BYTES = 64 << 20
"""Of a report of 10,000 ranks: 5 MB."""


def read_watch(directory: Path, price: float | None = None) -> WatchReport:
    """The report of the job in ``directory``; of a job that runs, as of the last judgement, and of one
    whose command was killed with a note. With ``price``, in dollars for a device and hour, with
    what it cost.

    Raises:
        StoreError: there is none, or it is damaged.
    """
    path = directory / WATCH_REPORT
    try:
        report = WatchReport.model_validate_json(read_bounded(path, _MAX_BYTES, within=directory))
    except FileNotFoundError as error:
        raise StoreError(
            f"{directory} holds no watched job: it has no {WATCH_REPORT}",
            hint="torchscale watch -- torchrun --nproc-per-node 4 train.py",
        ) from error
    except (ValidationError, OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise StoreError(f"{path}: not the report of a watched job: {reason}") from error
    if report.state is JobState.RUNNING and not _is_watched_now(directory):
        report = _lost(report)
    return with_price(report, price)


def _is_watched_now(directory: Path) -> bool:
    """Whether the command of the last run is there. One that noted its end and wrote no last report is
    not."""
    now = time.time()
    try:
        run = read_runs(directory)[-1]
    except StoreError:
        return gave_sign(directory / WATCH_REPORT, now)
    if run.ended is not None:
        return False
    is_there = is_followed(run)
    return gave_sign(directory / RUNS, now) if is_there is None else is_there


def _lost(report: WatchReport) -> WatchReport:
    note = (
        f"watch ended without a result; last written {report.written_at}. The command was killed, or "
        "could not write any more; the program may have gone on"
    )
    return report.model_copy(update={"state": JobState.LOST, "notes": (note, *report.notes)})
