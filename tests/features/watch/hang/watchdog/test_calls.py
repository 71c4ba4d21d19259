"""What watchdogs say of a rank, in the form of what a recorder holds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.features.watch.hang.test_explain import call
from torchscale.features.watch.hang.collective_log import CollectiveLog, ProcessGroup
from torchscale.features.watch.hang.watchdog.calls import collectives_of, fitted
from torchscale.features.watch.hang.watchdog.groups import groups_by_rank
from torchscale.features.watch.hang.watchdog.record import (
    DEFAULT_GROUP,
    FailedWork,
    GroupStatus,
    RankWatchdog,
)


def log_of(ranks: dict[int, RankWatchdog], rank: int) -> CollectiveLog | None:
    return collectives_of(rank, ranks[rank], groups_by_rank(ranks))


def says(name: str, status: GroupStatus) -> RankWatchdog:
    return RankWatchdog(groups={name: status})


@pytest.mark.parametrize(
    ("places", "members"),
    [
        ({0: 0, 3: 3}, (0, 1, 2, 3)),
        ({4: 0, 5: 1, 7: 3}, (4, 5, 6, 7)),
        ({0: 0, 8: 2}, (0, 8)),
        ({2: 1}, (2,)),
        ({5: 0, 3: 1}, (5,)),
    ],
)
def test_members_of_a_group_by_their_places(
    places: dict[int, int], members: tuple[int, ...]
) -> None:
    ranks = {
        rank: says("7", GroupStatus(group_rank=place, enqueued=3, completed=3))
        for rank, place in places.items()
    }
    log = log_of(ranks, next(iter(places)))
    assert log is not None and log.groups["7"].ranks == members


@pytest.mark.parametrize(
    ("status", "calls"),
    [
        (GroupStatus(enqueued=53, completed=53), [(53, True)]),
        (GroupStatus(enqueued=84, completed=53), [(54, False), (84, False)]),
        (GroupStatus(enqueued=84, completed=-1), [(1, False), (84, False)]),
        (GroupStatus(enqueued=-1, completed=-1), []),
        (GroupStatus(enqueued=9), [(9, True)]),
        (GroupStatus(failed=FailedWork(54, "ALLREDUCE", 8)), [(54, False)]),
        (
            GroupStatus(enqueued=84, completed=53, failed=FailedWork(54, "ALLREDUCE", 8)),
            [(54, False), (84, False)],
        ),
    ],
)
def test_calls_that_follow_from_counts(status: GroupStatus, calls: list[tuple[int, bool]]) -> None:
    log = log_of({0: says(DEFAULT_GROUP, status)}, 0)
    assert log is not None and log.is_partial
    assert [(one.sequence, one.is_done) for one in log.calls] == calls
    assert log_of({0: says(DEFAULT_GROUP, GroupStatus())}, 0) is None


def test_words_of_a_watchdog_become_those_of_a_recorder_where_they_may_be_the_same() -> None:
    recorded = replace(
        call(7, "all_reduce", elements=64), operation="allreduce_coalesced", backend="nccl2"
    )
    group = ProcessGroup("default_pg", (0, 1, 2))
    dumped = CollectiveLog((recorded,), {DEFAULT_GROUP: group})
    for operation, elements, name in (
        ("COALESCED", None, "allreduce_coalesced"),
        ("ALLREDUCE", 64, "allreduce_coalesced"),
        ("ALLREDUCE", 63, "all_reduce"),
        ("BROADCAST", 64, "broadcast"),
    ):
        failed = FailedWork(7, operation, elements)
        log = log_of({1: says(DEFAULT_GROUP, GroupStatus(failed=failed))}, 1)
        assert log is not None
        like = fitted(1, log, [dumped])
        assert (like.calls[0].operation, like.calls[0].backend) == (name, "nccl2")
        assert like.groups[DEFAULT_GROUP] == group
