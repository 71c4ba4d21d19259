"""Nsight Systems: finds and checks it, wraps a command in it, exports its reports. Each way to fail has its own error.

A recording is always kept: the export is a separate step, and if it fails the report stays.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torchscale.errors import MachineError
from torchscale.launch.process import run_bounded
from torchscale.util.scratch import scratch_directory

MIN_VERSION = (2022, 1)
"""The oldest version whose options and SQLite schema are those used here."""
_VERSION = re.compile(r"\b(20\d\d)\.(\d+)")
_VERSION_SECONDS = 30.0
"""`nsys --version` takes seconds where its files are not cached."""
_TRIAL_SECONDS = 60.0
"""An empty recording and its export take a few seconds each; a broken installation hangs."""
_SOFTWARE_TRACE = "cuda-sw"
_REPORT, _RAW = ".nsys-rep", ".qdstrm"


@dataclass(frozen=True)
class Nsys:
    """An nsys that can record and export.

    Attributes:
        path: Of the program.
        version: Year and number.
        cuda_trace: The value of ``--trace`` for CUDA. ``cuda`` takes the GPU's own tracing on Blackwell from 2025.6 on,
            which hands kernels over when the process ends, so that a recording between cudaProfilerStart and -Stop has
            none; ``cuda-sw``, where it is known, takes CUPTI's everywhere.
    """

    path: str
    version: tuple[int, int]
    cuda_trace: str = "cuda"


def find_nsys() -> Nsys:
    """The nsys on PATH, checked by an empty recording and its export: parts of it may not be installed.

    Raises:
        MachineError: it is absent, does not start, is too old, or cannot write or export a report; the message says
            which.
    """
    path = shutil.which("nsys")
    if path is None:
        raise MachineError(
            "nsys is not on PATH",
            hint="install NVIDIA Nsight Systems, or record with torch.profiler: --tool kineto",
        )
    version = _version(path)
    if version < MIN_VERSION:
        raise MachineError(
            f"{path} is Nsight Systems {version[0]}.{version[1]}; {MIN_VERSION[0]}.{MIN_VERSION[1]} or newer is needed",
            hint="install a newer one, or use --tool kineto",
        )
    nsys = Nsys(path, version, _cuda_trace(path))
    with scratch_directory("nsys") as scratch:
        trial = scratch / "trial"
        try:
            report = _trial(path, trial, "none")
        except MachineError:
            report = _trial(path, trial, "nvtx")  # every version has it, and it traces nothing of `true`
        export(nsys, report, timeout_seconds=_TRIAL_SECONDS)
    return nsys


def _trial(path: str, output: Path, trace: str) -> Path:
    """Record an empty program. Returns the report.

    Raises:
        MachineError: there is none.
    """
    argv = [path, "profile", "-t", trace, "--sample=none", "--cpuctxsw=none", "-f", "true", "-o", str(output), "true"]
    finished = run_bounded(argv, timeout_seconds=_TRIAL_SECONDS)
    return require_report(output, finished.returncode, finished.stderr or finished.stdout)


def _cuda_trace(path: str) -> str:
    finished = run_bounded([path, "profile", "--help"], timeout_seconds=_VERSION_SECONDS)
    return _SOFTWARE_TRACE if _SOFTWARE_TRACE in finished.stdout + finished.stderr else "cuda"


def wrap(nsys: Nsys, output: Path, command: Sequence[str], capture: Sequence[str]) -> list[str]:
    """argv that records ``command`` into ``output.nsys-rep``. ``capture`` are the options for when to record."""
    return [
        nsys.path,
        "profile",
        "-t",
        f"{nsys.cuda_trace},nvtx",
        "--sample=none",
        "--cpuctxsw=none",
        "--cuda-graph-trace=node",
        *capture,
        "--wait=all",
        "-f",
        "true",
        "-o",
        str(output),
        *command,
    ]


def exact_steps() -> list[str]:
    """Options to record between the program's own cudaProfilerStart and -Stop; the program ends by itself."""
    return ["--capture-range=cudaProfilerApi", "--capture-range-end=stop", "--kill=none"]


def timed_capture(delay_seconds: float, seconds: float, *, keep_running: bool) -> list[str]:
    """Options to record for ``seconds`` after a delay (both rounded to whole seconds), then to end the program unless
    ``keep_running``."""
    kill = "none" if keep_running else "sigterm"
    return [f"--delay={round(delay_seconds)}", f"--duration={max(1, round(seconds))}", f"--kill={kill}"]


def require_report(output: Path, exit_code: int | None, said: str) -> Path:
    """The path of the report that a recording to ``output`` wrote.

    Raises:
        MachineError: there is none; nsys can exit with 0 and write no report.
    """
    report, raw = output.with_name(output.name + _REPORT), output.with_name(output.name + _RAW)
    if report.is_file() and report.stat().st_size > 0:
        return report
    if raw.is_file():
        raise MachineError(
            f"nsys recorded, but could not turn {raw} into a report: its importer is missing (incomplete installation)",
            hint="install all of Nsight Systems here, or copy the .qdstrm to a machine that has it and run "
            f"QdstrmImporter -i {raw.name}; or use --tool kineto",
        )
    detail = f"; its last output: {_last_line(said)}" if said.strip() else ""
    raise MachineError(
        f"nsys exited with {exit_code} and wrote no report {report}{detail}",
        hint="run the command by hand to see why, or use --tool kineto",
    )


def export(nsys: Nsys, report: Path, *, timeout_seconds: float) -> Path:
    """Export the report to SQLite next to it. Returns that path.

    Raises:
        MachineError: the export failed or took too long; the report is kept, and the hint says how to export by hand.
    """
    target = report.with_suffix(".sqlite")
    partial = report.with_suffix(".part.sqlite")
    argv = [nsys.path, "export", "--type=sqlite", "-f", "true", "-o", str(partial), str(report)]
    by_hand = shlex.join([*argv[:-2], str(target), str(report)])
    finished = run_bounded(argv, timeout_seconds=timeout_seconds)
    if finished.timed_out:
        partial.unlink(missing_ok=True)
        raise MachineError(
            f"nsys export of {report} did not finish within {timeout_seconds:g} s; the report is kept",
            hint=f"export it by hand: {by_hand}",
        )
    if finished.returncode != 0 or not partial.is_file() or partial.stat().st_size == 0:
        partial.unlink(missing_ok=True)
        output = _last_line(finished.stderr or finished.stdout)
        raise MachineError(
            f"nsys export of {report} failed with {finished.returncode}{f': {output}' if output else ''}; "
            "the report may be incomplete; it is kept",
            hint=f"export it by hand: {by_hand}",
        )
    partial.replace(target)
    return target


def _version(path: str) -> tuple[int, int]:
    finished = run_bounded([path, "--version"], timeout_seconds=_VERSION_SECONDS, env=dict(os.environ))
    match = _VERSION.search(finished.stdout + finished.stderr)
    if finished.timed_out or match is None:
        output = "no answer" if finished.timed_out else _last_line(finished.stderr or finished.stdout) or "nothing"
        raise MachineError(
            f"{path} --version printed no version ({output})",
            hint="check that it is Nsight Systems, or use --tool kineto",
        )
    return int(match[1]), int(match[2])


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""
