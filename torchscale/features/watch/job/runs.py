"""The runs of the command that are one job, and what is kept of their attempts: of a job that is
requeued, or started again, the files of its ranks are gone when the next run begins.

``runs.json`` has the runs, ``attempts/N.json`` one attempt each.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from torchscale.errors import StoreError, TorchscaleError, UsageError
from torchscale.features.watch.ends.files import forget_earlier
from torchscale.features.watch.job.attempts import Attempt
from torchscale.features.watch.job.follow import JobFollower
from torchscale.features.watch.job.liveness import RUNS, is_followed, this_run
from torchscale.features.watch.job.rank_folders import MOST_ATTEMPTS, claimed_folders, rank_folders
from torchscale.schema.watch.attempt import AttemptRecord, CommandRun, JobRuns
from torchscale.util.files import atomic_write_model, make_directory, read_bounded

M = TypeVar("M", bound=BaseModel)

_ATTEMPTS = "attempts"
_RECORD = re.compile(r"(\d{1,7})\.json")
_MAX_BYTES = 8 << 20
"""Of a file here; an attempt with all the checkpoints that are kept has 300 kB."""


@dataclass(frozen=True)
class Past:
    """What is known of a job when a run of the command begins.

    Attributes:
        runs: All runs; the last one is that which begins.
        records: Attempts that are over.
        next_attempt: Number of the first attempt of this run.
        notes: What was left out, and why.
    """

    runs: tuple[CommandRun, ...]
    records: tuple[AttemptRecord, ...] = ()
    next_attempt: int = 0
    notes: tuple[str, ...] = ()


def is_job(directory: Path) -> bool:
    """Whether ``directory`` holds a watched job that a run can be added to."""
    return (directory / RUNS).is_file()


def check_addable(directory: Path) -> None:
    """That a run can be added here: to a job, or as the first one of a new folder.

    Raises:
        StoreError: something else is there.
        OSError: it cannot be looked at.
    """
    if is_job(directory) or not directory.exists() or not any(directory.iterdir()):
        return
    raise StoreError(
        f"{directory} is not empty and holds no watched job that a run can be added to"
    )


def begin_run(directory: Path, now: float, *, starts_program: bool = True) -> Past:
    """Note that a run of the command begins, after those that are there. An attempt whose files are
    damaged is left out, with a note.

    Args:
        directory: Of the job.
        now: Seconds since the epoch.
        starts_program: Whether this run starts the ranks: what ranks have written before belongs
            to a run that was killed, and is read.

    Raises:
        StoreError: the list of its runs is damaged.
        UsageError: a run of the job has not ended.
        OutputError: the folder cannot be written.
    """
    runs: tuple[CommandRun, ...] = ()
    records: list[AttemptRecord] = []
    notes: list[str] = []
    number = 0
    if is_job(directory):
        runs = read_runs(directory)
        records = _records(directory, len(runs), notes)
        number = max((record.attempt.number + 1 for record in records), default=0)
        if starts_program:
            _check_ended(runs[-1], directory)
            records += _killed(directory, runs, records, now, notes)
            forget_earlier(directory, socket.gethostname())
            number = _free_number(directory)
        ends = [record.attempt.last_seen for record in records]
        runs = tuple(_ended(run, ends, limit) for run, limit in _with_limits(runs, now))
    this = this_run(now)
    atomic_write_model(directory / RUNS, JobRuns(runs=(*runs, this)))
    return Past((*runs, this), tuple(records), number, tuple(notes))


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


def _records(directory: Path, runs: int, notes: list[str]) -> list[AttemptRecord]:
    """Of all attempts that were kept, in their order.

    Args:
        directory: Of the job.
        runs: How many there are.
        notes: What is left out is added.
    """
    found: dict[int, AttemptRecord] = {}
    for path in _numbered_records(directory).values():
        try:
            record = _read(path, AttemptRecord)
        except StoreError as error:
            notes.append(f"an attempt is left out: {error.message}")
            continue
        if record.attempt.run < runs:
            found[record.attempt.number] = record
        else:
            notes.append(f"an attempt is left out: {path} is of run {record.attempt.run} of {runs}")
    return [found[number] for number in sorted(found)]


def _numbered_records(directory: Path) -> dict[int, Path]:
    """Number of an attempt → its record."""
    paths = sorted((directory / _ATTEMPTS).glob("*.json"))
    return {int(match[1]): path for path in paths if (match := _RECORD.fullmatch(path.name))}


def _free_number(directory: Path) -> int:
    """Number of an attempt that nothing of is here, whether it can be read or not.

    Raises:
        StoreError: there is none.
    """
    taken = [*_numbered_records(directory), *(number for _, number in claimed_folders(directory))]
    number = max(taken, default=-1) + 1
    if number > MOST_ATTEMPTS:
        raise StoreError(f"{directory} has an attempt {number - 1}, and numbers end there")
    return number


def _read(path: Path, model: type[M]) -> M:
    try:
        return model.model_validate_json(read_bounded(path, _MAX_BYTES, within=path.parent))
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
    directory: Path,
    runs: Sequence[CommandRun],
    records: Sequence[AttemptRecord],
    now: float,
    notes: list[str],
) -> list[AttemptRecord]:
    """The attempts of the last run that nobody has written a record of; of what is left out, why is
    added to ``notes``."""
    known = {record.attempt.number for record in records} | set(_numbered_records(directory))
    numbers = sorted({attempt for _, attempt in rank_folders(directory)} - known)
    run, found = len(runs) - 1, list(records)
    for number in numbers:
        attempt = Attempt(number, JobFollower(directory, number))
        try:
            attempt.advance()
            record = attempt.record(run, begin_of(attempt, run, runs, found), now, found)
        except TorchscaleError as error:
            notes.append(f"attempt {number} is left out: {error.message}")
            continue
        except (ArithmeticError, LookupError, ValueError, MemoryError, TypeError) as error:
            notes.append(f"attempt {number} is left out: its files are damaged ({error})")
            continue
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
