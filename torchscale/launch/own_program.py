"""Records a user's own program, unmodified, with nsys; or with torch.profiler through one line in
its loop."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from enum import Enum
from pathlib import Path
from typing import BinaryIO

from torchscale.errors import MachineError
from torchscale.launch.control import StopRequest
from torchscale.launch.nsys import (
    START_ATTEMPTS,
    Nsys,
    Session,
    cuda_trace,
    delayed_capture,
    failed_to_start,
    last_line,
    open_session,
)
from torchscale.launch.profile import CONVERT_SECONDS, OUTPUT_NAME, nsys_files, recorded_ranks
from torchscale.schema.profiles.recording import Recording
from torchscale.schema.profiles.request import RecordRequest
from torchscale.schema.state import State
from torchscale.util.files import atomic_write_model
from torchscale.util.logs import LogLimit, clean_logs, open_log
from torchscale.util.process import POLL_SECONDS, ManagedProcess, tail
from torchscale.util.redaction import note_arguments, note_secrets, redact_arguments
from torchscale.util.units import format_seconds

_OUTPUT = "output.log"
_RETRY_SECONDS = 1.0
"""Between two requests to end the recording: nsys refuses while its recording has not begun, which
can be a little later than asked for."""
_LATE_SECONDS = 120.0
"""So much later it may begin: nsys starts hundreds of megabytes of libraries, perhaps from a
network file system."""
_TAIL_BYTES = 64 * 2**10
"""Of the output: errors of several ranks and of their launcher."""
_ERROR = re.compile(r"(?:\[rank\d+\]:\s*)?((?:\w+\.)*\w*(?:Error|Exception|Interrupt)(?::.*)?)")
_LAUNCHERS_OWN = "torch.distributed.elastic."
"""Begins what torchrun raises because a rank has failed."""


@dataclass(frozen=True)
class UserRun:
    """A user's program that is to be recorded.

    Attributes:
        command: argv.
        delay_seconds: With nsys, before the recording starts.
        keep_running: Leave the program alone after the recording, instead of ending it.
        timeout_seconds: Until it is recorded.
        env: Variables added to this process's environment.
        on_output: Called with what the program prints.
        on_recorded: Called once with a recording that can be analyzed; a program that is kept still
            runs then.
    """

    command: Sequence[str]
    delay_seconds: float
    keep_running: bool
    timeout_seconds: float
    env: Mapping[str, str] = field(default_factory=dict)
    on_output: Callable[[bytes], None] = field(default=lambda _: None)
    on_recorded: Callable[[Recording], None] = field(default=lambda _: None)


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
    log = Path(request.directory) / _OUTPUT
    for attempt in range(1, START_ATTEMPTS + 1):
        with open_session(nsys) as session:
            recording = _with_nsys(run, request, session, stop)
        has_begun = bool(recording.files) or not failed_to_start(
            log.read_text(errors="replace"), recording.seconds
        )
        if has_begun or attempt == START_ATTEMPTS or stop.asked:
            break
    return recording


class _Ended(Enum):
    """Why the wait for a user's program ended."""

    BY_ITSELF = "by itself"
    RECORDED = "recorded"
    TIMEOUT = "timeout"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True)
class _Judgement:
    """What was recorded: the state, its reason, the files that can be analyzed."""

    state: State
    reason: str = ""
    files: tuple[str, ...] = ()


def _with_torch_profiler(run: UserRun, request: RecordRequest, stop: StopRequest) -> Recording:
    directory = Path(request.directory)
    with _started(run, request, list(run.command), run.env) as program:
        program.wait(lambda: stop.asked or _all_recorded(directory), run.timeout_seconds)
        ended = _Ended.TIMEOUT
        if program.has_ended:
            ended = _Ended.BY_ITSELF
        elif stop.asked:
            ended = _Ended.INTERRUPTED
        elif _all_recorded(directory):
            ended = _Ended.RECORDED
        if ended is _Ended.RECORDED and run.keep_running:
            program.hand_on(_Judgement(State.OK, files=_trace_files(directory)))
            ended = program.left_alone(lambda: stop.asked)
        if ended is _Ended.RECORDED:
            program.silence()  # torchrun complains with a traceback when it is ended
        program.end(at_once=stop.at_once)
        files = _trace_files(directory)
        if files:
            return program.recording(ended, _Judgement(State.OK, files=files))
        if ended is not _Ended.BY_ITSELF or program.exit_code:
            return program.recording(ended, program.nothing(ended, "before a step was recorded"))
        reason = (
            "the program recorded no step: it must call p.step() in `with "
            "torchscale.step_profiler() as p:`, more often than the number of skipped steps"
        )
        return program.recording(ended, _Judgement(State.INCOMPLETE, reason))


