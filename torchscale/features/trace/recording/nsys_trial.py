"""An nsys that was tried: it records here, and exports what it recorded."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from torchscale.errors import MachineError
from torchscale.features.trace.recording.nsys import (
    HOST_TRACE,
    NO_RECORDING,
    START_ATTEMPTS,
    VERSION_SECONDS,
    Nsys,
    NsysSession,
    find_exporter,
    last_line,
    open_session,
)
from torchscale.features.trace.recording.nsys_reports import export, has_report, report_of
from torchscale.schema.profiles.nvtx_names import CAPTURE, NVTX_PACKAGE
from torchscale.util.installation import library_command
from torchscale.util.interpreter import module_command
from torchscale.util.nsight import importer_problem, installation_of
from torchscale.util.optional import optional
from torchscale.util.processes.bounded import Finished, run_bounded

_TRIAL_SECONDS = 60.0
"""An empty recording and its export take a few seconds each; a broken installation hangs."""
_SOFTWARE_TRACE = "cuda-sw"
_MARKED = (
    "SELECT 1 FROM NVTX_EVENTS n LEFT JOIN StringIds s ON s.id = n.textId WHERE COALESCE(n.text, "
    "s.value) = ?"
)


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
            may_succeed = not finished.timed_out and not has_report(output)
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
            hint=f"{library_command(NVTX_PACKAGE)}; {NO_RECORDING}",
        )
    if not has_report(output):
        detail = ""
        if said:
            detail = f"; its last output: {said}"
        raise MachineError(
            f"{session.nsys.name} cannot record here: it exited with {finished.returncode} and "
            f"wrote no report{detail}",
            hint=f"run `nsys profile true` to see why; {_COMPLETE_IT}",
        )
    report = report_of(output)
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
            hint=f"{library_command(NVTX_PACKAGE)}: newer ones need a newer nsys; {NO_RECORDING}",
        )


def _holds_mark(exported: Path) -> bool:
    with closing(sqlite3.connect(exported)) as database:
        try:
            return database.execute(_MARKED, (CAPTURE,)).fetchone() is not None
        except sqlite3.Error:
            return False  # it has no NVTX_EVENTS


def _cuda_trace(path: str) -> str:
    finished = run_bounded([path, "profile", "--help"], timeout_seconds=VERSION_SECONDS)
    if _SOFTWARE_TRACE in finished.stdout + finished.stderr:
        return _SOFTWARE_TRACE
    return "cuda"
