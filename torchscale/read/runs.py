"""The runs in a directory: which there are, how far each is, and the newest."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from torchscale.analysis.kinds import AnySummary
from torchscale.analysis.summary.run import RunSummary
from torchscale.analysis.training.summary import TrainingSummary
from torchscale.config.messages import did_you_mean
from torchscale.errors import TorchscaleError, UsageError
from torchscale.features.watch.job.read import read_watch
from torchscale.features.watch.text import headline
from torchscale.observer import SILENT, Observer
from torchscale.report.kinds import report_kind
from torchscale.report.text.figures import format_efficiency, samples_text
from torchscale.report.text.labels import cell_label
from torchscale.report.text.profile import stall_line
from torchscale.report.text.words import plural
from torchscale.results.reader import read_summary
from torchscale.schema.base import LAST_MOMENT
from torchscale.schema.state import State
from torchscale.schema.watch.report import JobState
from torchscale.store.lock import is_locked
from torchscale.store.run_folder import RESULTS

_TO_RUN = (State.WAITING, State.PARTIAL, State.INTERRUPTED)
"""States of cells that the same command would go on with."""
_MARKERS = ("experiment.json", "analysis.json", "summary.csv", "watch.json")
"""Files of a run folder, a recording or a watched job that change when something was measured."""
_WATCHED = "watch.json"
_MAX_NAMED = 6
"""Runs in an error: more than that no one reads."""


@dataclass(frozen=True)
class RunEntry:
    """One run.

    Attributes:
        id: The folder's name.
        directory: The folder.
        measured_at: When something was last written, ISO 8601 in UTC.
        state: ``watched``, ``lost`` (the command that watched it is gone without a result),
            ``running``, ``partial`` (something is left to run), ``failed`` (some cells failed),
            ``done``, ``recording`` (of ``torchscale profile``) or ``unreadable``.
        done: Cells with figures.
        planned: Cells that this machine can run.
        headline: The figures of the cell with most devices, with their intervals. For an unreadable
            folder, why.
    """

    id: str
    directory: Path
    measured_at: str
    state: str
    done: int = 0
    planned: int = 0
    headline: str = ""

    @property
    def name(self) -> str:
        """What :func:`run_by_name` takes: the folder's name in ``./results``, and its path
        elsewhere."""
        if self.directory.parent == RESULTS:
            return self.id
        return str(self.directory)


def run_by_name(source: Path) -> Path:
    """The path that a user means: a run in ``./results`` may be named as ``runs`` lists it. A path
    that exists is meant itself; one that is neither stays as it is."""
    inside = RESULTS / source
    is_name = len(source.parts) == 1 and not source.exists()
    if is_name and _is_run(inside):
        return inside
    return source


def run_folder(source: Path, observer: Observer = SILENT) -> Path:
    """The run folder that a user means: as :func:`run_by_name`, or a directory that holds one run;
    the observer is told which.

    Raises:
        UsageError: the directory holds several runs, or there is none of a similar name.
    """
    path = run_by_name(source)
    if not path.exists() and len(source.parts) == 1:
        near = did_you_mean(source.name, [run.name for run in find_runs()])
        if near:
            raise UsageError(
                f"there is no run {source.name!r}{near}", hint="`torchscale runs` lists them"
            )
    if not path.is_dir() or _is_run(path):
        return path
    held = find_runs(path)
    if len(held) > 1:
        names = first_names([str(run) for run in held])
        raise UsageError(f"{source} holds {len(held)} runs", hint=f"name one: {names}")
    if held:
        observer.note(f"Run: {held[0]}, the only one in {source}")
    if held:
        return held[0]
    return path


def _is_run(directory: Path) -> bool:
    return any((directory / marker).is_file() for marker in (*_MARKERS[:2], _WATCHED))


def find_runs(directory: Path = RESULTS) -> list[Path]:
    """The run folders and recordings in ``directory``, newest first."""
    return _newest_first(directory, _MARKERS[:2])


def _newest_first(directory: Path, markers: Sequence[str]) -> list[Path]:
    """The folders in ``directory`` that hold one of these files."""
    try:
        entries = list(directory.iterdir())
    except FileNotFoundError:
        return []
    folders = [folder for folder in entries if _holds(folder, markers)]
    return sorted(folders, key=lambda folder: (-_changed_at(folder), folder.name))


def _holds(folder: Path, markers: Sequence[str]) -> bool:
    """Whether one of these files is there. A folder whose file system fails counts as one that has
    them: it has to be named. A folder of others, or a file, has none."""
    for marker in markers:
        try:
            (folder / marker).stat()
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            continue
        except OSError:
            return True
        return True
    return False


def first_names(names: Sequence[str]) -> str:
    """``a, b, c and 4 more``."""
    more = ""
    if len(names) > _MAX_NAMED:
        more = f" and {len(names) - _MAX_NAMED} more"
    return ", ".join(names[:_MAX_NAMED]) + more


def chosen_run(source: Path | None, observer: Observer = SILENT) -> Path:
    """:func:`run_folder`; without a source :func:`newest_run` of ``./results``.

    Raises:
        UsageError: as those two.
    """
    if source is None:
        return newest_run(observer=observer)
    return run_folder(source, observer)


def newest_run(directory: Path = RESULTS, observer: Observer = SILENT) -> Path:
    """The newest run in ``directory``; the observer is told which.

    Raises:
        UsageError: there is none.
    """
    runs = find_runs(directory)
    if not runs:
        raise UsageError(
            f"no run is named, and there is none in ./{directory}",
            hint="name a run folder, or measure one: torchscale benchmark",
        )
    others = ""
    if len(runs) > 1:
        others = f", the newest of {len(runs)} in ./{directory}"
    observer.note(f"Run: {runs[0]}{others}")
    return runs[0]


def list_runs(directory: Path | None = None, observer: Observer = SILENT) -> list[RunEntry]:
    """Every run and watched job in ``directory`` (``./results``), newest first; a folder that cannot
    be read is listed with the reason.

    Raises:
        UsageError: ``directory`` does not exist.
    """
    directory = directory or RESULTS
    if not directory.is_dir():
        raise UsageError(
            f"{directory} is not a directory", hint="measure something first: torchscale benchmark"
        )
    with observer.status(f"Reading the runs in {directory}"):
        folders = _newest_first(directory, (*_MARKERS[:2], _WATCHED))
        return [_entry(folder) for folder in folders]


def runs_json(entries: list[RunEntry]) -> str:
    """The list for other programs."""
    content = [{**vars(entry), "directory": str(entry.directory)} for entry in entries]
    return json.dumps(content, indent=1, ensure_ascii=False)


def _entry(folder: Path) -> RunEntry:
    changed_at = datetime.fromtimestamp(_changed_at(folder), tz=timezone.utc)
    measured_at = changed_at.isoformat(timespec="seconds")
    try:
        return _read_entry(folder, measured_at)
    except (TorchscaleError, OSError) as error:
        reason = error.message if isinstance(error, TorchscaleError) else error.strerror
        return RunEntry(
            folder.name, folder, measured_at, "unreadable", headline=reason or str(error)
        )


def _read_entry(folder: Path, measured_at: str) -> RunEntry:
    """One run, by what is in its folder.

    Raises:
        TorchscaleError: it cannot be read.
        OSError: its file system fails.
    """
    if not _is_measured(folder):
        return _watched(folder, measured_at)
    if not (folder / "experiment.json").is_file():
        return RunEntry(
            folder.name, folder, measured_at, "recording", headline="of a program of your own"
        )
    summary = read_summary(folder)
    cells = [cell for cell in summary.everything if cell.state is not State.SKIPPED]
    profiles = [cell.profile for cell in summary.cells if cell.profile is not None]
    if not cells and profiles:
        return RunEntry(
            folder.name, folder, measured_at, "recording", headline=stall_line(profiles[0])
        )
    states = Counter(cell.state for cell in cells)
    return RunEntry(
        folder.name,
        folder,
        measured_at,
        _state(states, running=is_locked(folder)),
        states[State.OK] + states[State.PARTIAL],
        len(cells),
        _headline(summary) or _unreadable(summary),
    )


def _is_measured(folder: Path) -> bool:
    return any((folder / marker).is_file() for marker in _MARKERS[:2])


def _watched(folder: Path, measured_at: str) -> RunEntry:
    """A job that was watched, with what it lost most by."""
    report = read_watch(folder)
    told = headline(report)
    if report.findings:
        told += f"; {report.findings[0].finding.summary}"
    state = "watched" if report.state is JobState.ENDED else report.state.value
    return RunEntry(folder.name, folder, measured_at, state, headline=told)


def _unreadable(summary: RunSummary) -> str:
    """How many files were left out, where nothing else can be said of a run."""
    problems = summary.problems
    if problems:
        return f"{plural(len(problems), 'file')} left out: {problems[0]}"
    return ""


def _state(states: Counter[State], *, running: bool) -> str:
    if running:
        return "running"
    if any(states[state] for state in _TO_RUN):
        return "partial"
    if set(states) <= {State.OK}:
        return "done"
    return "failed"


def _headline(summary: RunSummary) -> str:
    """The figure of the measured cell with most devices; of the machine where nothing was
    trained."""
    trained = max(summary.measured, key=lambda cell: cell.cell.world_size, default=None)
    if trained is not None:
        return _training_headline(trained)
    measured: list[AnySummary] = [cell for cell in summary.machine if cell.state is State.OK]
    if not measured:
        return ""
    largest = max(measured, key=lambda cell: cell.cell.world_size)
    return f"{largest.cell.title}: {report_kind(largest.cell.kind).outcome(largest)}"


def _training_headline(summary: TrainingSummary) -> str:
    efficiency = summary.efficiency
    rate = ""
    if summary.figures is not None:
        rate = samples_text(summary)
    scaled = efficiency is not None and efficiency.baseline_world_size != summary.cell.world_size
    share = ""
    if scaled and efficiency is not None:
        share = f", efficiency {format_efficiency(efficiency)}"
    return f"{cell_label(summary.cell)}: {rate}{share}"


def _changed_at(folder: Path) -> float:
    """Seconds since the epoch of the last change, which a file system may say is in any year."""
    stamps = []
    for marker in _MARKERS:
        try:
            stamps.append((folder / marker).stat().st_mtime)
        except OSError:
            continue
    return min(max([0.0, *stamps]), LAST_MOMENT)
