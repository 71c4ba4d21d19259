"""Of which ranks the logs of a run are: lines may name them, or say the rank in a group alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torchscale.features.watch.hang.log_files import RankLog
from torchscale.features.watch.hang.watchdog.lines import SaidInLog
from torchscale.features.watch.hang.watchdog.record import (
    DEFAULT_GROUP,
    UNNAMED_GROUP,
    RankWatchdog,
)


def watchdogs_of_run(
    logs: Sequence[RankLog], said: Sequence[SaidInLog]
) -> list[dict[int, RankWatchdog]]:
    """What watchdogs say, by global rank, for each log of a run."""
    unsure = [
        set(one.own)
        for log, one in zip(logs, said, strict=True)
        if not log.is_sure and log.rank is not None and not one.ranks
    ]
    # Logs of machines have different ranks. One that has a single rank is no other kind of log.
    are_different = sum(map(len, unsure)) == len(set().union(*unsure))
    are_shared = are_different and any(len(own) > 1 for own in unsure)
    return [
        _watchdogs(one, log, is_shared=are_shared or len(one.own) > 1)
        for log, one in zip(logs, said, strict=True)
    ]


def _watchdogs(said: SaidInLog, log: RankLog, *, is_shared: bool) -> dict[int, RankWatchdog]:
    """What the watchdogs in a log say, by global rank. Where a name has no word for a rank, and the
    log ``is_shared``, the ranks in its lines count."""
    own = said.own
    if not own or said.ranks or log.rank is None:
        return said.ranks
    if is_shared and not log.is_sure:
        return {rank: _named_group(watchdog, rank) for rank, watchdog in own.items()}
    watchdog = _joined(own.values())
    default = watchdog.groups.get(DEFAULT_GROUP)
    if default is not None and default.group_rank is not None:
        return {default.group_rank: watchdog}
    return {log.rank: _named_group(watchdog, log.rank)}


def _named_group(watchdog: RankWatchdog, rank: int) -> RankWatchdog:
    """The same with the group that has no name as the default group, where the rank in it is the
    rank of all."""
    status = watchdog.groups.get(UNNAMED_GROUP)
    if status is not None and status.group_rank == rank:
        watchdog.groups[DEFAULT_GROUP] = watchdog.groups.pop(UNNAMED_GROUP)
    return watchdog


def _joined(watchdogs: Iterable[RankWatchdog]) -> RankWatchdog:
    """What is said of one rank under its numbers in several groups."""
    joined = RankWatchdog()
    for one in watchdogs:
        joined.groups = {**one.groups, **joined.groups}
        joined.unplaced = {**one.unplaced, **joined.unplaced}
        joined.frames = joined.frames or one.frames
        joined.failed_at = one.failed_at if joined.failed_at is None else joined.failed_at
        joined.exited_at = one.exited_at if joined.exited_at is None else joined.exited_at
    return joined
