"""Records a cell's training, or a user's program, with nsys or torch.profiler."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from enum import Enum
from pathlib import Path

from pydantic import ValidationError

from torchscale.errors import MachineError
from torchscale.launch.collect import Evidence, classify, read_failures
from torchscale.launch.control import LaunchLimits, StopRequest
from torchscale.launch.nsys import Nsys, exact_steps, export, require_report, timed_capture, wrap
from torchscale.launch.process import POLL_SECONDS, ManagedProcess, tail
from torchscale.launch.torchrun import Watch, flatten_logs, torchrun_command, worker_environment
from torchscale.schema.cells.kinds import KINDS
from torchscale.schema.launch.progress import Progress
from torchscale.schema.launch.task import LaunchTask
from torchscale.schema.profiles.recording import RecordedRank, Recording
from torchscale.schema.profiles.request import RecordRequest
from torchscale.schema.state import State
from torchscale.util.files import atomic_write_model
from torchscale.util.logs import LogLimit, clean_logs, open_log
from torchscale.util.redaction import redact_arguments

OUTPUT_NAME = "recording"
EXPORT_SECONDS = 600.0
"""An export of a recording of some seconds takes minutes at most; longer ones can be exported by hand."""


CONVERT_SECONDS = 1800.0
"""nsys turns what it recorded into a report when the ranks have ended, without a word: minutes for eight ranks."""


def record_cell(
    task: LaunchTask,
    directory: Path,
    nsys: Nsys | None,
    *,
    limits: LaunchLimits,
    extra_env: Mapping[str, str],
    stop: StopRequest,
    on_progress: Callable[[Progress], None],
) -> Recording:
    """Record ``task`` as its ``recording`` asks, with its files in ``directory``; by torch.profiler if ``nsys`` is
    ``None``.

    Failures of the ranks or the profiler do not raise: they are the recording's state and reason.

    Raises:
        ValueError: the task has no recording request.
        OutputError: ``directory`` cannot be written.
    """
    request = task.recording
    if request is None:
        raise ValueError("task.recording is None; record_cell needs a request")
    atomic_write_model(directory / "task.json", task)
    command = torchrun_command(task.cell.world_size, directory, str(directory / "task.json"))
    if nsys is not None:
        command = wrap(nsys, directory / OUTPUT_NAME, command, exact_steps())
    clock = time.monotonic()
    patience = None if nsys is None else CONVERT_SECONDS
    watch = Watch(directory, limits, stop, on_progress, patience, task.cell.world_size)
    ending = watch.run(command, worker_environment(task, extra_env))
    flatten_logs(directory)
    ranks = _recorded(directory)
    size = task.cell.world_size
    state, reason = State.OK, ""
    if len(ranks) < size:
        evidence = Evidence(ending, size, KINDS[task.cell.kind].payload(), read_failures(directory, size), {}, 0)
        state, reason = classify(evidence)
    files: tuple[str, ...] = tuple(rank.trace for rank in ranks if rank.trace is not None)
    if nsys is not None and state is State.OK:
        state, reason, files = _nsys_files(nsys, directory, ending.exit_code)
    recording = Recording(
        tool=request.tool,
        target=request.target,
        state=state,
        reason=reason,
        started_at=datetime.fromtimestamp(task.started_at, timezone.utc).isoformat(timespec="seconds"),
        seconds=time.monotonic() - clock,
        command=tuple(redact_arguments(command)),
        files=files,
        ranks=ranks,
    )
    atomic_write_model(directory / "recording.json", recording)
    return recording


@dataclass(frozen=True)
class UserRun:
    """A user's program that is to be recorded.

    Attributes:
        command: argv.
        delay_seconds: With nsys, before the recording starts.
        keep_running: Let the program continue after the recording instead of ending it.
        timeout_seconds: For the whole program.
        env: Variables added to this process's environment.
        on_output: Called with what the program prints.
    """

    command: Sequence[str]
    delay_seconds: float
    keep_running: bool
    timeout_seconds: float
    env: Mapping[str, str] = field(default_factory=dict)
    on_output: Callable[[bytes], None] = field(default=lambda _: None)


def record_program(run: UserRun, request: RecordRequest, nsys: Nsys | None, stop: StopRequest) -> Recording:
    """Record a user's program unmodified; what it prints is also written to ``output.log``.

    Raises:
        MachineError: the program cannot be started.
    """
    directory = Path(request.directory)
    argv = list(run.command)
    if nsys is not None:
        capture = timed_capture(run.delay_seconds, request.seconds, keep_running=run.keep_running)
        argv = wrap(nsys, directory / OUTPUT_NAME, argv, capture)
    started, clock = datetime.now(timezone.utc), time.monotonic()
    with open_log(directory / "output.log") as log:
        process = ManagedProcess(argv, env={**os.environ, **run.env}, stdout=log, stderr=log)
        try:
            ended = _wait(process, run, directory, stop, by_kineto=nsys is None)
        finally:
            process.end()
    clean_logs(directory)
    ranks = _recorded(directory)
    state, reason, files = _judge_program(process.poll(), ended, ranks, directory, by_kineto=nsys is None)
    if nsys is not None and ended is _Ended.BY_ITSELF:
        state, reason, files = _nsys_files(nsys, directory, process.poll())
    recording = Recording(
        tool=request.tool,
        target=request.target,
        state=state,
        reason=reason,
        started_at=started.isoformat(timespec="seconds"),
        seconds=time.monotonic() - clock,
        command=tuple(redact_arguments(argv)),
        files=files,
        ranks=ranks,
    )
    atomic_write_model(directory / "recording.json", recording)
    return recording


class _Ended(Enum):
    """Why the wait for a user's program ended."""

    BY_ITSELF = "by itself"
    RECORDED = "recorded"
    TIMEOUT = "timeout"
    INTERRUPTED = "interrupted"


