"""The runs in a directory: which there are, how far each is, and the newest."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from torchscale.analysis.kinds import AnySummary
from torchscale.analysis.summary.run import RunSummary
from torchscale.analysis.training.summary import TrainingSummary
from torchscale.errors import TorchscaleError, UsageError
from torchscale.report.kinds import report_kind
from torchscale.report.text.figures import format_efficiency, samples_text
from torchscale.report.text.labels import cell_label, plural
from torchscale.report.text.profile import stall_line
from torchscale.results.reader import read_summary
from torchscale.run.context import RESULTS
from torchscale.run.observer import SILENT, Observer
from torchscale.schema.state import State
from torchscale.store.lock import is_locked

_TO_RUN = (State.WAITING, State.PARTIAL, State.INTERRUPTED)
"""States of cells that the same command would go on with."""
_MARKERS = ("experiment.json", "analysis.json", "summary.csv")
"""Files of a run folder, or of a recording, that change when something was measured."""


@dataclass(frozen=True)
class RunEntry:
    """One run.

    Attributes:
        id: The folder's name.
        directory: The folder.
        measured_at: When something was last written, ISO 8601 in UTC.
        state: ``running``, ``partial`` (something is left to run), ``failed`` (some cells failed), ``done``,
            ``recording`` (of ``torchscale profile``) or ``unreadable``.
        done: Cells with figures.
        planned: Cells that this machine can run.
        headline: The figures of the cell with most devices, with their intervals. For an unreadable folder, why.
    """

    id: str
    directory: Path
    measured_at: str
    state: str
    done: int = 0
    planned: int = 0
    headline: str = ""


def find_runs(directory: Path = RESULTS) -> list[Path]:
    """The run folders and recordings in ``directory``, newest first."""
    folders = {path.parent for marker in _MARKERS[:2] for path in directory.glob(f"*/{marker}")}
    return sorted(folders, key=lambda folder: (-_changed_at(folder), folder.name))


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
    others = f", the newest of {len(runs)} in ./{directory}" if len(runs) > 1 else ""
    observer.note(f"Run: {runs[0]}{others}")
    return runs[0]


def list_runs(directory: Path = RESULTS, observer: Observer = SILENT) -> list[RunEntry]:
    """Every run in ``directory``, newest first; a folder that cannot be read is listed with the reason.

    Raises:
        UsageError: ``directory`` does not exist.
    """
    if not directory.is_dir():
        raise UsageError(f"{directory} is not a directory", hint="measure something first: torchscale benchmark")
    with observer.status(f"Reading the runs in {directory}"):
        return [_entry(folder) for folder in find_runs(directory)]


def runs_json(entries: list[RunEntry]) -> str:
    """The list for other programs."""
    content = [{**vars(entry), "directory": str(entry.directory)} for entry in entries]
    return json.dumps(content, indent=1, ensure_ascii=False)


def _entry(folder: Path) -> RunEntry:
    measured_at = datetime.fromtimestamp(_changed_at(folder), tz=timezone.utc).isoformat(timespec="seconds")
    if not (folder / "experiment.json").is_file():
        return RunEntry(folder.name, folder, measured_at, "recording", headline="of a program of your own")
    try:
        summary = read_summary(folder)
    except TorchscaleError as error:
        return RunEntry(folder.name, folder, measured_at, "unreadable", headline=error.message)
    cells = [cell for cell in summary.everything if cell.state is not State.SKIPPED]
    profiles = [cell.profile for cell in summary.cells if cell.profile is not None]
    if not cells and profiles:
        return RunEntry(folder.name, folder, measured_at, "recording", headline=stall_line(profiles[0]))
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


def _unreadable(summary: RunSummary) -> str:
    """That files were left out, where nothing else can be said of a run."""
    problems = summary.problems
    return f"{plural(len(problems), 'file')} left out: {problems[0]}" if problems else ""


def _state(states: Counter[State], *, running: bool) -> str:
    if running:
        return "running"
    if any(states[state] for state in _TO_RUN):
        return "partial"
    return "done" if set(states) <= {State.OK} else "failed"


def _headline(summary: RunSummary) -> str:
    """The figure of the measured cell with most devices; of the machine where nothing was trained."""
    trained = max(summary.measured, key=lambda cell: cell.cell.world_size, default=None)
    if trained is not None:
        return _training_headline(trained)
    measured: list[AnySummary] = [cell for cell in summary.machine if cell.state is State.OK]
    if not measured:
        return ""
    largest = max(measured, key=lambda cell: cell.cell.world_size)
    return f"{largest.cell.title}: {report_kind(largest.cell.kind).outcome(largest)}"


def _training_headline(summary: TrainingSummary) -> str:
    figures, efficiency = summary.figures, summary.efficiency
    rate = "" if figures is None else samples_text(figures)
    scaled = efficiency is not None and efficiency.baseline_world_size != summary.cell.world_size
    share = f", efficiency {format_efficiency(efficiency)}" if scaled and efficiency is not None else ""
    return f"{cell_label(summary.cell)}: {rate}{share}"


def _changed_at(folder: Path) -> float:
    """Seconds since the epoch of the last change."""
    stamps = []
    for marker in _MARKERS:
        try:
            stamps.append((folder / marker).stat().st_mtime)
        except OSError:
            continue
    return max(stamps, default=0.0)
