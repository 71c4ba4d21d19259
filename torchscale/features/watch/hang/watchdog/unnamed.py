"""Lines of old versions of torch, which do not name the process group they are of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from torchscale.features.watch.hang.watchdog.record import (
    DEFAULT_GROUP,
    UNNAMED_GROUP,
    UNNAMED_LIKE_DEFAULT,
    FailedWork,
    GroupStatus,
    RankWatchdog,
)
from torchscale.util.text import ranks_label


def place_unnamed(ranks: Mapping[int, RankWatchdog], last: int) -> list[str]:
    """Find the group of what failed where no line names it: one in which the same failed on another
    rank, else the default group, where each rank in the group is the rank of all. Where one is not,
    several groups failed, and nothing is taken for the default one's.

    Args:
        ranks: What watchdogs say, which is changed.
        last: The last rank of the job.

    Returns:
        Evidence, a line each.
    """
    has_others = any(_is_of_another(rank, watchdog) for rank, watchdog in ranks.items())
    has_others = has_others or _are_of_several(ranks.values())
    if has_others:
        _set_apart(ranks.values())
    placed = _place_failures(ranks, has_others=has_others)
    assumed = {
        rank
        for rank, watchdog in ranks.items()
        if (status := watchdog.groups.get(DEFAULT_GROUP)) and status.is_assumed and status.failed
    }
    if last in assumed:  # its place is the last one: the group has all ranks
        for rank in assumed:
            ranks[rank].groups[DEFAULT_GROUP].is_assumed = False
        assumed = set()
    notes = []
    if assumed | placed:
        said = ranks_label(sorted(assumed | placed))
        notes.append(f"lines of {said} name no process group: they are taken for the default one's")
    if has_others:
        notes.append("lines that name no process group are of several: ranks are not compared")
    return notes


def _is_of_another(rank: int, watchdog: RankWatchdog) -> bool:
    """Whether lines without a name of the group are not of the default one."""
    status = watchdog.groups.get(UNNAMED_GROUP)
    in_another = status is not None and status.group_rank not in (None, rank)
    return in_another or any(
        failed.group_rank not in (None, rank) for failed in watchdog.unplaced.values()
    )


def _are_of_several(watchdogs: Iterable[RankWatchdog]) -> bool:
    """Whether a rank completed what another one has not enqueued: in one group it waits for it."""
    statuses = [
        status
        for watchdog in watchdogs
        if (status := watchdog.groups.get(DEFAULT_GROUP)) and status.is_assumed
    ]
    enqueued = [status.enqueued for status in statuses if status.enqueued is not None]
    completed = [status.completed for status in statuses if status.completed is not None]
    return bool(enqueued and completed) and max(completed) > min(enqueued)


def _set_apart(watchdogs: Iterable[RankWatchdog]) -> None:
    """Take what failed under the rank of all for that of an unknown group. Counts alone are of the
    default group: it is the one that is told of others' timeouts."""
    for watchdog in watchdogs:
        status = watchdog.groups.get(DEFAULT_GROUP)
        if status is not None and status.is_assumed and status.failed is not None:
            name = UNNAMED_GROUP
            if name in watchdog.groups:
                name = UNNAMED_LIKE_DEFAULT
            watchdog.groups[name] = watchdog.groups.pop(DEFAULT_GROUP)


def _place_failures(ranks: Mapping[int, RankWatchdog], *, has_others: bool) -> set[int]:
    """Find the group of each failure; the result is the ranks of which the default one is taken."""
    assumed = set()
    for rank, watchdog in ranks.items():
        for number, failed in list(watchdog.unplaced.items()):
            name = DEFAULT_GROUP
            if has_others:
                name = UNNAMED_GROUP
            name = next(_groups_with(ranks.values(), failed), name)
            status = watchdog.groups.setdefault(
                name, GroupStatus(group_rank=failed.group_rank, is_assumed=True)
            )
            if name == DEFAULT_GROUP:
                assumed.add(rank)
            if status.failed is None:
                status.failed = failed
            del watchdog.unplaced[number]
    return assumed


def _groups_with(ranks: Iterable[RankWatchdog], failed: FailedWork) -> Iterator[str]:
    """Names of groups in which the same has failed."""
    for watchdog in ranks:
        for name, status in watchdog.groups.items():
            other = status.failed
            if other is None or other.number != failed.number:
                continue
            if other.operation == failed.operation:
                yield name
