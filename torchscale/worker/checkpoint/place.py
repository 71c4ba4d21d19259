"""The directory of a launch's checkpoints: made, checked for room, and removed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from torchscale.schema.cells.checkpoint import CheckpointCell
from torchscale.util.checkpoint_place import checkpoint_place
from torchscale.util.files import remove_tree
from torchscale.util.units import format_bytes
from torchscale.worker.process_group import Ranks


class PlaceError(RuntimeError):
    """The place of the checkpoints cannot be used; the message says why."""


@contextmanager
def made_place(
    cell: CheckpointCell, launch_directory: Path, ranks: Ranks, needed: int
) -> Iterator[Path]:
    """The directory, which has room for ``needed`` bytes; rank 0 removes it at the end, also after
    an error. Call it on every rank.

    Raises:
        PlaceError: it cannot be written, has too little room, or not every rank sees it.
    """
    place = checkpoint_place(cell.path, launch_directory)
    place = ranks.gather_objects(place)[0]  # another node may have named the launch's differently
    problem = ""
    if ranks.rank == 0:
        problem = _made(place, needed)
    _refuse(problem, ranks)
    try:
        seen = "" if place.is_dir() else f"{place}: not there on every node; all must share it"
        _refuse(seen, ranks)
        yield place
    finally:
        if ranks.rank == 0:
            remove_tree(place)


def filesystem_type(directory: Path) -> str:
    """``ext4``, ``nfs4``: of the mount that ``directory`` lies in; empty where it is not known."""
    whole = directory.resolve()
    mounts = [
        (len(Path(mount.mountpoint).parts), mount.fstype)
        for mount in psutil.disk_partitions(all=True)
        if whole.is_relative_to(mount.mountpoint)
    ]
    return max(mounts, default=(0, ""))[1]


def _made(place: Path, needed: int) -> str:
    """Why the directory cannot be used; empty once it is made. Nothing is written before there is
    room."""
    try:
        free = shutil.disk_usage(place.parent).free
        if free < needed:
            return (
                f"{place.parent}: {format_bytes(free)} free, and a checkpoint takes "
                f"{format_bytes(needed)}"
            )
        remove_tree(place)  # of a launch that was killed
        place.mkdir()
    except OSError as error:
        return f"{place.parent}: cannot be written: {error.strerror or error}"
    return ""


def _refuse(problem: str, ranks: Ranks) -> None:
    found = next(filter(None, ranks.gather_objects(problem)), "")
    if found:
        raise PlaceError(found)