def _with_nsys(
    run: UserRun, request: RecordRequest, session: Session, stop: StopRequest
) -> Recording:
    directory = Path(request.directory)
    trace, options = cuda_trace(session.nsys)
    capture = [*options, *delayed_capture(run.delay_seconds)]
    argv = session.wrap(directory / OUTPUT_NAME, run.command, capture, trace=trace, variables={})
    with _started(
        run, request, argv, session.environment(run.env), session.closing_line
    ) as program:
        program.wait(
            lambda: stop.asked or program.has_finished, run.delay_seconds + request.seconds
        )
        early = stop.asked
        if not program.has_finished and _end_recording(program, session, stop):
            judgement = _judged(session, directory, 0)
            ended = _Ended.INTERRUPTED if early else _Ended.RECORDED
            if run.keep_running:
                program.hand_on(judgement)
                ended = program.left_alone(lambda: stop.count > int(early))
            program.silence()  # nsys complains when it is ended
            program.end(at_once=stop.at_once)
            return program.recording(ended, judgement)
        if program.has_finished:  # nsys writes its report, and ends with the program's exit code
            program.wait(lambda: stop.at_once, CONVERT_SECONDS)
        ended = _Ended.BY_ITSELF if program.has_ended else _Ended.TIMEOUT
        if stop.asked and not program.has_finished:
            ended = _Ended.INTERRUPTED
        program.silence()
        program.end(at_once=stop.at_once)
        if _has_report(directory) or (
            ended is _Ended.BY_ITSELF and program.seconds > run.delay_seconds + _LATE_SECONDS
        ):
            return program.recording(ended, _judged(session, directory, program.exit_code))
        delay = f" (--delay {run.delay_seconds:g}s)" if run.delay_seconds else ""
        return program.recording(
            ended, program.nothing(ended, f"before the recording began{delay}")
        )


def _end_recording(program: _Program, session: Session, stop: StopRequest) -> bool:
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


def _judged(session: Session, directory: Path, exit_code: int | None) -> _Judgement:
    said = tail(directory / _OUTPUT)
    return _Judgement(*nsys_files(session.nsys, directory, exit_code, said))


def _has_report(directory: Path) -> bool:
    return any(path.stat().st_size > 0 for path in directory.glob(f"{OUTPUT_NAME}.nsys-rep"))


def _all_recorded(directory: Path) -> bool:
    ranks = recorded_ranks(directory)
    return bool(ranks) and len(ranks) >= ranks[0].world_size


def _trace_files(directory: Path) -> tuple[str, ...]:
    return tuple(
        rank.trace
        for rank in recorded_ranks(directory)
        if rank.trace is not None and rank.steps > 0
    )


@contextmanager
def _started(
    run: UserRun,
    request: RecordRequest,
    argv: Sequence[str],
    env: Mapping[str, str],
    closing_line: bytes | None = None,
) -> Iterator[_Program]:
    """The program, running. It has ended with the context.

    Raises:
        MachineError: it cannot be started.
    """
    note_arguments(run.command)
    note_secrets(run.env)
    directory = Path(request.directory)
    with open_log(directory / _OUTPUT) as log, (directory / _OUTPUT).open("rb") as output:
        process = ManagedProcess(argv, env={**os.environ, **env}, stdout=log, stderr=log)
        try:
            yield _Program(
                run, request, argv, process, _Output(output, run.on_output, closing_line)
            )
        finally:
            process.end()


