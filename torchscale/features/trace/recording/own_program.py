"""Records a user's own program, unmodified, with nsys; or with torch.profiler through one line in
its loop."""

from __future__ import annotations

import shutil
from pathlib import Path

from torchscale.errors import MachineError
from torchscale.features.trace.recording.nsys import (
    START_ATTEMPTS,
    Nsys,
    NsysSession,
    cuda_trace,
    delayed_capture,
    failed_to_start,
    open_session,
)
from torchscale.features.trace.recording.nsys_reports import has_recorded
from torchscale.features.trace.recording.profile import (
    CONVERT_SECONDS,
    OUTPUT_NAME,
    nsys_files,
    recorded_ranks,
)
from torchscale.features.trace.recording.user_program import (
    OUTPUT_LOG,
    RecordingJudgement,
    UserProgram,
    UserRun,
    WaitEnd,
    start_program,
)
from torchscale.launch.control import StopRequest
from torchscale.schema.profiles.recording import Recording
from torchscale.schema.profiles.request import RecordRequest
from torchscale.schema.state import State
from torchscale.util.logs import open_log
from torchscale.util.processes.subprocesses import tail

_RETRY_SECONDS = 1.0
"""Seconds between two requests to end the recording: nsys refuses while its recording has not
begun, which can be a little later than asked for."""
_LATE_SECONDS = 120.0
"""So much later it may begin: nsys starts hundreds of megabytes of libraries, perhaps from a
network file system."""


def record_program(
    run: UserRun, request: RecordRequest, nsys: Nsys | None, stop: StopRequest
) -> Recording:
    """Record a user's program; what it prints is also written to ``output.log``.

    The first request to stop ends the recording, and the program unless it is to be kept; the next
    one ends all.

    Raises:
        MachineError: the program cannot be started.
    """
    if nsys is None:
        return _with_torch_profiler(run, request, stop)
    if shutil.which(run.command[0]) is None:  # nsys would say "Not executable" and exit with 1
        raise MachineError(f"cannot start {run.command[0]}: no such program")
    log = Path(request.directory) / OUTPUT_LOG
    for attempt in range(1, START_ATTEMPTS + 1):
        with open_session(nsys) as session:
            recording = _with_nsys(run, request, session, stop)
        has_begun = bool(recording.files) or not failed_to_start(
            log.read_text(errors="replace"), recording.seconds
        )
        if has_begun or attempt == START_ATTEMPTS or stop.asked:
            break
    return recording


def _with_torch_profiler(run: UserRun, request: RecordRequest, stop: StopRequest) -> Recording:
    directory = Path(request.directory)
    with start_program(run, request, list(run.command), run.env) as program:
        program.wait(lambda: stop.asked or _all_recorded(directory), run.timeout_seconds)
        ended = WaitEnd.TIMEOUT
        if program.has_ended:
            ended = WaitEnd.BY_ITSELF
        elif stop.asked:
            ended = WaitEnd.INTERRUPTED
        elif _all_recorded(directory):
            ended = WaitEnd.RECORDED
        if ended is WaitEnd.RECORDED and run.keep_running:
            program.hand_on(RecordingJudgement(State.OK, files=_trace_files(directory)))
            ended = program.left_alone(lambda: stop.asked)
        if ended is WaitEnd.RECORDED:
            program.silence()  # torchrun complains with a traceback when it is ended
        program.end(at_once=stop.at_once)
        files = _trace_files(directory)
        if files:
            return program.recording(ended, RecordingJudgement(State.OK, files=files))
        if ended is not WaitEnd.BY_ITSELF or program.exit_code:
            return program.recording(ended, program.nothing(ended, "before a step was recorded"))
        reason = (
            "the program recorded no step: it must call p.step() in `with "
            "torchscale.step_profiler() as p:`, more often than the number of skipped steps"
        )
        return program.recording(ended, RecordingJudgement(State.INCOMPLETE, reason))


def _with_nsys(
    run: UserRun, request: RecordRequest, session: NsysSession, stop: StopRequest
) -> Recording:
    directory = Path(request.directory)
    trace, options = cuda_trace(session.nsys)
    capture = [*options, *delayed_capture(run.delay_seconds)]
    argv = session.wrap(directory / OUTPUT_NAME, run.command, capture, trace=trace, variables={})
    with start_program(
        run, request, argv, session.environment(run.env), session.closing_line
    ) as program:
        program.wait(
            lambda: stop.asked or program.has_finished, run.delay_seconds + request.seconds
        )
        early = stop.asked
        if not program.has_finished and _end_recording(program, session, stop):
            judgement = _judged(session, directory, 0)
            ended = WaitEnd.INTERRUPTED if early else WaitEnd.RECORDED
            if run.keep_running:
                program.hand_on(judgement)
                ended = program.left_alone(lambda: stop.count > int(early))
            program.silence()  # nsys complains when it is ended
            program.end(at_once=stop.at_once)
            return program.recording(ended, judgement)
        if program.has_finished:  # nsys writes its report, and ends with the program's exit code
            program.wait(lambda: stop.at_once, CONVERT_SECONDS)
        ended = WaitEnd.BY_ITSELF if program.has_ended else WaitEnd.TIMEOUT
        if stop.asked and not program.has_finished:
            ended = WaitEnd.INTERRUPTED
        program.silence()
        program.end(at_once=stop.at_once)
        if has_recorded(directory / OUTPUT_NAME) or (
            ended is WaitEnd.BY_ITSELF and program.seconds > run.delay_seconds + _LATE_SECONDS
        ):
            return program.recording(ended, _judged(session, directory, program.exit_code))
        delay = f" (--delay {run.delay_seconds:g}s)" if run.delay_seconds else ""
        return program.recording(
            ended, program.nothing(ended, f"before the recording began{delay}")
        )


def _end_recording(program: UserProgram, session: NsysSession, stop: StopRequest) -> bool:
    """Have nsys end the recording and write its report, while the program goes on. Whether there is
    one."""
    deadline = program.seconds + _LATE_SECONDS
    with open_log(session.directory / "stop.log") as log:
        while not program.has_finished and not stop.at_once:
            stopping = session.start_stop(log)
            try:
                program.wait(
                    lambda process=stopping: process.poll() is not None or stop.at_once,  # type: ignore[misc]
                    CONVERT_SECONDS,
                )
                code = stopping.poll()
            finally:
                stopping.end()
            if code == 0:
                return True
            if stop.asked or program.seconds > deadline:
                return False
            program.wait(lambda: stop.asked, _RETRY_SECONDS)
    return False


def _judged(session: NsysSession, directory: Path, exit_code: int | None) -> RecordingJudgement:
    said = tail(directory / OUTPUT_LOG)
    return RecordingJudgement(*nsys_files(session.nsys, directory, exit_code, said))


def _all_recorded(directory: Path) -> bool:
    ranks = recorded_ranks(directory)
    return bool(ranks) and len(ranks) >= ranks[0].world_size


def _trace_files(directory: Path) -> tuple[str, ...]:
    return tuple(
        rank.trace
        for rank in recorded_ranks(directory)
        if rank.trace is not None and rank.steps > 0
    )
