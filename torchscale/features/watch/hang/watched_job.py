"""A watched job that makes no progress: what its ranks say of themselves, and why they wait."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

import psutil

from torchscale.features.watch.hang.evidence import ask_ranks, hang_autopsy
from torchscale.schema.launch.hang import Autopsy
from torchscale.schema.watch.rank import RankFacts
from torchscale.util.files import make_directory

FOLDER = "hang"
"""Below the folder of the job: where ranks look for a request, and answer it."""


def job_autopsy(
    directory: Path, ranks: Mapping[int, RankFacts], moved_seconds_ago: float | None = None
) -> Autopsy:
    """Ask the ranks for their stacks and collectives, and conclude from them. Takes some seconds,
    and changes nothing in the ranks. ``moved_seconds_ago``: when the last progress was, if the job
    may be slow and not hang.

    Raises:
        OutputError: the folder cannot be written.
    """
    folder = directory / FOLDER
    make_directory(folder)
    for old in folder.glob("autopsy-rank-*"):
        old.unlink(missing_ok=True)
    processes = {rank: _process(facts) for rank, facts in ranks.items()}
    ask_ranks(folder, processes, moved_seconds_ago)
    size = max(facts.world_size for facts in ranks.values())
    return hang_autopsy(folder, size)


def ask_starting_ranks(directory: Path, parent_pid: int, world_size: int) -> None:
    """Note what the ranks below a launcher do that have not begun to write: their stacks, where
    py-spy is there, and whether they compute or sleep.

    Raises:
        OutputError: the folder cannot be written.
    """
    found = ranks_below(parent_pid)
    ask_ranks(directory, {rank: found.get(rank) for rank in range(world_size)})


def ranks_below(parent_pid: int) -> dict[int, psutil.Process]:
    """Rank → process, of those below a process: what a rank starts has its variables, and is
    later."""
    found: dict[int, psutil.Process] = {}
    with contextlib.suppress(psutil.Error):
        below = psutil.Process(parent_pid).children(recursive=True)
        for process in sorted(below, key=lambda one: one.create_time()):
            rank = _rank_of(process)
            if rank is not None:
                found.setdefault(rank, process)
    return found


def _rank_of(process: psutil.Process) -> int | None:
    try:
        return int(process.environ()["RANK"])
    except (psutil.Error, KeyError, ValueError):
        return None


def _process(facts: RankFacts) -> psutil.Process | None:
    """The rank's process; ``None`` where it has ended."""
    try:
        process = psutil.Process(facts.pid)
        # Not another one that has the number now.
        return process if process.create_time() <= facts.began + 1 else None
    except psutil.Error:
        return None