class _Program:
    """A program that runs and is recorded."""

    def __init__(
        self,
        run: UserRun,
        request: RecordRequest,
        argv: Sequence[str],
        process: ManagedProcess,
        output: _Output,
    ) -> None:
        self._run, self._request, self._argv, self._process, self._output = (
            run,
            request,
            argv,
            process,
            output,
        )
        self._directory = Path(request.directory)
        self._limit = LogLimit(_OUTPUT, directory=self._directory)
        self._started, self._clock = datetime.now(timezone.utc), time.monotonic()
        self._seconds: float | None = None

    @property
    def seconds(self) -> float:
        """Since its start, until it was seen to have ended."""
        if self._seconds is None:
            return time.monotonic() - self._clock
        return self._seconds

    @property
    def has_ended(self) -> bool:
        """Whether its process has."""
        return self._process.poll() is not None

    @property
    def has_finished(self) -> bool:
        """Whether it has ended, though nsys around it may still write a report."""
        return self._output.is_closed or self.has_ended

    @property
    def exit_code(self) -> int | None:
        """Its exit code: 128 and the signal that ended it; ``None`` while it runs."""
        status = self._process.poll()
        if status is not None and status < 0:
            return 128 - status
        return status

    def wait(self, is_over: Callable[[], bool], seconds: float) -> None:
        """Pass on what it prints until ``is_over``, it has ended, or ``seconds`` have passed."""
        until = time.monotonic() + seconds
        while not self.has_ended and not is_over() and time.monotonic() < until:
            self._output.pass_on()
            self._limit.apply()
            time.sleep(POLL_SECONDS)
        self._output.pass_on()
        if self.has_finished and self._seconds is None:
            self._seconds = self.seconds

    def left_alone(self, is_over: Callable[[], bool]) -> _Ended:
        """Wait until it ends by itself, or the user ends it."""
        self.wait(is_over, float("inf"))
        if self.has_ended:
            return _Ended.BY_ITSELF
        return _Ended.INTERRUPTED

    def end(self, *, at_once: bool) -> None:
        """End it and all that it started."""
        if at_once:
            self._process.end(grace_seconds=0.0)
        elif not self.has_ended:
            self._process.end()
        self._output.pass_on()
        if self._seconds is None:
            self._seconds = self.seconds
        clean_logs(self._directory)

    def silence(self) -> None:
        """Pass on nothing more of what it prints."""
        self._output.is_silent = True

    def hand_on(self, judgement: _Judgement) -> None:
        """Keep a recording, and have it analyzed, while the program still runs."""
        recording = self._recording(judgement, None)
        atomic_write_model(self._directory / "recording.json", recording)
        if judgement.state is State.OK:
            self._run.on_recorded(recording)

    def nothing(self, ended: _Ended, when: str) -> _Judgement:
        """Why nothing was recorded."""
        failure = self._failure()
        last = f"; its last output: {failure}" if failure else ""
        if ended is _Ended.INTERRUPTED:
            return _Judgement(State.INTERRUPTED, "interrupted before anything was recorded")
        if ended is _Ended.TIMEOUT:
            return _Judgement(State.TIMEOUT, f"nothing was recorded in time{last}")
        after = format_seconds(self.seconds)
        if self.exit_code:
            return _Judgement(
                State.CRASHED,
                f"the program exited with {self.exit_code} after {after}, {when}{last}",
            )
        return _Judgement(State.INCOMPLETE, f"the program ended after {after}, {when}{last}")

    def recording(self, ended: _Ended, judgement: _Judgement) -> Recording:
        """Keep the recording of a program that has ended."""
        exit_code = None
        if ended is _Ended.BY_ITSELF:
            exit_code = self.exit_code
        recording = self._recording(judgement, exit_code)
        atomic_write_model(self._directory / "recording.json", recording)
        return recording

    def _recording(self, judgement: _Judgement, exit_code: int | None) -> Recording:
        return Recording(
            tool=self._request.tool,
            target=self._request.target,
            state=judgement.state,
            reason=judgement.reason,
            started_at=self._started.isoformat(timespec="seconds"),
            seconds=self.seconds,
            command=tuple(redact_arguments(self._argv)),
            files=judgement.files,
            ranks=recorded_ranks(self._directory),
            exit_code=exit_code,
            failure=self._failure() if exit_code else "",
        )

    def _failure(self) -> str:
        """What it printed of its failure."""
        text = tail(self._directory / _OUTPUT, _TAIL_BYTES)
        closing = self._output.closing_line
        return program_failure(text if closing is None else text.partition(closing.decode())[0])


class _Output:
    """What a program prints, passed on as it comes; without what nsys prints after it.

    Attributes:
        closing_line: How what nsys prints begins; ``None`` without nsys.
        is_closed: Whether nsys has begun to write its report, so that the program has ended.
        is_silent: Set to pass on nothing more.
    """

    def __init__(
        self, source: BinaryIO, on_output: Callable[[bytes], None], closing_line: bytes | None
    ) -> None:
        self._source, self._on_output, self.closing_line = source, on_output, closing_line
        self._held = b""
        self.is_closed = self.is_silent = False

    def pass_on(self) -> None:
        """What was printed since the last call."""
        if self.is_closed or self.is_silent:
            return
        text, kept = self._held + self._source.read(), 0
        if self.closing_line is not None:
            text, found, _ = text.partition(self.closing_line)
            self.is_closed = bool(found)
            # Its last bytes may be the beginning of that line.
            kept = 0 if found else _overlap(text, self.closing_line)
        self._held = text[len(text) - kept :]
        self._on_output(text[: len(text) - kept])


def _overlap(text: bytes, line: bytes) -> int:
    """How many bytes at the end of ``text`` are the beginning of ``line``."""
    longest = min(len(text), len(line))
    return next((size for size in range(longest, 0, -1) if text.endswith(line[:size])), 0)


def program_failure(text: str) -> str:
    """What a program printed of its failure: the first error of its tracebacks, without those that
    a launcher adds; else its last line."""
    errors = [
        match[1]
        for line in text.splitlines()
        if (match := _ERROR.fullmatch(line.rstrip())) is not None
    ]
    own = [error for error in errors if not error.startswith(_LAUNCHERS_OWN)]
    if own:
        return own[0][:300]
    return last_line(text)
