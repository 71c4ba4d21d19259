"""Nsight Systems: finds it, wraps a command in it, and ends a recording. Each way to fail has its
own error."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from torchscale.errors import MachineError
from torchscale.schema.profiles.nvtx_names import CAPTURE
from torchscale.util.processes.bounded import run_bounded
from torchscale.util.processes.subprocesses import ManagedProcess
from torchscale.util.scratch import scratch_directory

MIN_VERSION = (2022, 1)
"""The oldest version whose options and SQLite schema are those used here."""
NO_RECORDING = "--tool kineto records with torch.profiler instead"
_VERSION = re.compile(r"\b(20\d\d)\.(\d+)")
VERSION_SECONDS = 30.0
"""`nsys --version` takes seconds where its files are not cached."""
START_ATTEMPTS = 3
_START_SECONDS = 5.0
"""nsys fails to start within half a second, on busy cores within a few."""


@dataclass(frozen=True)
class Nsys:
    """An nsys that can be used.

    Attributes:
        path: Path of the program.
        version: Year and number.
        cuda_trace: The value of ``--trace`` for CUDA. ``cuda`` takes the GPU's own tracing on
            Blackwell from 2025.6 on, which hands kernels over when the process ends, so that a
            recording between cudaProfilerStart and -Stop has none; ``cuda-sw``, where it is known,
            takes CUPTI's everywhere.
    """

    path: str
    version: tuple[int, int]
    cuda_trace: str = "cuda"

    @property
    def name(self) -> str:
        """Path and version, for messages."""
        return f"{self.path} (Nsight Systems {dotted(self.version)})"


@dataclass(frozen=True)
class NsysSession:
    """One recording: its name, by which nsys is asked to end it, and a place for nsys's own files,
    which are removed with it."""

    nsys: Nsys
    name: str
    directory: Path

    def wrap(
        self,
        output: Path,
        command: Sequence[str],
        capture: Sequence[str],
        *,
        trace: str,
        variables: Mapping[str, str],
    ) -> list[str]:
        """argv that records ``command`` into ``output.nsys-rep``.

        Args:
            output: Path without suffix.
            command: argv.
            capture: Options for when to record.
            trace: What to record.
            variables: Environment variables of the command alone.
        """
        # nsys passes its own environment on: the command's temporary files belong where they would
        # be without it.
        own = {"TMPDIR": tempfile.gettempdir(), **variables}
        return [
            self.nsys.path,
            "profile",
            f"--session-new={self.name}",
            "-t",
            trace,
            "--sample=none",
            "--cpuctxsw=none",
            *capture,
            "--kill=none",
            "--wait=all",
            f"--env-var={','.join(f'{name}={value}' for name, value in own.items())}",
            "-f",
            "true",
            "-o",
            str(output),
            *command,
        ]

    def start_stop(self, log: IO[bytes]) -> ManagedProcess:
        """Ask nsys to end the recording, whose program goes on. The process that is returned ends
        with 0 when the report is written, and with another code if nothing is being recorded."""
        argv = [self.nsys.path, "stop", f"--session={self.name}"]
        return ManagedProcess(argv, env=self.environment(os.environ), stdout=log, stderr=log)

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """``base`` with nsys's place for its own files."""
        return {**base, "TMPDIR": str(self.directory)}

    @property
    def closing_line(self) -> bytes:
        """How what nsys itself prints begins, after the last output of the program."""
        return f"Generating '{self.directory}".encode()


@contextmanager
def open_session(nsys: Nsys) -> Iterator[NsysSession]:
    """A recording that may begin.

    Raises:
        OSError: there is no place for temporary files.
    """
    with scratch_directory("nsys") as directory:
        # nsys keeps a name for a moment after its session.
        yield NsysSession(nsys, f"torchscale{uuid.uuid4().hex[:12]}", directory)


def cuda_trace(nsys: Nsys) -> tuple[str, tuple[str, ...]]:
    """What to trace where CUDA is used, and the options that go with it."""
    return f"{nsys.cuda_trace},nvtx", ("--cuda-graph-trace=node",)


HOST_TRACE = "nvtx"
"""What to trace of CPU ranks."""


def cuda_capture() -> list[str]:
    """Options to record between the program's own cudaProfilerStart and -Stop."""
    return ["--capture-range=cudaProfilerApi", "--capture-range-end=stop"]


def range_capture() -> tuple[list[str], dict[str, str]]:
    """Options to record during the program's own range
    :data:`~torchscale.schema.profiles.nvtx_names.CAPTURE`, and a variable that it needs, since the
    range's text is not registered with NVTX."""
    options = ["--capture-range=nvtx", f"--nvtx-capture={CAPTURE}@*", "--capture-range-end=stop"]
    return options, {"NSYS_NVTX_PROFILER_REGISTER_ONLY": "0"}


def delayed_capture(delay_seconds: float) -> list[str]:
    """Options to record from a moment on (rounded to whole seconds), until
    :meth:`NsysSession.start_stop` or the program's end."""
    delay = round(delay_seconds)
    if delay:
        return [f"--delay={delay}"]
    return []


def find_exporter() -> Nsys:
    """The nsys on PATH, to export reports with: it need not be able to record here.

    Raises:
        MachineError: it is absent, does not start or is too old; the message says which.
    """
    path = shutil.which("nsys")
    if path is None:
        raise MachineError(
            "nsys is not on PATH", hint=f"install NVIDIA Nsight Systems; {NO_RECORDING}"
        )
    version = _version(path)
    if version < MIN_VERSION:
        raise MachineError(
            f"{path} is Nsight Systems {dotted(version)}; {dotted(MIN_VERSION)} or newer is needed",
            hint=f"install a newer one; {NO_RECORDING}",
        )
    return Nsys(path, version)


def failed_to_start(output: str, seconds: float) -> bool:
    """Whether nsys ended by an error of its own before the program began: it does so now and then
    where several start at the same moment, and the next attempt succeeds.

    Args:
        output: All that was printed.
        seconds: Seconds from its start to its end.
    """
    return seconds < _START_SECONDS and _OWN_FAILURE.match(output) is not None


def _version(path: str) -> tuple[int, int]:
    finished = run_bounded(
        [path, "--version"], timeout_seconds=VERSION_SECONDS, env=dict(os.environ)
    )
    match = _VERSION.search(finished.stdout + finished.stderr)
    if finished.timed_out or match is None:
        output = "no answer"
        if not finished.timed_out:
            output = last_line(finished.stderr or finished.stdout) or "nothing"
        raise MachineError(
            f"{path} --version printed no version ({output})",
            hint="check that it is Nsight Systems, or use --tool kineto",
        )
    return int(match[1]), int(match[2])


def dotted(version: tuple[int, int]) -> str:
    """``2024.2``."""
    return f"{version[0]}.{version[1]}"


def last_line(text: str) -> str:
    """The last line that is not empty, of at most 300 characters; progress bars left out."""
    lines = [
        line.strip()
        for line in re.split(r"[\r\n]", text)
        if line.strip() and not _PROGRESS.match(line)
    ]
    if lines:
        return lines[-1][:300]
    return ""


_OWN_FAILURE = re.compile(
    r"(?:.*QuadD\w*::|Connection to (?:the )?Agent lost|End of file$)", re.MULTILINE
)
"""What it prints first then: in 11 of 240 starts, eight at a time on two cores."""
_PROGRESS = re.compile(r"(?:\[\d+/\d+\] \[|Processing \d+ events: \[)")
