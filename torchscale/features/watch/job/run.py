"""Starts a program with a collector in each of its ranks, and follows it to its end."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from torchscale.errors import MachineError
from torchscale.features.watch.ends.files import remove_files
from torchscale.features.watch.job.job import WatchedJob
from torchscale.features.watch.job.job_folder import place_for
from torchscale.features.watch.job.liveness import give_sign
from torchscale.features.watch.job.program_processes import (
    TIMING_VARIABLE,
    child_has_ended,
    watching_environment,
)
from torchscale.features.watch.job.rank_folders import remove_moments
from torchscale.features.watch.job.relay import Relay
from torchscale.features.watch.job.runs import Past, end_run
from torchscale.features.watch.job.standing import Standing
from torchscale.schema.launch.hang import Autopsy
from torchscale.schema.watch.report import WatchReport
from torchscale.store.locations import WATCH_REPORT
from torchscale.util.files import atomic_write_model
from torchscale.worker.watch import clock

_POLL_SECONDS = 0.1
_READ_SECONDS = 2.0
"""Between two looks at the ranks' files: they are written twice a second, and a look takes
milliseconds."""
_JUDGE_SECONDS = 15.0
"""Between two judgements."""
_JUDGE_SHARE = 0.01
"""Of the time that judgements may take: with many ranks they are further apart."""
STALL_SECONDS = 120.0
"""A checkpoint or an evaluation takes as long now and then; to look changes nothing."""


@dataclass(frozen=True)
class WatchRequest:
    """A program to watch.

    Attributes:
        command: argv.
        directory: Folder for what is collected.
        appends: Whether to add to the job in it. The program is started whatever is there: where
            nothing can be added to it, a folder beside it is taken.
        on_note: Called with what the user should know at once.
        on_judged: Called with the job and what is known of it after each judgement.
        on_hang: Called with why the job makes no progress, and for how many seconds.
        stall_seconds: Without a step, a batch or a collective on any rank, after which it is asked.
        keeps_events: Whether the ranks' moments are kept after the end.
        price: Dollars for a device and hour; ``None`` where no cost is wanted.
        timing: Whether torch is to measure how long each collective takes on its device.
        role: What the program does in its job; empty where it is all of it.
    """

    command: Sequence[str]
    directory: Path
    appends: bool = False
    on_note: Callable[[str], None] = field(default=lambda _: None)
    on_judged: Callable[[WatchedJob, WatchReport], None] = field(default=lambda *_: None)
    on_hang: Callable[[Autopsy, float], None] = field(default=lambda *_: None)
    stall_seconds: float = STALL_SECONDS
    keeps_events: bool = False
    price: float | None = None
    timing: bool = False
    role: str = ""


@dataclass(frozen=True)
class Watched:
    """A job that has ended.

    Attributes:
        directory: Its folder.
        job: What was read of it.
        report: What is known of it.
    """

    directory: Path
    job: WatchedJob
    report: WatchReport


@dataclass(frozen=True)
class FollowedJob:
    """A program that is watched: its job, and where that is kept."""

    request: WatchRequest
    directory: Path
    past: Past
    job: WatchedJob


@dataclass(frozen=True)
class ProgramEnding:
    """How a program ended: its exit code, unless it is not ours, and whether the user stopped
    it."""

    exit_code: int | None = None
    is_stopped: bool = False


@dataclass(frozen=True)
class EndedProgram:
    """A program that has ended.

    Attributes:
        exit_code: Its own; of one that a signal ended, 128 and the number of the signal.
        is_stopped: Whether the user stopped it.
    """

    exit_code: int
    is_stopped: bool
    _watching: FollowedJob | None

    def watched(self) -> Watched | None:
        """Judge it a last time, and write what is known of it into its folder; ``None`` where no
        folder could be written, and nothing was collected."""
        if self._watching is None:
            return None
        return finished(self._watching, ProgramEnding(self.exit_code, self.is_stopped))


def run_program(request: WatchRequest, relay: Relay) -> EndedProgram:
    """Run the program with its own input and output, and follow it to its end.

    Raises:
        MachineError: the program cannot be started.
        OutputError: the folder cannot be written.
        ProgramExit: a signal came after its end.
    """
    if shutil.which(request.command[0]) is None:
        raise MachineError(f"cannot start {request.command[0]}: no such program")
    watching = _begin(request)
    environment = dict(os.environ)
    if watching is not None:
        variables = {**os.environ, **({TIMING_VARIABLE: "1"} if request.timing else {})}
        first = watching.past.next_attempt
        environment = watching_environment(watching.directory, variables, first)
    process = relay.start(request.command, environment)
    follow(watching, lambda seconds: child_has_ended(process, seconds), process.pid)
    status = process.returncode
    exit_code = 128 - status if status < 0 else status
    return EndedProgram(exit_code, relay.end(exit_code), watching)


def _begin(request: WatchRequest) -> FollowedJob | None:
    """A folder for what is collected; ``None`` where a program that is to be added to a job has none.

    Raises:
        OutputError: the folder cannot be written.
    """
    clock.begin()
    started = clock.now()
    found = place_for(request.directory, started, request.on_note, appends=request.appends)
    if found is None:
        return None
    directory, past = found
    job = WatchedJob(
        directory, request.command, started, past=past, price=request.price, role=request.role
    )
    return FollowedJob(request, directory, past, job)


def follow(
    watching: FollowedJob | None, ends: Callable[[float], bool], program: int | None = None
) -> None:
    """Read and judge until the program has ended. Nothing that fails here ends the program.

    Args:
        watching: ``None`` where nothing is collected.
        ends: Whether it ends within so many seconds, or has.
        program: Its PID; ``None`` where it is not ours.
    """
    if watching is None:
        while not ends(_READ_SECONDS):
            pass
        return
    job, directory, request = watching.job, watching.directory, watching.request
    read_at = judged_at = moved_at = time.monotonic()
    pause, moments, is_stalled = _JUDGE_SECONDS, 0, False
    write = partial(_write, job, directory)
    standing = Standing(job, request.stall_seconds, request.on_hang, write, program)
    while not ends(_POLL_SECONDS):
        now = time.monotonic()
        if now - read_at < _READ_SECONDS:
            continue
        read_at = now
        give_sign(directory)
        job.guarded(job.advance)
        job.guarded(job.read_load)
        if job.moments > moments:
            moments, moved_at, is_stalled = job.moments, now, False
        elif not is_stalled:
            is_stalled = standing.is_explained(now - moved_at if moments else None)
        if now - judged_at >= pause:
            job.guarded(partial(_judge, job, request, directory))
            judged_at = time.monotonic()
            pause = max(_JUDGE_SECONDS, (judged_at - now) / _JUDGE_SHARE)


def _write(job: WatchedJob, directory: Path) -> None:
    atomic_write_model(directory / WATCH_REPORT, job.report(clock.now()))


def _judge(job: WatchedJob, request: WatchRequest, directory: Path) -> None:
    job.judge()
    report = job.report(clock.now())
    atomic_write_model(directory / WATCH_REPORT, report)
    request.on_judged(job, report)


def finished(watching: FollowedJob, ending: ProgramEnding) -> Watched:
    """The last judgement of a job that has ended, written into its folder."""
    job, directory, ended = watching.job, watching.directory, clock.now()
    job.guarded(job.advance)
    job.guarded(job.judge)
    job.guarded(partial(job.explain_end, ending.exit_code))
    kept = partial(_keep, watching, ended, ending)
    is_kept = job.guarded(kept)
    if not watching.request.keeps_events:
        job.guarded(partial(remove_moments, directory))
        job.guarded(partial(remove_files, directory))
        if not is_kept:
            job.guarded(kept)  # a full disk has room now
    return Watched(directory, job, _report(job, ended, ending))


def _keep(watching: FollowedJob, ended: float, ending: ProgramEnding) -> None:
    """Write what stays of a job that has ended.

    Raises:
        OutputError: the folder cannot be written.
    """
    job, directory = watching.job, watching.directory
    job.close(ended)
    end_run(directory, watching.past, ended)
    atomic_write_model(directory / WATCH_REPORT, _report(job, ended, ending))


def _report(job: WatchedJob, ended: float, ending: ProgramEnding) -> WatchReport:
    return job.report(ended, ending.exit_code, is_over=True, is_stopped=ending.is_stopped)