def _wait(process: ManagedProcess, run: UserRun, directory: Path, stop: StopRequest, *, by_kineto: bool) -> _Ended:
    began = time.monotonic()
    limit = LogLimit("output.log", directory=directory)
    with (directory / "output.log").open("rb") as output:
        while process.poll() is None:
            run.on_output(output.read())
            limit.apply()
            ended = _ended(run, directory, stop, began, by_kineto=by_kineto)
            if ended is not None:
                return ended
            time.sleep(POLL_SECONDS)
        run.on_output(output.read())
    return _Ended.BY_ITSELF


def _ended(run: UserRun, directory: Path, stop: StopRequest, began: float, *, by_kineto: bool) -> _Ended | None:
    if by_kineto and not run.keep_running and _all_recorded(directory):
        return _Ended.RECORDED
    # An nsys that is killed writes no report: at the first stop request it may finish within its own limits.
    if stop.asked and (by_kineto or stop.at_once):
        return _Ended.INTERRUPTED
    return _Ended.TIMEOUT if time.monotonic() - began > run.timeout_seconds else None


def _all_recorded(directory: Path) -> bool:
    ranks = _recorded(directory)
    return bool(ranks) and len(ranks) >= ranks[0].world_size


def _judge_program(
    exit_code: int | None, ended: _Ended, ranks: tuple[RecordedRank, ...], directory: Path, *, by_kineto: bool
) -> tuple[State, str, tuple[str, ...]]:
    files = tuple(rank.trace for rank in ranks if rank.trace is not None and rank.steps > 0)
    last = _last_output(directory)
    if ended is _Ended.INTERRUPTED and not files:
        return State.INTERRUPTED, "interrupted before anything was recorded", ()
    if ended is _Ended.TIMEOUT and not files:
        return State.TIMEOUT, f"nothing was recorded in time{last}", ()
    if not by_kineto:
        return State.CRASHED, f"nsys exited with {exit_code}{last}", ()
    if files:
        return State.OK, "", files
    if exit_code not in (0, None):
        return State.CRASHED, f"the program exited with {exit_code} before a step was recorded{last}", ()
    return (
        State.INCOMPLETE,
        "the program recorded no step: it must call p.step() in `with torchscale.step_profiler() as p:`, more often "
        "than the number of skipped steps",
        (),
    )


def _nsys_files(nsys: Nsys, directory: Path, exit_code: int | None) -> tuple[State, str, tuple[str, ...]]:
    """State, reason and files of nsys's report and its export; what was recorded is kept if the export fails."""
    try:
        output = tail(directory / "torchrun.log") or tail(directory / "output.log")
        report = require_report(directory / OUTPUT_NAME, exit_code, output)
    except MachineError as error:
        return State.CRASHED, f"{error.message} ({error.hint})", ()
    try:
        exported = export(nsys, report, timeout_seconds=EXPORT_SECONDS)
    except MachineError as error:
        return State.INCOMPLETE, f"{error.message} ({error.hint})", (report.name,)
    return State.OK, "", (exported.name,)


def _last_output(directory: Path) -> str:
    lines = [line.strip() for line in tail(directory / "output.log", 4096).splitlines() if line.strip()]
    return f"; its last output: {lines[-1][:300]}" if lines else ""


def _recorded(directory: Path) -> tuple[RecordedRank, ...]:
    ranks = []
    for path in directory.glob("recorded-rank-*.json"):
        try:
            ranks.append(RecordedRank.model_validate_json(path.read_bytes()))
        except (OSError, ValidationError):
            continue
    return tuple(sorted(ranks, key=lambda rank: rank.rank))
