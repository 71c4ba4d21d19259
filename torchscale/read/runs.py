"""The runs in a directory: which there are, and how far each is."""

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
from torchscale.observer import SILENT, Observer
from torchscale.read.folders import FOLDERS, RUN, changed_at, newest_first, other_than_run
from torchscale.read.run_state import run_state
from torchscale.report.kinds import report_kind
from torchscale.report.text.cell_values import format_efficiency, samples_text
from torchscale.report.text.labels import cell_label
from torchscale.report.text.profile import stall_line
from torchscale.results.reader import read_summary
from torchscale.schema.state import State
from torchscale.store.locations import RESULTS
from torchscale.store.lock import is_locked
from torchscale.util.addresses import with_addresses
from torchscale.util.files import similar_path
from torchscale.util.words import plural


@dataclass(frozen=True)
class RunEntry:
    """One run.

    Attributes:
        id: The folder's name.
        directory: The folder.
        measured_at: When something was last written, ISO 8601 in UTC.
        state: ``running``, ``partial`` (something is left to run), ``failed`` (some cells, or the
            watched job), ``done``, ``lost`` (the command that watched it is gone without a result),
            ``recording`` (of ``torchscale profile``) or ``unreadable``.
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
        """What :func:`~torchscale.read.folders.run_by_name` takes: the folder's name in
        ``./results``, and its path elsewhere."""
        if self.directory.parent == RESULTS:
            return self.id
        return with_addresses(str(self.directory))


def list_runs(directory: Path | None = None, observer: Observer = SILENT) -> list[RunEntry]:
    """Every run and watched job in ``directory`` (``./results``), newest first; a folder that cannot
    be read is listed with the reason.

    Raises:
        UsageError: ``directory`` does not exist.
    """
    directory = directory or RESULTS
    if not directory.is_dir():
        raise UsageError(
            f"{directory} is not a directory{similar_path(directory)}",
            hint="measure something first: torchscale benchmark",
        )
    with observer.status(f"Reading the runs in {directory}"):
        folders = newest_first(directory, (RUN, *FOLDERS))
        return [_entry(folder) for folder in folders]


def runs_json(entries: list[RunEntry]) -> str:
    """The list for other programs."""
    content = [{**vars(entry), "directory": str(entry.directory)} for entry in entries]
    return json.dumps(content, indent=1, ensure_ascii=False)


def _entry(folder: Path) -> RunEntry:
    measured = datetime.fromtimestamp(changed_at(folder), tz=timezone.utc)
    measured_at = measured.isoformat(timespec="seconds")
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
    other = other_than_run(folder)
    if other is not None:
        state, headline = FOLDERS[other](folder)
        return RunEntry(folder.name, folder, measured_at, state, headline=headline)
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
        run_state(states, running=is_locked(folder)),
        states[State.OK] + states[State.PARTIAL],
        len(cells),
        _headline(summary) or _unreadable(summary),
    )


def _unreadable(summary: RunSummary) -> str:
    """How many files were left out, where nothing else can be said of a run."""
    problems = summary.problems
    if problems:
        return f"{plural(len(problems), 'file')} left out: {problems[0]}"
    return ""


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
