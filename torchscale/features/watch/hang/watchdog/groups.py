"""Which ranks are in a process group of which logs give a name, and the places of some ranks in it.

Several groups may have one name: torch counts them in each process, so that in a mesh each row is
called ``1``. A group's ranks are sorted, and that tells rows apart.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property

from torchscale.features.watch.hang.watchdog.record import DEFAULT_GROUP, UNNAMED, RankWatchdog
from torchscale.util.text import ranks_label


@dataclass(frozen=True)
class ToldGroup:
    """Ranks of which lines say that they are in a group, where these may be of one.

    Attributes:
        name: Of the group.
        places: Rank → rank within the group, both rising.
        is_sure: Whether no other way to group the ranks fits what is told.
        is_short: Whether a group of that name has more places, or this one would have a single
            rank.
    """

    name: str
    places: Mapping[int, int]
    is_sure: bool
    is_short: bool

    @cached_property
    def members(self) -> tuple[int, ...]:
        """The ranks that are told, and those between two where there are as many places as
        ranks."""
        members: list[int] = []
        place, last = -1, -1
        for rank, group_rank in self.places.items():
            if rank - last == group_rank - place:
                members += range(last + 1, rank)
            members.append(rank)
            place, last = group_rank, rank
        return tuple(members)

    @property
    def gaps(self) -> list[tuple[range, range]]:
        """Places of which no line is, and the ranks that may have them; those that follow are no
        gaps."""
        found: list[tuple[range, range]] = []
        place, last = -1, -1
        for rank, group_rank in self.places.items():
            if rank - last != group_rank - place > 1:
                found.append((range(place + 1, group_rank), range(last + 1, rank)))
            place, last = group_rank, rank
        return found

    def has_room_for(self, rank: int) -> bool:
        """Whether a place that no line is of may be that of ``rank``."""
        after = self.is_short and rank > max(self.places)
        return after or self.has_gap_for(rank)

    def has_gap_for(self, rank: int) -> bool:
        """The same, of a place between others."""
        return any(rank in between for _, between in self.gaps)


def told_groups(
    ranks: Mapping[int, RankWatchdog], names: Collection[str]
) -> dict[str, list[ToldGroup]]:
    """The groups of each name, by lowest rank. A place above the rank is none."""
    places: dict[str, dict[int, int]] = {name: {} for name in names}
    for rank, watchdog in sorted(ranks.items()):
        for name, status in watchdog.groups.items():
            if name in places and status.group_rank is not None and status.group_rank <= rank:
                places[name][rank] = status.group_rank
    return {name: _groups_of(name, of_name) for name, of_name in places.items()}


def _groups_of(name: str, places: Mapping[int, int]) -> list[ToldGroup]:
    """In the order of ranks a new group starts where the place does not grow, or grows by more than
    there are ranks."""
    runs: list[dict[int, int]] = []
    for rank, place in places.items():
        if not runs or not _may_follow(runs[-1], rank, place):
            runs.append({})
        runs[-1][rank] = place
    longest = max([1, *(max(run.values()) for run in runs)])
    sure = _sure(runs, name)
    return [
        ToldGroup(name, run, is_sure, is_short=max(run.values()) < longest)
        for run, is_sure in zip(runs, sure, strict=True)
    ]


def _may_follow(run: dict[int, int], rank: int, place: int) -> bool:
    last = next(reversed(run))
    return run[last] < place <= run[last] + rank - last


def _sure(runs: list[dict[int, int]], name: str) -> list[bool]:
    """Of each group, whether places prove which ranks it has: from rank 0 on each rank belongs to
    one that is known, and its places cannot continue an earlier one. A name that is no number is
    made of the ranks, so that it is of one group alone."""
    if not name.isdigit():
        return [len(runs) == 1] * len(runs)
    found: list[bool] = []
    sizes: set[int] = set()
    known = 0
    for run in runs:
        size = max(run.values()) + 1
        is_next = all(found) and all(rank - place == known for rank, place in run.items())
        found.append(is_next and not sizes & set(range(size)))
        sizes.add(size)
        known += size
    return found


def groups_by_rank(ranks: Mapping[int, RankWatchdog]) -> dict[tuple[str, int], ToldGroup]:
    """Name and rank → the group of that name that the rank is in; none where its lines do not say
    its place."""
    names = {name for watchdog in ranks.values() for name in watchdog.groups}
    return {
        (name, rank): group
        for name, groups in told_groups(ranks, names).items()
        for group in groups
        for rank in group.places
    }


def missing_places(ranks: Mapping[int, RankWatchdog]) -> list[str]:
    """A line for each place of a group of which no line is. None of groups that share a name, where
    a place may be that of another one's rank."""
    notes = []
    names = _names(ranks)
    for name, groups in sorted(told_groups(ranks, names).items()):
        if len(groups) > 1:
            continue
        for group in groups:
            notes += [
                f"{_places_label(places)} of group {names[name] or name} left no line of NCCL's "
                f"watchdog; among {ranks_label(between)}"
                for places, between in group.gaps
            ]
    return notes


def _places_label(places: range) -> str:
    """``place 2``, ``places 1-3``."""
    if len(places) == 1:
        return f"place {places.start}"
    return f"places {places.start}-{places[-1]}"


def rank_aside(ranks: Mapping[int, RankWatchdog], size: int) -> tuple[int, ToldGroup] | None:
    """The one rank of ``size`` in which no collective failed, while one failed in a group on each
    other, and the group that has a place for it; ``None`` where that is not so. Of groups without a
    gap the nearest one counts."""
    aside = [rank for rank in range(size) if not _has_failed(ranks.get(rank))]
    if len(aside) != 1 or any(_has_failed_in_default(watchdog) for watchdog in ranks.values()):
        return None
    (rank,) = aside
    groups = list(itertools.chain(*told_groups(ranks, _names(ranks)).values()))
    fitting = [group for group in groups if group.has_room_for(rank)]
    if not fitting or any(rank in group.members for group in groups):
        return None
    return rank, max(fitting, key=lambda group: (group.has_gap_for(rank), max(group.places)))


def _has_failed_in_default(watchdog: RankWatchdog) -> bool:
    status = watchdog.groups.get(DEFAULT_GROUP)
    return status is not None and status.failed is not None


def _has_failed(watchdog: RankWatchdog | None) -> bool:
    return watchdog is not None and any(
        status.failed is not None for status in watchdog.groups.values()
    )


def _names(ranks: Mapping[int, RankWatchdog]) -> dict[str, str]:
    """Names of groups in which a collective failed, and their descriptions; not the default
    group's."""
    return {
        name: status.description
        for watchdog in ranks.values()
        for name, status in watchdog.groups.items()
        if status.failed is not None and name not in {DEFAULT_GROUP, *UNNAMED}
    }
