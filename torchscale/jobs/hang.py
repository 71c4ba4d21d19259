"""A watched job that makes no progress: what its ranks say of themselves, and why they wait."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import psutil

from torchscale.hang.evidence import ask_ranks, hang_autopsy
from torchscale.jobs.stream import RankStream
from torchscale.schema.launch.hang import Autopsy
from torchscale.util.files import make_directory

FOLDER = "hang"
"""Below the folder of the job: where ranks look for a request, and answer it."""


def job_autopsy(
    directory: Path, streams: Mapping[int, RankStream], moved_seconds_ago: float | None = None
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
    processes = {rank: _process(stream) for rank, stream in streams.items()}
    ask_ranks(folder, processes, moved_seconds_ago)
    size = max(stream.facts.world_size for stream in streams.values())
    return hang_autopsy(folder, size)


def _process(stream: RankStream) -> psutil.Process | None:
    """The rank's process; ``None`` where it has ended."""
    try:
        process = psutil.Process(stream.facts.pid)
        # Not another one that has the number now.
        return process if process.create_time() <= stream.facts.began + 1 else None
    except psutil.Error:
        return None
