"""Reports of Nsight Systems: what a recording left, and its export.

A recording is always kept: the export is a separate step, and if it fails the report stays.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from torchscale.errors import MachineError
from torchscale.features.trace.recording.nsys import Nsys, dotted, last_line
from torchscale.util.nsight import importer_of, installation_of
from torchscale.util.optional import optional
from torchscale.util.processes.bounded import run_bounded

_REPORT_VERSION = re.compile(rb"Report (20\d\d)@(\d+)")
"""The version in the first bytes of a report, from 2023 on."""
_HEAD_BYTES = 256
_REPORT, _RAW = ".nsys-rep", ".qdstrm"
EXPORT_SECONDS = 600.0
"""An export of a recording of some seconds takes minutes at most; longer ones can be exported by
hand."""
_BLOBS = "--include-blobs=true"
"""Without it the export lacks what NCCL says of each operation; versions up to 2024.2 do not know
it."""


def require_report(
    nsys: Nsys, output: Path, exit_code: int | None, said: str, *, timeout_seconds: float
) -> Path:
    """The path of the report that a recording to ``output`` wrote. What nsys recorded and did not
    make a report of is imported once more: its importer fails at times on busy cores.

    Raises:
        MachineError: there is none; nsys can exit with 0 and write no report.
    """
    raw = output.with_name(output.name + _RAW)
    if not has_report(output) and raw.is_file():
        problem = _import(nsys, raw, report_of(output), timeout_seconds)
        if problem:
            raise MachineError(
                f"nsys recorded, but could not turn {raw} into a report: {problem}",
                hint=f"run QdstrmImporter -i {raw.name}, here or on a machine that has all of "
                "Nsight Systems; or use --tool kineto",
            )
    if has_report(output):
        return report_of(output)
    detail = f"; its last output: {last_line(said)}" if said.strip() else ""
    raise MachineError(
        f"nsys exited with {exit_code} and wrote no report {report_of(output)}{detail}",
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
    return has_report(output) or output.with_name(output.name + _RAW).is_file()


def report_of(output: Path) -> Path:
    """Where the report of a recording to ``output`` is."""
    return output.with_name(output.name + _REPORT)


def has_report(output: Path) -> bool:
    """Whether a recording to ``output`` left a report that is not empty."""
    report = report_of(output)
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
            f"{report} was recorded by Nsight Systems {dotted(needed)}; {nsys.name} is older and "
            "cannot read it",
            hint=f"export it with Nsight Systems {dotted(needed)} or newer: "
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
