"""Which ranks are in a group, by the places of some in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.features.watch.hang.watchdog.test_logs import verdict, write
from tests.features.watch.hang.watchdog_text import asked_to_dump, timed_out
from torchscale.features.watch.hang.watchdog.groups import missing_places, rank_aside, told_groups
from torchscale.features.watch.hang.watchdog.record import (
    DEFAULT_GROUP,
    UNNAMED,
    FailedWork,
    GroupStatus,
    RankWatchdog,
)
from torchscale.schema.launch.hang import Autopsy, HangCause
from torchscale.schema.profiles.finding import Confidence

HASH = "9a7f00c3e1"


def told(places: dict[int, int], name: str = "1") -> dict[int, RankWatchdog]:
    failed = FailedWork(11, "ALLREDUCE", 8)
    return {
        rank: RankWatchdog(groups={name: GroupStatus("mesh_tp", place, failed=failed)})
        for rank, place in places.items()
    }


def waits(
    directory: Path,
    rank: int,
    place: int,
    *,
    group: str = "1",
    number: int = 11,
    elements: int = 100,
    operation: str = "ALLREDUCE",
) -> None:
    text = timed_out(
        rank,
        number,
        number,
        number - 1,
        place=place,
        group=group,
        description="mesh_tp" if group == "1" else "mesh_dp",
        elements=elements,
        operation=operation,
    )
    write(directory / f"rank_{rank}.log", text.replace(f"PG ID {HASH}", "PG ID 3"))


def aside(directory: Path, *ranks: int) -> None:
    for rank in ranks:
        write(directory / f"rank_{rank}.log", asked_to_dump(rank, 2, 2))


@pytest.mark.parametrize(
    ("places", "groups", "sure"),
    [
        ({0: 0, 2: 2, 3: 3, 4: 0, 5: 1, 7: 3}, [(0, 1, 2, 3), (4, 5, 6, 7)], [True, True]),
        ({0: 0, 1: 1, 2: 0, 3: 1}, [(0, 1), (2, 3)], [True, True]),
        ({0: 0, 3: 1}, [(0, 3)], [False]),
        ({1: 0, 2: 1}, [(1, 2)], [False]),
        ({4: 0, 5: 1}, [(4, 5)], [False]),
        ({0: 0, 1: 0, 2: 1, 3: 1}, [(0,), (1, 2), (3,)], [True, False, False]),
        ({0: 0, 1: 3, 2: 2}, [(0, 1, 2)], [True]),
        ({3: 0, 4: 2}, [(3,), (4,)], [False, False]),
        ({2: 2, 3: 3}, [(0, 1, 2, 3)], [True]),
        ({1: 0, 2: 1, 3: 2, 4: 1}, [(1, 2, 3), (4,)], [False, False]),
        ({0: 0, 1: 0, 2: 0}, [(0,), (1,), (2,)], [True, True, True]),
        ({}, [], []),
    ],
)
def test_groups_that_share_a_name(
    places: dict[int, int], groups: list[tuple[int, ...]], sure: list[bool]
) -> None:
    found = told_groups(told(places), ["1"])["1"]
    assert [group.members for group in found] == groups
    assert [group.is_sure for group in found] == sure


def test_a_name_made_of_the_ranks_is_of_one_group() -> None:
    (group,) = told_groups(told({1: 0, 5: 1}, HASH), [HASH])[HASH]
    assert group.is_sure
    several = told_groups(told({0: 0, 1: 0}, HASH), [HASH])[HASH]
    assert [group.is_sure for group in several] == [False, False], "of two jobs"


def test_only_groups_that_are_asked_for_and_ranks_of_a_known_place_are_told() -> None:
    assert told_groups(told({0: 0}), []) == {}
    assert told_groups({0: RankWatchdog(groups={"1": GroupStatus()})}, ["1"]) == {"1": []}


def test_places_without_a_line_are_told_with_the_ranks_that_may_have_them() -> None:
    assert missing_places(told({1: 0, 3: 1, 7: 3})) == [
        "place 2 of group mesh_tp left no line of NCCL's watchdog; among ranks 4-6"
    ]
    assert missing_places(told({0: 0, 60_000: 50_000})) == [
        "places 1-49999 of group mesh_tp left no line of NCCL's watchdog; among ranks 1-59999"
    ]
    assert missing_places(told({2: 1})) == [
        "place 0 of group mesh_tp left no line of NCCL's watchdog; among ranks 0 and 1"
    ]
    assert not missing_places(told({0: 0, 3: 1})), "no place is between"
    assert not missing_places(told({0: 0, 1: 1, 3: 3})), "they follow"
    assert not missing_places(told({4: 1, 5: 1})), "of several groups"


def test_places_are_missing_in_groups_that_have_a_name_and_in_which_a_collective_failed() -> None:
    for name in (DEFAULT_GROUP, *UNNAMED):
        assert not missing_places(told({0: 0, 5: 3}, name))
    ranks = told({0: 0, 5: 3}, "4")
    for watchdog in ranks.values():
        watchdog.groups["4"].description = ""
    assert missing_places(ranks) == [
        "places 1-2 of group 4 left no line of NCCL's watchdog; among ranks 1-4"
    ]
    for watchdog in ranks.values():
        watchdog.groups["4"].failed = None
    assert not missing_places(ranks)


def test_no_rank_is_aside_where_the_default_group_fails() -> None:
    ranks = told({0: 0, 1: 0, 3: 1})
    ranks[0].groups[DEFAULT_GROUP] = GroupStatus(enqueued=5)
    assert rank_aside(ranks, 4) is not None
    ranks[0].groups[DEFAULT_GROUP].failed = FailedWork(5, "ALLREDUCE", 8)
    assert rank_aside(ranks, 4) is None


def test_a_rank_between_two_that_follow_is_not_aside() -> None:
    ranks = told({0: 0, 2: 2})
    ranks[0].groups.update(told({0: 0}, "2")[0].groups)
    assert rank_aside(ranks, 3) is None, "it is place 1 of the first group"


def named_aside(size: int, **groups: dict[int, int]) -> tuple[int, str, list[int]] | None:
    """The rank aside, and the name and the ranks of its group, each rank being in one."""
    ranks: dict[int, RankWatchdog] = {}
    for name, places in groups.items():
        ranks.update(told(places, name))
    found = rank_aside(ranks, size)
    return None if found is None else (found[0], found[1].name, list(found[1].places))


def test_a_rank_aside_is_in_the_group_with_a_gap_else_in_the_nearest() -> None:
    gap = {"1": {0: 0, 4: 2}, "2": {1: 0}, "3": {3: 0}}
    assert named_aside(5, **gap) == (2, "1", [0, 4])
    short = {"1": {0: 0, 3: 1, 5: 0, 6: 1, 7: 2}, "2": {1: 0, 2: 1, 8: 0, 9: 1, 10: 2}}
    assert named_aside(11, **short) == (4, "1", [0, 3])
    within = {"1": {0: 0, 3: 1, 4: 0, 5: 1, 6: 2}, "2": {1: 0}}
    assert named_aside(7, **within) == (2, "2", [1]), "no place is left between ranks 0 and 3"


def test_one_rank_aside_needs_a_place() -> None:
    assert rank_aside(told({0: 0, 2: 1, 3: 2}), 4) is None, "rank 1 is between places"
    assert rank_aside(told({0: 0, 1: 1}), 3) is None
    found = rank_aside(told({0: 0, 1: 0, 3: 1}), 4)
    assert found is not None and found[0] == 2
    assert rank_aside(told({0: 0}), 3) is None, "two are"


@pytest.mark.parametrize("elements", [100, 200])
def test_the_missing_rank_of_one_of_two_groups_of_a_name(tmp_path: Path, elements: int) -> None:
    for rank in (0, 2, 3):
        waits(tmp_path, rank, rank)
    for rank in (4, 5, 6, 7):
        waits(tmp_path, rank, rank - 4, elements=elements)
    aside(tmp_path, 1)
    found = verdict(tmp_path)
    assert (found.cause, found.ranks, found.confidence) == (
        HangCause.RANK_MISSING,
        (1,),
        Confidence.LOW,
    )
    assert any(line.startswith("ranks 0 and 2-7: in all_reduce #11") for line in found.evidence)


def is_open(found: Autopsy) -> bool:
    return (found.cause, found.ranks) == (HangCause.UNKNOWN, ())


def test_groups_of_a_name_are_not_compared(tmp_path: Path) -> None:
    for rank in range(4):
        waits(tmp_path / "rows", rank, rank % 2, elements=100 + rank // 2)
    assert is_open(verdict(tmp_path / "rows"))
    waits(tmp_path / "far", 0, 0, elements=6)
    waits(tmp_path / "far", 3, 1, elements=7, operation="REDUCE_SCATTER")
    aside(tmp_path / "far", 1, 2)
    found = verdict(tmp_path / "far")
    assert is_open(found)
    assert "nothing proves that ranks 0 and 3 are of one group mesh_tp" in found.evidence


@pytest.mark.parametrize(("group", "start"), [("1", 0), (HASH, 4)])
def test_ranks_that_are_of_one_group_are_compared(tmp_path: Path, group: str, start: int) -> None:
    for place in range(4):
        waits(tmp_path, start + place, place, group=group, elements=6 + (place == 2))
    found = verdict(tmp_path)
    assert (found.cause, found.ranks) == (HangCause.SIZE_MISMATCH, (start + 2,))


def test_the_one_rank_of_a_mesh_in_no_collective_that_failed(tmp_path: Path) -> None:
    for rank in (0, 2, 6):
        waits(tmp_path, rank, rank // 2, group="21")
    for rank in (1, 3, 7):
        waits(tmp_path, rank, rank // 2, group="22")
    waits(tmp_path, 5, 1, number=30)
    aside(tmp_path, 4)
    found = verdict(tmp_path)
    assert (found.cause, found.ranks, found.confidence) == (
        HangCause.RANK_MISSING,
        (4,),
        Confidence.LOW,
    )
    assert found.summary == (
        "all_reduce #11 (100 elements, group mesh_dp): rank 4 is in no collective that failed, as "
        "all other ranks are"
    )
    assert any(line.startswith("place 2 of group mesh_dp left no line") for line in found.evidence)
    aside(tmp_path, 5)
    found = verdict(tmp_path)
    assert not found.ranks, "two are"


def test_ranks_each_alone_in_their_groups_wait_for_the_one_that_is_in_none(tmp_path: Path) -> None:
    waits(tmp_path, 0, 0)
    waits(tmp_path, 1, 0, group="4", number=5)
    waits(tmp_path, 2, 0, group="2")
    aside(tmp_path, 3)
    found = verdict(tmp_path)
    assert (found.ranks, found.confidence) == ((3,), Confidence.LOW)
