"""Records a cell's training with nsys or torch.profiler."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path

from pydantic import ValidationError

from torchscale.errors import MachineError
from torchscale.features.trace.recording.nsys import (
    HOST_TRACE,
    START_ATTEMPTS,
    Nsys,
    NsysSession,
    cuda_capture,
    cuda_trace,
    failed_to_start,
    open_session,
    range_capture,
)
from torchscale.features.trace.recording.nsys_reports import EXPORT_SECONDS, export, require_report
from torchscale.launch.control import LaunchLimits, StopRequest
from torchscale.launch.judge import EndingKind, LaunchEnding, LaunchEvidence, classify
from torchscale.launch.rank_records import read_failures
from torchscale.launch.torchrun import Watch, flatten_logs, torchrun_command, worker_environment
from torchscale.schema.cells.kinds import KINDS
from torchscale.schema.launch.progress import Progress
from torchscale.schema.launch.task import LaunchTask
from torchscale.schema.profiles.recording import RecordedRank, Recording
from torchscale.schema.state import State
from torchscale.util.files import atomic_write_model
from torchscale.util.processes.subprocesses import tail
from torchscale.util.redaction import redact_arguments

OUTPUT_NAME = "recording"
CONVERT_SECONDS = 1800.0
"""nsys turns what it recorded into a report when the ranks have ended, without a word: minutes for
eight ranks."""


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
    """Record ``task`` as its ``recording`` asks, with its files in ``directory``; by torch.profiler
    if ``nsys`` is ``None``.

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
    environment: Mapping[str, str] = worker_environment(task, extra_env)
    clock = time.monotonic()
    patience = None if nsys is None else CONVERT_SECONDS
    watch = Watch(directory, limits, stop, on_progress, patience, task.cell.world_size)
    if nsys is None:
        ending = watch.run(command, environment)
    else:
        ending, command = _run_with_nsys(
            nsys, watch, command, environment, on_cuda=task.device == "cuda"
        )
    flatten_logs(directory)
    ranks = recorded_ranks(directory)
    size = task.cell.world_size
    state, reason = State.OK, ""
    if len(ranks) < size:
        evidence = LaunchEvidence(
            ending, size, KINDS[task.cell.kind].payload(), read_failures(directory, size), {}, 0
        )
        state, reason = classify(evidence)
    files: tuple[str, ...] = tuple(rank.trace for rank in ranks if rank.trace is not None)
    if nsys is not None and state is State.OK:
        state, reason, files = nsys_files(
            nsys, directory, ending.exit_code, tail(directory / "torchrun.log")
        )
    recording = Recording(
        tool=request.tool,
        target=request.target,
        state=state,
        reason=reason,
        started_at=datetime.fromtimestamp(task.started_at, timezone.utc).isoformat(
            timespec="seconds"
        ),
        seconds=time.monotonic() - clock,
        command=tuple(redact_arguments(command)),
        files=files,
        ranks=ranks,
    )
    atomic_write_model(directory / "recording.json", recording)
    return recording


def _run_with_nsys(
    nsys: Nsys,
    watch: Watch,
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    on_cuda: bool,
) -> tuple[LaunchEnding, list[str]]:
    """How it ended, and what ran."""
    for attempt in range(1, START_ATTEMPTS + 1):
        began = time.monotonic()
        with open_session(nsys) as session:
            wrapped = _wrapped(session, watch.directory / OUTPUT_NAME, command, on_cuda=on_cuda)
            ending = watch.run(wrapped, session.environment(environment))
        log = (watch.directory / "torchrun.log").read_text(errors="replace")
        has_begun = ending.kind is not EndingKind.FINISHED or not failed_to_start(
            log, time.monotonic() - began
        )
        if has_begun or attempt == START_ATTEMPTS:
            break
    return ending, wrapped


def _wrapped(
    session: NsysSession, output: Path, command: Sequence[str], *, on_cuda: bool
) -> list[str]:
    if on_cuda:
        trace, options = cuda_trace(session.nsys)
        return session.wrap(output, command, [*options, *cuda_capture()], trace=trace, variables={})
    capture, variables = range_capture()
    return session.wrap(output, command, capture, trace=HOST_TRACE, variables=variables)


def nsys_files(
    nsys: Nsys, directory: Path, exit_code: int | None, output: str
) -> tuple[State, str, tuple[str, ...]]:
    """State, reason and files of nsys's report and its export; what was recorded is kept if the
    export fails.

    Args:
        nsys: Exports.
        directory: Directory of the recording.
        exit_code: Exit code of nsys.
        output: The last that it printed.
    """
    try:
        report = require_report(
            nsys, directory / OUTPUT_NAME, exit_code, output, timeout_seconds=EXPORT_SECONDS
        )
    except MachineError as error:
        return State.CRASHED, f"{error.message} ({error.hint})", ()
    exported = report.with_suffix(".sqlite")
    try:
        export(nsys, report, exported, timeout_seconds=EXPORT_SECONDS)
    except MachineError as error:
        return State.INCOMPLETE, f"{error.message} ({error.hint})", (report.name,)
    return State.OK, "", (exported.name,)


def recorded_ranks(directory: Path) -> tuple[RecordedRank, ...]:
    """What the ranks said of their part; of each that was recorded whole."""
    ranks = []
    for path in directory.glob("recorded-rank-*.json"):
        try:
            ranks.append(RecordedRank.model_validate_json(path.read_bytes()))
        except (OSError, ValidationError):
            continue
    return tuple(sorted(ranks, key=lambda rank: rank.rank))
