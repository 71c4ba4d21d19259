"""Folders that hold a run, or what a feature knows by a file of its own: which a user means, and
the newest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from torchscale.config.choices import ReportFormat
from torchscale.door import Slot
from torchscale.errors import UsageError
from torchscale.observer import SILENT, Observer
from torchscale.schema.base import LAST_MOMENT
from torchscale.store.locations import RESULTS, WATCH_REPORT
from torchscale.util.words import did_you_mean

if TYPE_CHECKING:
    from rich.console import Console

RUN = "experiment.json"
"""What a run folder is known by."""
SUMMARY = "summary.csv"
"""What changes in a run folder when something was measured."""
_MAX_NAMED = 6
"""Runs in an error: more than that no one reads."""


class Report(Protocol):
    """What a directory holds, ready to be shown."""

    @property
    def directory(self) -> Path:
        """Where it was read."""
        ...

    def render(self, kind: ReportFormat, *, summary: bool = False) -> bytes:
        """The content of a file in any format but ``terminal``; a ``summary`` is short Markdown.

        Raises:
            UsageError: this cannot be shown in that format.
            ValueError: ``kind`` is ``terminal``.
        """
        ...

    def print_to(self, console: Console) -> None:
        """Print it as text and tables: the format ``terminal``."""
        ...

    def print_cell(self, text: str, console: Console) -> None:
        """Print the cell with this id, or the only one whose id contains ``text`` (``*`` is any
        text), as a vertical table.

        Raises:
            UsageError: no cell fits, several do, or this has no cells.
        """
        ...

    def cell_json(self, text: str) -> str:
        """The same cell as in :meth:`render`'s JSON. Errors as of :meth:`print_cell`."""
        ...


REPORTS: Slot[Callable[[Path], Report]] = Slot("reports")
"""The file by which a folder is known that is no run folder → what reads its report."""
REPORTS_OF_RUNS: Slot[Callable[[Path], Report]] = Slot("reports of runs")
"""The file by which a run folder is known that has a report of its own → what reads it."""
FOLDERS: Slot[Callable[[Path], tuple[str, str]]] = Slot("folders")
"""The file by which a folder is known that is no run folder → its state and a headline for the list
of runs."""


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
        UsageError: the directory holds several runs, or there is no such path.
    """
    path = existing_run(source)
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


def existing_run(source: Path) -> Path:
    """As :func:`run_by_name`.

    Raises:
        UsageError: there is no such path; the run of a similar name is suggested.
    """
    path = run_by_name(source)
    if not path.exists():
        raise no_such_run(source)
    return path


def no_such_run(source: Path, others: Sequence[str] = ()) -> UsageError:
    """The error of a run that is not there, with the one of a similar name.

    Args:
        source: The path or name, as typed.
        others: Further names that may be meant.
    """
    is_name = len(source.parts) == 1
    places = (RESULTS, Path()) if is_name else (source.parent,)
    runs = [run for place in places for run in newest_first(place, (RUN, *FOLDERS))]
    names = [*(run.name if is_name else str(run) for run in runs), *others]
    near = did_you_mean(str(source), names)
    hint = "measure one: torchscale benchmark"
    if near:
        hint = "`torchscale runs` lists them"
    elif names:
        hint = f"there are: {first_names(names)}"
    return UsageError(f"there is no run {str(source)!r}{near}", hint=hint)


def _is_run(directory: Path) -> bool:
    return any((directory / marker).is_file() for marker in (RUN, *FOLDERS))


def find_runs(directory: Path = RESULTS) -> list[Path]:
    """The folders in ``directory`` that a report can be made of, newest first."""
    return newest_first(directory, (RUN, *REPORTS))


def newest_first(directory: Path, markers: Sequence[str]) -> list[Path]:
    """The folders in ``directory`` that hold one of these files; none where it cannot be listed."""
    try:
        entries = list(directory.iterdir())
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return []
    folders = [folder for folder in entries if _holds(folder, markers)]
    return sorted(folders, key=lambda folder: (-changed_at(folder), folder.name))


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


def other_than_run(folder: Path) -> str | None:
    """The file by which a folder is known that is no run folder, or whose run is a watched job: how
    that ended is in its own file."""
    if (folder / RUN).is_file() and not (folder / WATCH_REPORT).is_file():
        return None
    return next((name for name in FOLDERS if (folder / name).is_file()), None)


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


def changed_at(folder: Path) -> float:
    """Seconds since the epoch of the last change, which a file system may say is in any year."""
    stamps: list[float] = []
    for marker in (RUN, SUMMARY, *FOLDERS):
        try:
            stamps.append((folder / marker).stat().st_mtime)
        except OSError:
            continue
    return min(max([0.0, *stamps]), LAST_MOMENT)
