"""Starts a program with a collector in each of its ranks, and follows it to its end."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType

import psutil

from torchscale.errors import MachineError
from torchscale.jobs.job import WatchedJob
from torchscale.jobs.liveness import give_sign
from torchscale.jobs.runs import Past, begin_run, end_run
from torchscale.jobs.watched_run import WatchedRun
from torchscale.schema.launch.hang import Autopsy
from torchscale.schema.watch.report import WatchReport
from torchscale.util.files import atomic_write_model, make_directory

REPORT = "watch.json"
_SITE = Path(__file__).parent.parent / "worker" / "watch" / "site"
TIMING_VARIABLE = "TORCH_NCCL_ENABLE_TIMING"
"""Has torch measure the length of NCCL's collectives, by two events for each."""
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
_FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""What reaches this command alone and is meant for the program; Ctrl-C reaches both."""


@dataclass(frozen=True)
class WatchRequest:
    """A program to watch.

    Attributes:
        command: argv.
        directory: Folder for what is collected; with a job in it, this is another run of it.
        on_finding: Called with each finding when it first appears.
        on_hang: Called with why the job makes no progress, and for how many seconds.
        stall_seconds: Without a step, a batch or a collective on any rank, after which it is asked.
        keeps_events: Whether the ranks' moments are kept after the end.
        price: Dollars for a device and hour; ``None`` where no cost is wanted.
        timing: Whether torch is to measure how long each collective takes on its device.
    """

    command: Sequence[str]
    directory: Path
    on_finding: Callable[[str], None] = field(default=lambda _: None)
    on_hang: Callable[[Autopsy, float], None] = field(default=lambda *_: None)
    stall_seconds: float = STALL_SECONDS
    keeps_events: bool = False
    price: float | None = None
    timing: bool = False


@dataclass(frozen=True)
class Watched:
    """A job that has ended.

    Attributes:
        directory: Its folder.
        job: What was read of it.
        report: What is known of it.
        run: Its steps, as those of a launch.
    """

    directory: Path
    job: WatchedJob
    report: WatchReport
    run: WatchedRun


def watch_program(request: WatchRequest) -> Watched:
    """Run the program with its own input and output, and return what was seen of it; the report is
    also in ``watch.json``.

    Raises:
        MachineError: the program cannot be started.
        OutputError: the folder cannot be written.
        StoreError, UsageError: the folder has a job that no run can be added to.
    """
    if shutil.which(request.command[0]) is None:
        raise MachineError(f"cannot start {request.command[0]}: no such program")
    directory = request.directory.absolute()
    make_directory(directory)
    started = time.time()
    past = begin_run(directory, started)
    run = WatchedRun(request.command)
    job = WatchedJob(
        directory, request.command, started, past=past, price=request.price, on_steps=run.take
    )
    variables = {**os.environ, **({TIMING_VARIABLE: "1"} if request.timing else {})}
    environment = watching_environment(directory, variables, past.next_attempt)
    with _forwarding() as forward:
        try:
            process = subprocess.Popen(list(request.command), env=environment)
        except OSError as error:
            reason = error.strerror or error
            raise MachineError(f"cannot start {request.command[0]}: {reason}") from error
        forward.append(process)
        _follow(job, run, lambda seconds: _ends(process, seconds), request, directory)
    report = _finished(job, process.returncode, request, past)
    return Watched(directory, job, report, run)


def follow_job(directory: Path, pid: int) -> Watched:
    """Follow a job that is not ours until the process ``pid``, one of its ranks, has ended.

    Raises:
        OutputError: the folder cannot be written.
    """
    request = WatchRequest(_command_of(pid), directory)
    started = time.time()
    past = begin_run(directory, started, starts_program=False)
    run = WatchedRun(request.command)
    job = WatchedJob(directory, request.command, started, past=past, on_steps=run.take)
    _follow(job, run, lambda seconds: _has_ended(pid, seconds), request, directory)
    return Watched(directory, job, _finished(job, None, request, past), run)


def _command_of(pid: int) -> tuple[str, ...]:
    try:
        return tuple(psutil.Process(pid).cmdline())
    except psutil.Error:
        return ()


def _has_ended(pid: int, seconds: float) -> bool:
    """Whether a process ends within so many seconds, or has."""
    try:
        process = psutil.Process(pid)
        process.wait(seconds)
    except psutil.NoSuchProcess:
        return True
    except psutil.TimeoutExpired:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.Error:
        time.sleep(seconds)
        return False
    return True


def watching_environment(
    directory: Path, variables: Mapping[str, str], first_attempt: int = 0
) -> dict[str, str]:
    """``variables`` with those that have each Python of the program load the collector."""
    path = [str(_SITE), *filter(None, [variables.get("PYTHONPATH")])]
    return {
        **variables,
        "PYTHONPATH": os.pathsep.join(path),
        "TORCHSCALE_WATCH": str(directory),
        "TORCHSCALE_WATCH_FIRST_ATTEMPT": str(first_attempt),
    }


def _follow(
    job: WatchedJob,
    run: WatchedRun,
    ends: Callable[[float], bool],
    request: WatchRequest,
    directory: Path,
) -> None:
    """Read and judge until the program has ended. Nothing that fails here ends the program."""
    seen: set[tuple[str, int | None, int | None]] = set()
    read_at = judged_at = moved_at = time.monotonic()
    pause, moments, is_stalled = _JUDGE_SECONDS, 0, False
    while not ends(_POLL_SECONDS):
        now = time.monotonic()
        if now - read_at < _READ_SECONDS:
            continue
        read_at = now
        give_sign(directory)
        job.guarded(job.advance)
        job.guarded(partial(run.look, job))
        if job.moments > moments:
            moments, moved_at, is_stalled = job.moments, now, False
        elif moments and not is_stalled and now - moved_at > request.stall_seconds:
            is_stalled = True
            job.guarded(partial(_look_why, job, request, directory, now - moved_at))
        if now - judged_at >= pause:
            job.guarded(partial(_judge, job, seen, request, directory))
            judged_at = time.monotonic()
            pause = max(_JUDGE_SECONDS, (judged_at - now) / _JUDGE_SHARE)


def _look_why(job: WatchedJob, request: WatchRequest, directory: Path, seconds: float) -> None:
    """Say why the job makes no progress, and write it down: it may never end."""
    autopsy = job.look_why()
    if autopsy is not None:
        request.on_hang(autopsy, seconds)
    atomic_write_model(directory / REPORT, job.report(time.time()))


def _judge(
    job: WatchedJob,
    seen: set[tuple[str, int | None, int | None]],
    request: WatchRequest,
    directory: Path,
) -> None:
    for item in job.judge().findings:
        key = (item.finding.kind.value, item.finding.rank, item.first)
        if key not in seen:
            seen.add(key)
            request.on_finding(f"{item.span}: {item.finding.summary}".lstrip(": "))
    atomic_write_model(directory / REPORT, job.report(time.time()))


def _ends(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Whether it ends within so many seconds, or has."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def _finished(
    job: WatchedJob, status: int | None, request: WatchRequest, past: Past
) -> WatchReport:
    """The last judgement; ``status`` is ``None`` where the program is not ours."""
    directory, ended = request.directory.absolute(), time.time()
    exit_code = status
    if status is not None and status < 0:
        exit_code = 128 - status
    job.guarded(job.advance)
    job.guarded(job.judge)
    kept = partial(_keep, job, past, directory, ended, exit_code)
    is_kept = job.guarded(kept)
    if not request.keeps_events:
        with contextlib.suppress(OSError):
            for path in directory.glob("ranks/*/*.bin"):
                path.unlink(missing_ok=True)
        if not is_kept:
            job.guarded(kept)  # a full disk has room now
    return job.report(ended, exit_code, is_over=True)


def _keep(
    job: WatchedJob, past: Past, directory: Path, ended: float, exit_code: int | None
) -> None:
    """Write what stays of a job that has ended.

    Raises:
        OutputError: the folder cannot be written.
    """
    job.close(ended)
    end_run(directory, past, ended)
    atomic_write_model(directory / REPORT, job.report(ended, exit_code, is_over=True))


@contextlib.contextmanager
def _forwarding() -> Iterator[list[subprocess.Popen[bytes]]]:
    """While open, signals that are meant for the program are passed on to it, and Ctrl-C, which the
    terminal sends it too, does not end this command."""
    processes: list[subprocess.Popen[bytes]] = []

    def forward(number: int, frame: FrameType | None) -> None:
        del frame
        for process in processes:
            process.send_signal(number)

    before = {number: signal.signal(number, forward) for number in _FORWARDED}
    before[signal.SIGINT] = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield processes
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
