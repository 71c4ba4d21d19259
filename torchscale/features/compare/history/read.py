"""Run folders → a history, and a history → what was measured over time."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from torchscale.config.choices import Metric
from torchscale.errors import FileSystemError, StoreError, UsageError
from torchscale.features.compare.analysis.differences import unequal_facts
from torchscale.features.compare.history.entry import history_entry
from torchscale.features.compare.history.file import HistoryFile
from torchscale.features.compare.history.records import HistoryContent
from torchscale.features.compare.history.trends import Trend, metrics_of, trends
from torchscale.features.compare.inputs import load_source
from torchscale.util.files import similar_path

_MAX_DEPTH = 6
"""Levels of directories below the one that is named: results/<team>/<machine>/<year>/<month>/<run>
and one more."""
_MAX_FOLDERS = 100_000
"""Run folders below one directory; with as many, reading takes hours."""
_MAX_DIRECTORIES = 1_000_000
"""Looked into below one directory, so that naming / by mistake ends."""


@dataclass(frozen=True)
class Added:
    """What became of run folders.

    Attributes:
        new: Added.
        known: There already.
        left_out: A sentence on each that cannot be read or holds no figures.
    """

    new: int
    known: int
    left_out: tuple[str, ...] = ()


def run_folders(directory: Path) -> list[Path]:
    """The run folders in a directory, at any depth up to six; the directory itself if it is one.
    Links to directories are not followed.

    Raises:
        UsageError: it is no directory, or holds more than can be looked through.
    """
    if not directory.is_dir():
        raise UsageError(
            f"{directory} is not a directory{similar_path(directory)}",
            hint="name a directory with run folders that torchscale benchmark wrote",
        )
    found: list[Path] = []
    for count, folder in enumerate(_walk(directory)):
        if count > _MAX_DIRECTORIES or len(found) > _MAX_FOLDERS:
            raise UsageError(
                f"{directory} holds more than {_MAX_DIRECTORIES:,} directories or "
                f"{_MAX_FOLDERS:,} runs",
                hint="name the directories with run folders",
            )
        if (folder / "experiment.json").is_file():
            found.append(folder)
    return sorted(found)


def _walk(directory: Path) -> Iterator[Path]:
    """Directories, without what is inside a run folder."""
    pending = [(directory, 0)]
    while pending:
        folder, depth = pending.pop()
        yield folder
        if depth < _MAX_DEPTH and not (folder / "experiment.json").is_file():
            try:
                with os.scandir(folder) as entries:
                    pending += [
                        (Path(entry), depth + 1)
                        for entry in entries
                        if entry.is_dir(follow_symlinks=False)
                    ]
            except (PermissionError, FileNotFoundError):  # another's, or removed meanwhile
                continue


def add_folders(
    history: HistoryFile,
    folders: Sequence[Path],
    on_folder: Callable[[int, Path], None] | None = None,
) -> Added:
    """Add run folders to a history; one that was added before and has not changed since is not read
    again.

    Args:
        history: Where to.
        folders: Run folders.
        on_folder: Called with the number and path of each, before it is read.

    Raises:
        OutputError: the history cannot be written.
        StoreError: it is damaged.
    """
    new = known = 0
    left_out = []
    for number, folder in enumerate(folders, 1):
        try:
            fingerprint = _fingerprint(folder)
            if history.has_folder(fingerprint):
                known += 1
                continue
            if on_folder is not None:
                on_folder(number, folder)
            entry = history_entry(load_source(str(folder)))
        except StoreError as error:
            if str(folder) in error.message:
                reason = error.message
            else:
                reason = f"{folder}: {error.message}"
            left_out.append(f"Left out: {reason}.")
            continue
        if not any(cell.figures for cell in entry.cells):
            left_out.append(f"Left out: {folder}, which has no figures yet.")
        elif history.add(entry, fingerprint):
            new += 1
        else:
            known += 1
    return Added(new, known, tuple(left_out))


def _fingerprint(folder: Path) -> str:
    """Changes whenever a record is written: of the names, sizes and times of the files that figures
    come from.

    Raises:
        FileSystemError: they cannot be listed.
    """
    described = []
    try:
        files = [folder / "experiment.json", *sorted(folder.glob("cells/*/*/record.json"))]
    except OSError as error:
        raise FileSystemError.of(error) from error
    for file in files:
        try:
            status = file.stat()
        except OSError:  # moved away meanwhile; then the folder reads as another one next time
            continue
        described.append(f"{file.relative_to(folder)} {status.st_size} {status.st_mtime_ns}")
    return hashlib.sha256("\n".join(described).encode()).hexdigest()


def history_trends(
    history: HistoryFile, metrics: Sequence[Metric] = (), *, accept_flags: bool = False
) -> tuple[HistoryContent, list[Trend]]:
    """All runs, and every series with its change points and what differs between the runs on either
    side.

    Raises:
        StoreError: the history is damaged.
    """
    content = history.content([metric.value for metric in metrics_of(metrics)])
    found = trends(content, metrics, accept_flags=accept_flags)
    numbers = {
        run.number
        for trend in found
        for change in trend.changes
        for run in (change.last.run, change.first.run)
    }
    facts = {number: history.facts(number) for number in numbers}
    return content, [
        replace(
            trend,
            changes=tuple(
                replace(
                    change,
                    differences=tuple(
                        unequal_facts(
                            [facts[change.last.run.number], facts[change.first.run.number]]
                        )
                    ),
                )
                for change in trend.changes
            ),
        )
        for trend in found
    ]
