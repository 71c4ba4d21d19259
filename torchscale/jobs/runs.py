"""The runs of the command that are one job, and what is kept of their attempts: of a job that is
requeued, or started again, the files of its ranks are gone when the next run begins.

``runs.json`` has the runs, ``attempts/N.json`` one attempt each.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from torchscale.errors import StoreError, UsageError
from torchscale.jobs.attempts import Attempt
from torchscale.jobs.follow import JobFollower
from torchscale.jobs.liveness import RUNS, is_followed, this_run
from torchscale.jobs.stream import rank_folders
from torchscale.schema.watch.attempt import AttemptRecord, CommandRun, JobRuns
from torchscale.util.files import atomic_write_model, make_directory, read_bounded

M = TypeVar("M", bound=BaseModel)

_ATTEMPTS = "attempts"
_MAX_BYTES = 8 << 20
"""Of a file here; an attempt with all the checkpoints that are kept has 300 kB."""


@dataclass(frozen=True)
class Past:
    """What is known of a job when a run of the command begins.

    Attributes:
        runs: All runs; the last one is that which begins.
        records: Attempts that are over.
    """

    runs: tuple[CommandRun, ...]
    records: tuple[AttemptRecord, ...] = ()

    @property
    def next_attempt(self) -> int:
        """Number of the first attempt of this run."""
        return max((record.attempt.number + 1 for record in self.records), default=0)


def is_job(directory: Path) -> bool:
    """Whether ``directory`` holds a watched job that a run can be added to."""
    return (directory / RUNS).is_file()


def begin_run(directory: Path, now: float, *, starts_program: bool = True) -> Past:
    """Note that a run of the command begins, after those that are there.

    Args:
        directory: Of the job.
        now: Seconds since the epoch.
        starts_program: Whether this run starts the ranks: what ranks have written before belongs
            to a run that was killed, and is read.

    Raises:
        StoreError: what is there is damaged.
        UsageError: a run of the job has not ended.
        OutputError: the folder cannot be written.
    """
    runs: tuple[CommandRun, ...] = ()
    records: list[AttemptRecord] = []
    if is_job(directory):
        runs, records = read_runs(directory), _records(directory)
        if starts_program:
            _check_ended(runs[-1], directory)
            records += _killed(directory, runs, records, now)
        ends = [record.attempt.last_seen for record in records]
        runs = tuple(_ended(run, ends, limit) for run, limit in _with_limits(runs, now))
    this = this_run(now)
    atomic_write_model(directory / RUNS, JobRuns(runs=(*runs, this)))
    return Past((*runs, this), tuple(records))


def end_run(directory: Path, past: Past, now: float) -> None:
    """Note that the run which began with ``past`` has ended; another one may have begun meanwhile.

    Raises:
        StoreError: what is there is damaged.
        OutputError: the folder cannot be written.
    """
    this = past.runs[-1]
    ended = this.model_copy(update={"ended": now})
    runs = read_runs(directory)
    left = tuple(ended if run == this else run for run in runs)
    atomic_write_model(directory / RUNS, JobRuns(runs=left))


def read_runs(directory: Path) -> tuple[CommandRun, ...]:
    """The runs of the job in ``directory``, the last one that which runs or ran last.

    Raises:
        StoreError: there are none, or the file is damaged.
    """
    return _read(directory / RUNS, JobRuns).runs


def write_record(directory: Path, record: AttemptRecord) -> None:
    """Write what is kept of an attempt that is over.

    Raises:
        OutputError: the folder cannot be written.
    """
    make_directory(directory / _ATTEMPTS)
    path = directory / _ATTEMPTS / f"{record.attempt.number:06d}.json"
    atomic_write_model(path, record)


def _records(directory: Path) -> list[AttemptRecord]:
    paths = sorted((directory / _ATTEMPTS).glob("*.json"))
    return [_read(path, AttemptRecord) for path in paths]


def _read(path: Path, model: type[M]) -> M:
    try:
        return model.model_validate_json(read_bounded(path, _MAX_BYTES))
    except (ValidationError, OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise StoreError(
            f"{path}: not what a watched job keeps: {reason}",
            hint="name a new folder with --output-dir",
        ) from error


def _check_ended(run: CommandRun, directory: Path) -> None:
    """That the process which follows the last run is gone, as far as this host can tell."""
    if run.ended is None and run.pid != os.getpid() and is_followed(run):
        raise UsageError(
            f"{directory} is being written: process {run.pid} watches this job",
            hint="wait for its end, or name a new folder with --output-dir",
        )


def _killed(
    directory: Path, runs: Sequence[CommandRun], records: Sequence[AttemptRecord], now: float
) -> list[AttemptRecord]:
    """The attempts of the last run that nobody has written a record of."""
    known = {record.attempt.number for record in records}
    numbers = sorted({attempt for _, attempt in rank_folders(directory)} - known)
    run, found = len(runs) - 1, list(records)
    for number in numbers:
        attempt = Attempt(number, JobFollower(directory, number))
        attempt.advance()
        record = attempt.record(run, begin_of(attempt, run, runs, found), now, found)
        write_record(directory, record)
        found.append(record)
    return found[len(records) :]


def begin_of(
    attempt: Attempt, run: int, runs: Sequence[CommandRun], records: Sequence[AttemptRecord]
) -> float:
    """When an attempt began: as the run did where it is its first one, else with its processes, but
    not before the one before was seen last."""
    mine = [record.attempt for record in records if record.attempt.run == run]
    if not mine:
        return runs[run].started
    return max(mine[-1].last_seen, attempt.process_began or mine[-1].last_seen)


def _with_limits(runs: Sequence[CommandRun], now: float) -> list[tuple[CommandRun, float]]:
    starts = [*(run.started for run in runs[1:]), now]
    return list(zip(runs, starts, strict=True))


def _ended(run: CommandRun, seen: Sequence[float], limit: float) -> CommandRun:
    """A run with its end: that of a killed one is when its ranks were seen last."""
    if run.ended is not None:
        return run
    inside = [time for time in seen if run.started <= time <= limit]
    return run.model_copy(update={"ended": max(inside, default=run.started)})
