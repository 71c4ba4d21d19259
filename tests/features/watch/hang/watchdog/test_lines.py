"""What is read from the lines of NCCL's watchdog, and what is not."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.features.watch.hang.watchdog_text import VERSIONS, Version, asked_to_dump, timed_out
from torchscale.features.watch.hang.log_files import RankLog
from torchscale.features.watch.hang.watchdog.lines import read_log
from torchscale.features.watch.hang.watchdog.ranks import watchdogs_of_run
from torchscale.features.watch.hang.watchdog.record import (
    DEFAULT_GROUP,
    UNNAMED_GROUP,
    RankWatchdog,
)


def read(text: str, rank: int | None = None) -> dict[int, RankWatchdog]:
    said = read_log(text.encode().splitlines(keepends=True), is_of_one=rank is not None)
    (found,) = watchdogs_of_run([RankLog(Path("rank.log"), rank)], [said])
    return found


@pytest.mark.parametrize("version", VERSIONS[1:])
def test_numbers_of_each_version(version: Version) -> None:
    status = read(timed_out(3, 54, 84, 53, version=version))[3].groups[DEFAULT_GROUP]
    assert (status.enqueued, status.completed) == (84, 53)
    assert status.failed is not None
    assert (status.failed.number, status.failed.operation) == (54, "ALLREDUCE")
    assert (status.failed.elements, status.failed.limit_ms) == (6400, 600_000)


def test_when_a_collective_was_called_follows_from_how_long_it_ran() -> None:
    first, second = (
        read(timed_out(0, 5, 5, 4, time=time))[0].groups[DEFAULT_GROUP].failed
        for time in ("09:29:06.5", "10:29:06.5")
    )
    assert first is not None and second is not None
    assert first.called is not None and second.called is not None
    assert second.called - first.called == pytest.approx(3600)


def test_a_rank_of_several_groups_keeps_them_apart() -> None:
    text = timed_out(6, 5, 5, 4, place=2, group="7", description="dp") + asked_to_dump(6, 9, 9)
    watchdog = read(text)[6]
    assert {name: status.enqueued for name, status in watchdog.groups.items()} == {"7": 5, "0": 9}
    assert watchdog.groups["7"].group_rank == 2


def test_numbers_within_a_group_are_no_ranks_of_the_job() -> None:
    """Old lines give the rank within the group, and do not name that."""
    text = timed_out(7, 5, 5, 4, version="2.2", place=1).replace("[rank7]:", "")
    (watchdog,) = read(text, 7).values()
    assert list(watchdog.groups) == [UNNAMED_GROUP]
    same = timed_out(7, 5, 5, 4, version="2.2").replace("[rank7]:", "")
    assert list(read(same, 7)[7].groups) == [DEFAULT_GROUP]
    named = timed_out(9, 5, 5, 4).replace("[rank9]:", "")
    assert list(read(named, 1)) == [9], "the folder of torchrun has the rank on its machine"


def test_lines_of_others_than_watchdogs_say_nothing() -> None:
    assert read("[rank0]: step 3\n[Rank 1] loss 0.2\nwatchdog of the lab: WorkNCCL(x)\n") == {}


@pytest.mark.parametrize("version", VERSIONS)
def test_colours_within_a_line_are_no_part_of_it(version: Version) -> None:
    plain = timed_out(3, 54, 84, 53, version=version)
    coloured = plain
    for word in ("rank3", "Rank 3", "Watchdog", "54", "84", "53"):
        coloured = coloured.replace(word, f"\x1b[1;36m{word}\x1b[0m")
    assert coloured != plain
    assert read(coloured, 3) == read(plain, 3)


_PIECES = st.sampled_from(
    [
        "[rank1]:",
        "[rank99999999]:",
        "[Rank 3] ",
        "[PG ID 5 PG GUID 37(TP) Rank 1] ",
        "[PG 0 Rank 2]",
        "[E1399 99:99:99.9 x] ",
        "Watchdog caught collective operation timeout: ",
        "WorkNCCL(SeqNum=999999999999999999, OpType=X, NumelIn=999999999999999999, Timeout(ms)=1)",
        "WorkNCCL(SeqNum=0, OpType=SEND, TensorShape=[1,,2 3])",
        "last enqueued work: -1, last completed work: 99999999999999999999",
        "detected by watchdog at work: 7, last enqueued NCCL work: 5, last started work: 3 (((",
        " raised the following async exception: \x00\x1b[31m",
        "Stack trace of the failed collective:",
        "#0 f from a.py:1",
        "terminated with exception",
        "\n",
        "[" * 400,
        "PG ID " * 200,
    ]
)


@given(st.lists(st.one_of(_PIECES, st.text(max_size=20)), max_size=30), st.booleans())
def test_whatever_a_log_holds_is_read(pieces: list[str], of_one: bool) -> None:
    found = read("".join(pieces), 3 if of_one else None)
    for watchdog in found.values():
        for status in watchdog.groups.values():
            assert "\n" not in status.description
            assert status.failed is None or status.failed.error.isprintable()
