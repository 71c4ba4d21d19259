"""Folders into which the ranks of a watched job write."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

from torchscale.schema.watch.rank import MOST_RANKS
from torchscale.util.files import leads_out, read_end
from torchscale.worker.watch.last_call_form import FILE as LAST_CALL

_FOLDER = re.compile(r"(\d{1,7})\.(\d{1,7})")
MOMENTS = re.compile(r"(marks|calls|lengths|shares|samples|memory)-(\d{1,9})\.bin")
MOST_ATTEMPTS = MOST_RANKS - 1
"""The last number of one: names of folders have no more digits."""
_MAX_REASON, _MAX_REASONS = 500, 3
"""Characters of why a collector could not start, and how many are shown: all ranks have the same
one."""


def rank_folders(directory: Path) -> dict[tuple[int, int], Path]:
    """(Rank, attempt) → folder, of all ranks that have written."""
    return {
        key: folder
        for key, folder in claimed_folders(directory).items()
        if (folder / "rank.json").is_file()
    }


def claimed_folders(directory: Path) -> dict[tuple[int, int], Path]:
    """(Rank, attempt) → folder, of all ranks that have begun. A link that leads out of the job is
    none."""
    ranks = directory / "ranks"
    found = {}
    for name in sorted(names_in(ranks)):
        match = _FOLDER.fullmatch(name)
        if match is not None and not _is_elsewhere(directory, ranks / name):
            found[int(match[1]), int(match[2])] = ranks / name
    return found


def remove_moments(directory: Path) -> None:
    """Remove the moments of all ranks, and their last calls: files of ours alone, in folders of the
    job that are no links. What cannot be removed stays.

    Raises:
        OSError: the file system fails.
    """
    for folder in claimed_folders(directory).values():
        if folder.is_symlink() or folder.parent.is_symlink():
            continue
        for name in (*filter(MOMENTS.fullmatch, names_in(folder)), LAST_CALL):
            with contextlib.suppress(IsADirectoryError, PermissionError):
                (folder / name).unlink(missing_ok=True)


def failures(directory: Path) -> list[str]:
    """Why collectors could not start, a line each."""
    names = sorted(name for name in names_in(directory) if name.startswith("problem-"))
    found = []
    for name in names[:_MAX_REASONS]:
        with contextlib.suppress(OSError):
            reason = read_end(directory / name, _MAX_REASON, within=directory)
            found.append(reason.decode(errors="replace").strip())
    return found


def names_in(folder: Path) -> list[str]:
    """What is in a folder; nothing where it is none."""
    try:
        return [path.name for path in folder.iterdir()]
    except OSError:
        return []


def _is_elsewhere(directory: Path, folder: Path) -> bool:
    try:
        return leads_out(directory, folder)
    except OSError:
        return True
