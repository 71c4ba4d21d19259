"""Nsight Systems: finds and checks it, wraps a command in it, ends a recording, exports reports.
Each way to fail has its own error.

A recording is always kept: the export is a separate step, and if it fails the report stays.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sqlite3
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from torchscale.errors import MachineError
from torchscale.schema.profiles.nvtx_names import CAPTURE, NVTX_PACKAGE
from torchscale.util.interpreter import module_command
from torchscale.util.nsight import importer_of, importer_problem, installation_of
from torchscale.util.optional import optional
from torchscale.util.processes.bounded import Finished, run_bounded
from torchscale.util.processes.subprocesses import ManagedProcess
from torchscale.util.scratch import scratch_directory

MIN_VERSION = (2022, 1)
"""The oldest version whose options and SQLite schema are those used here."""
NO_RECORDING = "--tool kineto records with torch.profiler instead"
_VERSION = re.compile(r"\b(20\d\d)\.(\d+)")
_REPORT_VERSION = re.compile(rb"Report (20\d\d)@(\d+)")
"""The version in the first bytes of a report, from 2023 on."""
_HEAD_BYTES = 256
_VERSION_SECONDS = 30.0
"""`nsys --version` takes seconds where its files are not cached."""
_TRIAL_SECONDS = 60.0
"""An empty recording and its export take a few seconds each; a broken installation hangs."""
_SOFTWARE_TRACE = "cuda-sw"
START_ATTEMPTS = 3
_START_SECONDS = 5.0
"""nsys fails to start within half a second, on busy cores within a few."""
_REPORT, _RAW = ".nsys-rep", ".qdstrm"
EXPORT_SECONDS = 600.0
"""An export of a recording of some seconds takes minutes at most; longer ones can be exported by
hand."""
_BLOBS = "--include-blobs=true"
"""Without it the export lacks what NCCL says of each operation; versions up to 2024.2 do not know
it."""
_MARKED = (
    "SELECT 1 FROM NVTX_EVENTS n LEFT JOIN StringIds s ON s.id = n.textId WHERE COALESCE(n.text, "
    "s.value) = ?"
)


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
        return f"{self.path} (Nsight Systems {_dotted(self.version)})"


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
            f"{path} is Nsight Systems {_dotted(version)}; {_dotted(MIN_VERSION)} or newer is "
            "needed",
            hint=f"install a newer one; {NO_RECORDING}",
        )
    return Nsys(path, version)


def find_nsys(*, for_cpus: bool = False) -> Nsys:
    """The nsys on PATH, checked by a small recording and its export: parts of it may not be
    installed. A trial that wrote no report is repeated: on busy cores nsys fails at its start, and
    its importer in 5 of 576 trials, and the next one succeeds.

    Args:
        for_cpus: Check that it records NVTX ranges of this Python, by which CPU ranks are recorded.

    Raises:
        MachineError: it is absent, does not start, is too old, or cannot write or export a report,
            or its recording of this Python holds no range; the message says which.
    """
    found = find_exporter()
    installation = installation_of(Path(found.path))
    problem = optional(importer_problem, installation)
    if problem is not None:
        raise MachineError(f"{found.name} cannot write reports: {problem}", hint=_COMPLETE_IT)
    nsys = Nsys(found.path, found.version, _cuda_trace(found.path))
    for attempt in range(1, START_ATTEMPTS + 1):
        with open_session(nsys) as session:
            output = session.directory / "trial"
            finished = _record_trial(session, output, for_cpus=for_cpus)
            may_succeed = not finished.timed_out and not _has_report(output)
            if may_succeed and attempt < START_ATTEMPTS:
                continue
            _judge_trial(session, output, finished, for_cpus=for_cpus)
            break
    return nsys


_COMPLETE_IT = f"install all of Nsight Systems, with the libraries that it needs; {NO_RECORDING}"


def _record_trial(session: NsysSession, output: Path, *, for_cpus: bool) -> Finished:
    """Record a program that marks one range, or one that does nothing."""
    command = module_command("torchscale.worker.profile.nvtx_check") if for_cpus else ["true"]
    argv = session.wrap(output, command, (), trace=HOST_TRACE, variables={})
    return run_bounded(argv, timeout_seconds=_TRIAL_SECONDS, env=session.environment(os.environ))


def _judge_trial(session: NsysSession, output: Path, finished: Finished, *, for_cpus: bool) -> None:
    """Export what was recorded.

    Raises:
        MachineError: there is nothing, it cannot be exported, or it lacks the range.
    """
    said = last_line(finished.stderr or finished.stdout)
    if for_cpus and finished.returncode != 0:
        raise MachineError(
            "nsys records CPU ranks through the package nvtx, which this Python cannot use: "
            f"{said}",
            hint=f"pip install '{NVTX_PACKAGE}'; {NO_RECORDING}",
        )
    if not _has_report(output):
        detail = ""
        if said:
            detail = f"; its last output: {said}"
        raise MachineError(
            f"{session.nsys.name} cannot record here: it exited with {finished.returncode} and "
            f"wrote no report{detail}",
            hint=f"run `nsys profile true` to see why; {_COMPLETE_IT}",
        )
    report = _report_of(output)
    exported = report.with_suffix(".sqlite")
    try:
        export(session.nsys, report, exported, timeout_seconds=_TRIAL_SECONDS)
    except MachineError as error:
        reason = error.message.replace(str(report), "a report").replace(str(session.directory), "…")
        raise MachineError(
            f"{session.nsys.name} cannot export: {reason}", hint=_COMPLETE_IT
        ) from error
    if for_cpus and not _holds_mark(exported):
        raise MachineError(
            f"{session.nsys.name} records no NVTX range of this Python",
            hint=f"pip install '{NVTX_PACKAGE}': newer ones need a newer nsys; {NO_RECORDING}",
        )


def _holds_mark(exported: Path) -> bool:
    with closing(sqlite3.connect(exported)) as database:
        try:
            return database.execute(_MARKED, (CAPTURE,)).fetchone() is not None
        except sqlite3.Error:
            return False  # it has no NVTX_EVENTS


def _cuda_trace(path: str) -> str:
    finished = run_bounded([path, "profile", "--help"], timeout_seconds=_VERSION_SECONDS)
    if _SOFTWARE_TRACE in finished.stdout + finished.stderr:
        return _SOFTWARE_TRACE
    return "cuda"


def failed_to_start(output: str, seconds: float) -> bool:
    """Whether nsys ended by an error of its own before the program began: it does so now and then
    where several start at the same moment, and the next attempt succeeds.

    Args:
        output: All that was printed.
        seconds: Seconds from its start to its end.
    """
    return seconds < _START_SECONDS and _OWN_FAILURE.match(output) is not None


def require_report(
    nsys: Nsys, output: Path, exit_code: int | None, said: str, *, timeout_seconds: float
) -> Path:
    """The path of the report that a recording to ``output`` wrote. What nsys recorded and did not
    make a report of is imported once more: its importer fails at times on busy cores.

    Raises:
        MachineError: there is none; nsys can exit with 0 and write no report.
    """
    raw = output.with_name(output.name + _RAW)
    if not _has_report(output) and raw.is_file():
        problem = _import(nsys, raw, _report_of(output), timeout_seconds)
        if problem:
            raise MachineError(
                f"nsys recorded, but could not turn {raw} into a report: {problem}",
                hint=f"run QdstrmImporter -i {raw.name}, here or on a machine that has all of "
                "Nsight Systems; or use --tool kineto",
            )
    if _has_report(output):
        return _report_of(output)
    detail = f"; its last output: {last_line(said)}" if said.strip() else ""
    raise MachineError(
        f"nsys exited with {exit_code} and wrote no report {_report_of(output)}{detail}",
        hint="run the command by hand to see why, or use --tool kineto",
    )


def _import(nsys: Nsys, raw: Path, report: Path, timeout_seconds: float) -> str:
    """Make the report of what was recorded, and remove that; why it failed, else an empty text."""
    importer = optional(importer_of, installation_of(Path(nsys.path)))
    if importer is None:
        return "its importer is missing (incomplete installation)"
    partial = report.with_name(f"{report.stem}.part{_REPORT}")
    argv = [str(importer), "-f", "-i", str(raw), "-o", str(partial)]
    finished = run_bounded(argv, timeout_seconds=timeout_seconds)
    if finished.returncode == 0 and partial.is_file() and partial.stat().st_size > 0:
        partial.replace(report)
        raw.unlink(missing_ok=True)
        return ""
    partial.unlink(missing_ok=True)
    if finished.timed_out:
        return f"its importer did not finish within {timeout_seconds:g} s"
    said = last_line(finished.stderr or finished.stdout)
    return (
        f"its importer failed twice; the second time it exited with {finished.returncode}: {said}"
    )


def has_recorded(output: Path) -> bool:
    """Whether a recording to ``output`` left a report, or what one can be made of."""
    return _has_report(output) or output.with_name(output.name + _RAW).is_file()


def _report_of(output: Path) -> Path:
    return output.with_name(output.name + _REPORT)


def _has_report(output: Path) -> bool:
    report = _report_of(output)
    return report.is_file() and report.stat().st_size > 0


def export(nsys: Nsys, report: Path, target: Path, *, timeout_seconds: float) -> None:
    """Export a report to ``target``, a SQLite database, with all that it holds.

    Raises:
        MachineError: the report is of a newer nsys, or the export failed or took too long; the
            report is kept, and the hint says how to export by hand.
    """
    partial = target.with_name(f"{target.stem}.part.sqlite")
    needed = _report_version(report)
    if needed is not None and needed > nsys.version:
        raise MachineError(
            f"{report} was recorded by Nsight Systems {_dotted(needed)}; {nsys.name} is older and "
            "cannot read it",
            hint=f"export it with Nsight Systems {_dotted(needed)} or newer: "
            f"{_by_hand('nsys', report)}",
        )
    argv = [
        nsys.path,
        "export",
        "--type=sqlite",
        _BLOBS,
        "-f",
        "true",
        "-o",
        str(partial),
        str(report),
    ]
    finished = run_bounded(argv, timeout_seconds=timeout_seconds)
    if finished.returncode != 0 and "unrecognised option" in finished.stdout + finished.stderr:
        argv.remove(_BLOBS)
        finished = run_bounded(argv, timeout_seconds=timeout_seconds)
    by_hand = f"export it by hand: {_by_hand(nsys.path, report)}"
    if finished.timed_out:
        partial.unlink(missing_ok=True)
        raise MachineError(
            f"nsys export of {report} did not finish within {timeout_seconds:g} s; the report is "
            "kept",
            hint=by_hand,
        )
    if finished.returncode != 0 or not partial.is_file() or partial.stat().st_size == 0:
        partial.unlink(missing_ok=True)
        ended = f"{finished.returncode}"
        if output := last_line(finished.stderr or finished.stdout):
            ended += f": {output}"
        raise MachineError(
            f"nsys export of {report} failed with {ended}; "
            "the report may be incomplete; it is kept",
            hint=by_hand,
        )
    partial.replace(target)


def _by_hand(nsys: str, report: Path) -> str:
    target = report.with_suffix(".sqlite")
    return shlex.join(
        [nsys, "export", "--type=sqlite", "-f", "true", "-o", str(target), str(report)]
    )


def _report_version(report: Path) -> tuple[int, int] | None:
    """Version of the nsys that recorded a report; ``None`` where the report does not say."""
    try:
        with report.open("rb") as file:
            match = _REPORT_VERSION.search(file.read(_HEAD_BYTES))
    except OSError:
        return None
    if match is None:
        return None
    return int(match[1]), int(match[2])


def _version(path: str) -> tuple[int, int]:
    finished = run_bounded(
        [path, "--version"], timeout_seconds=_VERSION_SECONDS, env=dict(os.environ)
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


def _dotted(version: tuple[int, int]) -> str:
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
