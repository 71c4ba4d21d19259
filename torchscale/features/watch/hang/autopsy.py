"""Why a job makes no progress, from its dumps or from its processes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torchscale.features.watch.hang.dumps import read_directory
from torchscale.features.watch.hang.explain import explain_hang
from torchscale.features.watch.hang.job import RankEvidence
from torchscale.features.watch.hang.joining import Joining, explain_joining, explain_meeting
from torchscale.features.watch.hang.meeting import meeting_of
from torchscale.features.watch.hang.running_job import has_ranks, inspect_job
from torchscale.features.watch.hang.stacks import is_joining, place
from torchscale.observer import SILENT, Observer
from torchscale.schema.launch.hang import Autopsy, RankCondition


def autopsy_of_dumps(directory: Path, observer: Observer = SILENT) -> Autopsy:
    """Explain a hang from the dumps in ``directory``: those of torch's flight recorder, or a launch
    directory of torchscale.

    Raises:
        UsageError: there are none.
    """
    with observer.status(f"Reading the dumps in {directory}"):
        evidence, facts = read_directory(directory)
        return explain_hang(evidence, facts.notes, facts.moved_seconds_ago)


def autopsy_of_process(pid: int, observer: Observer = SILENT) -> Autopsy:
    """Explain a hang from the processes of a job on this machine, which are only read.

    Raises:
        UsageError: ``pid`` is no process, or has no ranks.
    """
    with observer.status(f"Looking at the ranks of process {pid}"):
        meeting = meeting_of(pid) if not has_ranks(pid) else None
        if meeting is not None:
            return explain_meeting(meeting)
        evidence, notes = inspect_job(pid)
        return _of_joining(evidence, notes) or explain_hang(evidence, notes)


def _of_joining(evidence: Sequence[RankEvidence], notes: Sequence[str]) -> Autopsy | None:
    """The verdict on ranks that wait in ``init_process_group``; ``None`` where none does, or one
    has called a collective."""
    joining = [rank for rank in evidence if is_joining(rank.frames) and rank.world_size]
    if any(rank.log is not None for rank in evidence):
        return None
    ended = {rank.rank: "" for rank in evidence if rank.condition is RankCondition.GONE}
    others = {
        rank.rank: f"pid {rank.pid}, {_where(rank)}"
        for rank in evidence
        if rank not in joining and rank.rank not in ended
    }
    return explain_joining(
        [Joining(rank.rank, rank.world_size, rank.meets_at, rank.frames) for rank in joining],
        others,
        ended,
        notes,
    )


def _where(rank: RankEvidence) -> str:
    if rank.condition is RankCondition.STOPPED:
        return "is stopped by a signal or a debugger"
    where = place(rank.frames)
    return f"is at {where}" if where else "has no stack that can be read"
