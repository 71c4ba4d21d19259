"""A user's program that runs: started, watched, ended, and what it prints."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from enum import Enum
from pathlib import Path
from typing import BinaryIO

from torchscale.features.trace.recording.nsys import (
    last_line,
)
from torchscale.features.trace.recording.profile import (
    recorded_ranks,
)
from torchscale.schema.profiles.recording import Recording
from torchscale.schema.profiles.request import RecordRequest
from torchscale.schema.state import State
from torchscale.util.files import atomic_write_model
from torchscale.util.logs import LogLimit, clean_logs, open_log
from torchscale.util.processes.subprocesses import POLL_SECONDS, ManagedProcess, tail
from torchscale.util.redaction import note_arguments, note_secrets, redact_arguments
from torchscale.util.units import format_seconds

OUTPUT_LOG = "output.log"
_TAIL_BYTES = 64 * 2**10
"""Maximum number of bytes of the output: errors of several ranks and of their launcher."""
_ERROR = re.compile(r"(?:\[rank\d+\]:\s*)?((?:\w+\.)*\w*(?:Error|Exception|Interrupt)(?::.*)?)")
_LAUNCHERS_OWN = "torch.distributed.elastic."
"""Begins what torchrun raises because a rank has failed."""


@dataclass(frozen=True)
class UserRun:
    """A user's program that is to be recorded.

    Attributes:
        command: argv.
        delay_seconds: Seconds before the recording starts, with nsys.
        keep_running: Leave the program alone after the recording, instead of ending it.
        timeout_seconds: Longest time until it is recorded.
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


class WaitEnd(Enum):
    """Why the wait for a user's program ended."""

    BY_ITSELF = "by itself"
    RECORDED = "recorded"
    TIMEOUT = "timeout"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True)
class RecordingJudgement:
    """What was recorded: the state, its reason, the files that can be analyzed."""

    state: State
    reason: str = ""
    files: tuple[str, ...] = ()


@contextmanager
def start_program(
    run: UserRun,
    request: RecordRequest,
    argv: Sequence[str],
    env: Mapping[str, str],
    closing_line: bytes | None = None,
) -> Iterator[UserProgram]:
    """The program, running. It has ended with the context.

    Raises:
        MachineError: it cannot be started.
    """
    note_arguments(run.command)
    note_secrets(run.env)
    directory = Path(request.directory)
    with open_log(directory / OUTPUT_LOG) as log, (directory / OUTPUT_LOG).open("rb") as output:
        process = ManagedProcess(argv, env={**os.environ, **env}, stdout=log, stderr=log)
        try:
            yield UserProgram(
                run, request, argv, process, _Output(output, run.on_output, closing_line)
            )
        finally:
            process.end()


class UserProgram:
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
        self._limit = LogLimit(OUTPUT_LOG, directory=self._directory)
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

    def left_alone(self, is_over: Callable[[], bool]) -> WaitEnd:
        """Wait until it ends by itself, or the user ends it."""
        self.wait(is_over, float("inf"))
        if self.has_ended:
            return WaitEnd.BY_ITSELF
        return WaitEnd.INTERRUPTED

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

    def hand_on(self, judgement: RecordingJudgement) -> None:
        """Keep a recording, and have it analyzed, while the program still runs."""
        recording = self._recording(judgement, None)
        atomic_write_model(self._directory / "recording.json", recording)
        if judgement.state is State.OK:
            self._run.on_recorded(recording)

    def nothing(self, ended: WaitEnd, when: str) -> RecordingJudgement:
        """Why nothing was recorded."""
        failure = self._failure()
        last = f"; its last output: {failure}" if failure else ""
        if ended is WaitEnd.INTERRUPTED:
            return RecordingJudgement(State.INTERRUPTED, "interrupted before anything was recorded")
        if ended is WaitEnd.TIMEOUT:
            return RecordingJudgement(State.TIMEOUT, f"nothing was recorded in time{last}")
        after = format_seconds(self.seconds)
        if self.exit_code:
            return RecordingJudgement(
                State.CRASHED,
                f"the program exited with {self.exit_code} after {after}, {when}{last}",
            )
        return RecordingJudgement(
            State.INCOMPLETE, f"the program ended after {after}, {when}{last}"
        )

    def recording(self, ended: WaitEnd, judgement: RecordingJudgement) -> Recording:
        """Keep the recording of a program that has ended."""
        exit_code = None
        if ended is WaitEnd.BY_ITSELF:
            exit_code = self.exit_code
        recording = self._recording(judgement, exit_code)
        atomic_write_model(self._directory / "recording.json", recording)
        return recording

    def _recording(self, judgement: RecordingJudgement, exit_code: int | None) -> Recording:
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
        text = tail(self._directory / OUTPUT_LOG, _TAIL_BYTES)
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
