"""The folder of a job that a run of the command begins in."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from torchscale.errors import TorchscaleError
from torchscale.features.watch.job.runs import Past, begin_run, check_addable
from torchscale.util.files import make_directory

_MOST_PLACES = 9
"""Folders that are tried beside one that nothing can be added to."""
_LONGEST_NAME = 200
"""Characters of its name that are kept: a name has 255 at most."""


def place_for(
    named: Path, started: float, on_note: Callable[[str], None], *, appends: bool
) -> tuple[Path, Past] | None:
    """A folder for a run of the command, which begins in it; ``None`` where one that is to be added
    to a job has none.

    Args:
        named: The folder that was asked for.
        started: Seconds since the epoch.
        on_note: Called with what the user should know at once.
        appends: Whether to add to the job in it.

    Raises:
        OutputError: the folder cannot be written.
    """
    directory = named.absolute()
    if not appends:
        make_directory(directory)
        return directory, begin_run(directory, started)
    reason = ""
    for make_place in _places(directory):
        try:
            place = make_place()
            check_addable(place)
            make_directory(place)
            past = begin_run(place, started)
        except (TorchscaleError, OSError, ValueError) as error:  # / has no folder beside it
            reason = reason or getattr(error, "message", str(error))
            continue
        if reason:
            past = replace(past, notes=(f"{reason}; this run is in {place}", *past.notes))
        for note in past.notes:
            on_note(note)
        return place, past
    on_note(f"{reason}; the program runs without being watched")
    return None


def _places(directory: Path) -> Iterator[Callable[[], Path]]:
    """Where a run may go: into the folder that was named, one beside it, a temporary one."""
    yield lambda: directory
    for number in range(2, _MOST_PLACES + 1):
        yield partial(directory.with_name, f"{directory.name[:_LONGEST_NAME]}.{number}")
    yield lambda: Path(tempfile.mkdtemp(prefix="torchscale-watch-"))
