"""One start of a program with its output in a log, to its end or until enough of it is measured."""

from __future__ import annotations

import os
import re
import resource
import select
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from torchscale.launch.control import StopRequest
from torchscale.util.logs import open_log
from torchscale.util.processes.subprocesses import ManagedProcess, tail
from torchscale.util.redaction import redact_text

_POLL_SECONDS = 0.05
"""Between two looks whether the user stops or enough is measured. The end of the process itself is
noticed at once."""
_WORD = re.compile(r"\w")
_ERROR = re.compile(r"(\[\w+\]:\s*)?([\w.]*(Error|Exception)\b|error: )")
"""``ValueError: …``; torchrun writes the rank before it."""
_LINE_CHARACTERS = 200


@dataclass(frozen=True)
class ProgramEnd:
    """How a start of a program ended.

    Attributes:
        state: ``ok``, ``failed``, ``timeout`` or ``interrupted``.
        reason: Why it is not ``ok``.
        seconds: Wall time.
        cpu_seconds: CPU time of all its processes.
    """

    state: Literal["ok", "failed", "timeout", "interrupted"]
    reason: str
    seconds: float
    cpu_seconds: float


def run_logged(
    command: Sequence[str],
    log: Path,
    variables: Mapping[str, str],
    *,
    cwd: Path | None = None,
    timeout_seconds: float,
    stop: StopRequest,
    is_measured: Callable[[], bool] = lambda: False,
) -> ProgramEnd:
    """Run the command with these variables, in ``cwd`` or here, and end it once ``is_measured``. No
    process is left.

    Raises:
        MachineError: it cannot be started.
        OutputError: the log cannot be written.
    """
    cpu = _cpu_seconds()
    with open_log(log) as output:
        started = time.monotonic()
        process = ManagedProcess(command, env=variables, stdout=output, stderr=output, cwd=cwd)
        try:
            timed_out = not _wait(process, started + timeout_seconds, stop, is_measured)
            seconds = time.monotonic() - started
            ended_by_us = process.poll() is None
        finally:
            stop.end(process)
    cpu = _cpu_seconds() - cpu
    code = process.poll()
    if stop.asked:
        return ProgramEnd("interrupted", "interrupted", seconds, cpu)
    if timed_out:
        reason = f"not finished after {timeout_seconds:g} s (--timeout)"
        return ProgramEnd("timeout", reason, seconds, cpu)
    if code != 0 and not ended_by_us:
        return ProgramEnd("failed", _said(log, code), seconds, cpu)
    return ProgramEnd("ok", "", seconds, cpu)


def _wait(
    process: ManagedProcess, deadline: float, stop: StopRequest, is_measured: Callable[[], bool]
) -> bool:
    """Wait for the end of the process, to the moment, or until it is measured or the user stops.
    Whether that was before the deadline."""
    descriptor = os.pidfd_open(process.pid)
    try:
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        while not poller.poll(_POLL_SECONDS * 1000):
            if stop.asked or is_measured():
                return True
            if time.monotonic() > deadline:
                return False
    finally:
        os.close(descriptor)
    return True


def _cpu_seconds() -> float:
    """CPU time of all processes that have ended below this one."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _said(log: Path, code: int | None) -> str:
    """How a program ended, and the last line of its log that names an error, else its last line."""
    ending = f"exit code {code}"
    if code is not None and code < 0:
        ending = f"signal {-code}"
    lines = [line.strip() for line in tail(log).splitlines() if _WORD.search(line)]
    errors = [line for line in lines if _ERROR.match(line)]
    if not lines:
        return ending
    return redact_text(f"{ending}: {(errors or lines)[-1][:_LINE_CHARACTERS]}")
