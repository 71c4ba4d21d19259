"""Lines of old versions of torch that do not name their process group."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.features.watch.hang.watchdog.test_logs import verdict, write
from tests.features.watch.hang.watchdog_text import Version, asked_to_dump, timed_out
from torchscale.features.watch.hang.watchdog.record import (
    DEFAULT_GROUP,
    UNNAMED_GROUP,
    UNNAMED_LIKE_DEFAULT,
    FailedWork,
    GroupStatus,
    RankWatchdog,
)
from torchscale.features.watch.hang.watchdog.unnamed import place_unnamed
from torchscale.schema.launch.hang import HangCause
from torchscale.schema.profiles.finding import Confidence

TAKEN = "lines of {} name no process group: they are taken for the default one's"
SEVERAL = "lines that name no process group are of several: ranks are not compared"


def waits(directory: Path, rank: int, place: int, version: Version = "2.2") -> None:
    write(directory / f"rank_{rank}.log", timed_out(rank, 54, 60, 53, version=version, place=place))


def is_told(directory: Path, rank: int, enqueued: int) -> None:
    text = asked_to_dump(rank, enqueued, enqueued, version="2.2")
    write(directory / f"rank_{rank}.log", text)


def test_ranks_above_all_that_wait_may_be_of_another_group(tmp_path: Path) -> None:
    for rank in (0, 1):
        waits(tmp_path, rank, rank)
    for rank in (2, 3):
        is_told(tmp_path, rank, 53)
    found = verdict(tmp_path)
    assert (found.cause, found.ranks, found.confidence) == (
        HangCause.RANK_MISSING,
        (2, 3),
        Confidence.LOW,
    )
    assert TAKEN.format("ranks 0 and 1") in found.evidence


def test_the_last_place_is_of_the_default_group(tmp_path: Path) -> None:
    for rank in (0, 3):
        waits(tmp_path, rank, rank)
    for rank in (1, 2):
        is_told(tmp_path, rank, 53)
    found = verdict(tmp_path)
    assert (found.ranks, found.confidence) == ((1, 2), Confidence.MEDIUM)
    assert not any("process group" in line for line in found.evidence)


def test_a_rank_that_completed_more_than_others_called_is_in_another_group(tmp_path: Path) -> None:
    for rank in (0, 1):
        waits(tmp_path, rank, rank)
    for rank in (2, 3):
        is_told(tmp_path, rank, 20)
    found = verdict(tmp_path)
    assert (found.cause, found.ranks) == (HangCause.UNKNOWN, ())
    assert SEVERAL in found.evidence


@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize("size", [4, 6])
def test_one_place_that_is_not_the_rank_lets_nothing_be_assumed(
    tmp_path: Path, version: Version, size: int
) -> None:
    for rank in range(size - 1):
        waits(tmp_path, rank, rank % 2, version)
    is_told(tmp_path, size - 1, 53)
    found = verdict(tmp_path)
    assert (found.cause, found.ranks) == (HangCause.UNKNOWN, ())
    assert SEVERAL in found.evidence


FAILED = FailedWork(54, "ALLREDUCE", 8)


def of_default(
    enqueued: int | None = None,
    completed: int | None = None,
    failed: FailedWork | None = None,
    *,
    is_assumed: bool = True,
) -> RankWatchdog:
    status = GroupStatus(
        enqueued=enqueued, completed=completed, failed=failed, is_assumed=is_assumed
    )
    return RankWatchdog(groups={DEFAULT_GROUP: status})


def unplaced(*failed: FailedWork) -> RankWatchdog:
    return RankWatchdog(unplaced={one.number: one for one in failed})


@pytest.mark.parametrize(("place", "notes"), [(None, []), (3, []), (2, [SEVERAL]), (0, [SEVERAL])])
def test_another_place_than_the_rank_is_of_another_group(
    place: int | None, notes: list[str]
) -> None:
    group = RankWatchdog(groups={UNNAMED_GROUP: GroupStatus(group_rank=place)})
    assert place_unnamed({3: group}, 3) == notes
    failed = replace(FAILED, group_rank=place)
    ranks = {3: unplaced(failed)}
    said = place_unnamed(ranks, 9)
    assert (SEVERAL in said, TAKEN.format("rank 3") in said) == (bool(notes), not notes)
    name = UNNAMED_GROUP if notes else DEFAULT_GROUP
    assert ranks[3].groups == {name: GroupStatus(group_rank=place, failed=failed, is_assumed=True)}
    assert not ranks[3].unplaced


@pytest.mark.parametrize(
    ("counts", "are_several"),
    [
        ([(5, 4), (4, 4)], False),
        ([(6, 5), (4, 4)], True),
        ([(6, 5), (9, 0), (4, 4)], True),
        ([(None, None)], False),
        ([(4, None)], False),
        ([(None, 5)], False),
        ([(4, None), (None, 5)], True),
        ([], False),
    ],
)
def test_no_rank_of_a_group_completes_what_another_has_not_enqueued(
    counts: list[tuple[int | None, int | None]], are_several: bool
) -> None:
    ranks = {rank: of_default(*of_rank) for rank, of_rank in enumerate(counts)}
    assert place_unnamed(ranks, 9) == [SEVERAL] * are_several
    named = {rank: of_default(*of_rank, is_assumed=False) for rank, of_rank in enumerate(counts)}
    assert place_unnamed(named, 9) == []
    assert place_unnamed({9: RankWatchdog()}, 9) == []


def test_what_failed_in_one_of_several_groups_is_of_an_unknown_one() -> None:
    ranks = {
        0: of_default(failed=FAILED),
        1: of_default(failed=FAILED),
        2: of_default(3, 3),
        3: of_default(failed=FAILED, is_assumed=False),
        4: RankWatchdog(groups={UNNAMED_GROUP: GroupStatus(group_rank=0)}),
    }
    ranks[1].groups[UNNAMED_GROUP] = GroupStatus(group_rank=0)
    assert place_unnamed(ranks, 3) == [SEVERAL]
    assert [sorted(ranks[rank].groups) for rank in range(5)] == [
        [UNNAMED_GROUP],
        [UNNAMED_GROUP, UNNAMED_LIKE_DEFAULT],
        [DEFAULT_GROUP],
        [DEFAULT_GROUP],
        [UNNAMED_GROUP],
    ]
    assert ranks[1].groups[UNNAMED_LIKE_DEFAULT].failed == FAILED


def test_what_failed_is_of_the_default_group_for_sure_where_the_last_rank_is_in_it() -> None:
    ranks = {2: of_default(failed=FAILED), 0: of_default(failed=FAILED), 1: of_default(53, 53)}
    assert place_unnamed(ranks, 3) == [TAKEN.format("ranks 0 and 2")]
    assert ranks[0].groups[DEFAULT_GROUP].is_assumed
    assert place_unnamed(ranks, 2) == []
    assert [ranks[rank].groups[DEFAULT_GROUP].is_assumed for rank in range(3)] == [
        False,
        True,
        False,
    ]
    assert place_unnamed({1: of_default(53, 53)}, 1) == []
    assert place_unnamed({1: of_default(failed=FAILED, is_assumed=False)}, 3) == []


@pytest.mark.parametrize(
    ("other", "name"),
    [
        (FAILED, "7"),
        (replace(FAILED, elements=9), "7"),
        (replace(FAILED, number=55), DEFAULT_GROUP),
        (replace(FAILED, operation="BROADCAST"), DEFAULT_GROUP),
        (None, DEFAULT_GROUP),
    ],
)
def test_what_failed_is_of_the_group_in_which_the_same_failed(
    other: FailedWork | None, name: str
) -> None:
    ranks = {
        0: unplaced(FAILED),
        1: RankWatchdog(groups={"7": GroupStatus(enqueued=60, failed=other)}),
    }
    said = place_unnamed(ranks, 9)
    assert said == [TAKEN.format("rank 0")] * (name == DEFAULT_GROUP)
    assert ranks[0].groups == {name: GroupStatus(failed=FAILED, is_assumed=True)}


def test_of_several_that_failed_in_a_group_the_first_counts() -> None:
    later = replace(FAILED, number=55)
    ranks = {0: unplaced(FAILED, later)}
    place_unnamed(ranks, 9)
    assert ranks[0].groups[DEFAULT_GROUP].failed == FAILED
    assert not ranks[0].unplaced
