"""Ranks that gave up in ``init_process_group``, and those that never came."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from torchscale.catalog.failure_signs import TIMED_OUT, says_any
from torchscale.features.watch.ends.ranks import RankEnd
from torchscale.features.watch.hang.stacks import is_joining
from torchscale.schema.watch.ends import ProcessWait
from torchscale.util.text import agreeing, ranks_label


def never_joined(
    first: RankEnd,
    ends: Sequence[RankEnd],
    waits: Iterable[ProcessWait],
    begun: Collection[int],
    world_size: int,
) -> list[int]:
    """Ranks that the one that ended first had waited for; empty where it did not, and where all
    had come.

    Args:
        first: That ended first.
        ends: Of all ranks.
        waits: Of processes of the attempt, which were killed meanwhile.
        begun: Ranks that had joined.
        world_size: Ranks of the job; 0 where not known.
    """
    if not _gave_up(first):
        return []
    called = {end.rank for end in ends if is_joining(end.frames)}
    waited = {wait.rank for wait in waits if wait.what == "group"}
    return [rank for rank in range(world_size) if rank not in {*called, *waited, *begun}]


def _gave_up(end: RankEnd) -> bool:
    return is_joining(end.frames) and says_any(end.text, TIMED_OUT)


def unjoined_summary(missing: Sequence[int], who: str, place: str) -> str:
    """``rank 1 never joined: rank 0 waited for it in init_process_group …``."""
    at = f" at {place}" if place else ""
    return (
        f"{ranks_label(missing)} never joined: {who} waited for "
        f"{agreeing(missing, 'it', 'them')} in init_process_group{at} until its time-out"
    )


def unjoined_evidence(missing: Sequence[int], ends: Sequence[RankEnd]) -> str:
    """Why a rank may not have come."""
    ran = {end.rank for end in ends} & set(missing)
    if ran == set(missing):
        return f"{ranks_label(missing)} ran, and had not called init_process_group"
    absent = [rank for rank in missing if rank not in ran]
    was = agreeing(absent, "was", "were")
    return f"{ranks_label(absent)} {was} not started, ended before, or cannot reach the others"
