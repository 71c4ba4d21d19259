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


def place(name: str, rank: int = 0) -> str:
    return f"[rank{rank}]:[E624 09:29:06.5 P.cpp:1] [PG ID 9 PG GUID {name}(dp) Rank {rank}]"


CAUGHT = "Watchdog caught collective operation timeout: WorkNCCL"


def work(number: int, more: str = "", *, rank: int = 0) -> str:
    """What an old version says of a collective that timed out, without its group."""
    return (
        f"[rank{rank}]:[E624 09:29:06.5 P.cpp:1] [Rank {rank}] {CAUGHT}(SeqNum={number}, "
        f"OpType=ALLREDUCE{more})\n"
    )


@pytest.mark.parametrize(
    ("time", "seconds"),
    [
        ("E624 09:29:07.75", 1.25),
        ("E624 09:30:06.5", 60),
        ("E624 11:29:06.5", 2 * 3600),
        ("E626 09:29:06.5", 2 * 86_400),
        ("E824 09:29:06.5", 62 * 86_400),
        ("E701 09:29:06.5", 8 * 86_400),
    ],
)
def test_the_time_of_a_line_has_months_of_31_days(time: str, seconds: float) -> None:
    start = read(work(5))[0].failed_at
    later = read(work(5).replace("E624 09:29:06.5", time))[0].failed_at
    assert start is not None and later is not None
    assert later - start == pytest.approx(seconds)
    first = read(work(5).replace("E624 09:29:06.5", "E101 00:00:00.0"))[0].failed_at
    assert first == 32 * 86_400


def test_what_has_no_time_has_none() -> None:
    text = timed_out(0, 5, 6, 4, version="2.2")
    failed = read(text)[0].groups[DEFAULT_GROUP].failed
    assert failed is not None and failed.called is None
    assert read(text)[0].failed_at is None
    failed = read(timed_out(0, 5, 6, 4))[0].groups[DEFAULT_GROUP].failed
    failed_at = read(timed_out(0, 5, 6, 4))[0].failed_at
    assert failed is not None and failed.called is not None and failed_at is not None
    assert failed_at - failed.called == pytest.approx(600.011)
    assert read(work(5))[0].unplaced[5].called is None, "it does not say how long it ran"


def test_the_first_failure_is_when_a_rank_failed() -> None:
    later = timed_out(0, 9, 9, 8, time="09:40:00.0", group="7")
    assert read(timed_out(0, 5, 6, 4) + later)[0].failed_at == read(work(5))[0].failed_at


@pytest.mark.parametrize(
    ("more", "elements", "limit"),
    [
        (", NumelIn=7, NumelOut=9, Timeout(ms)=500", 7, 500),
        (", TensorShape=[2, 3], Timeout(ms)=0", 6, 0),
        (", TensorShape=[], Timeout(ms)=500", 1, 500),
        ("", None, None),
    ],
)
def test_elements_and_timeout_of_what_failed(
    more: str, elements: int | None, limit: int | None
) -> None:
    failed = read(work(5, more))[0].unplaced[5]
    assert (failed.elements, failed.limit_ms, failed.group_rank) == (elements, limit, 0)


def test_an_error_is_no_timeout() -> None:
    error = "  broken\x1b\t" + "x" * 300
    text = work(5, f", Timeout(ms)=500) raised the following async exception: {error}")
    failed = read(text)[0].unplaced[5]
    assert (failed.limit_ms, len(failed.error)) == (None, 160)
    assert failed.error.startswith("broken") and failed.error.isprintable()


def test_what_is_said_of_a_failure_without_a_group_has_no_place() -> None:
    text = work(5).replace("[Rank 0] ", "")
    assert read(text)[0].unplaced[5].group_rank is None
    assert read(text)[0].groups == {}


@pytest.mark.parametrize(
    ("counts", "kept"),
    [
        ((9, 6), (9, 6, True)),
        ((8, 6), (9, 6, True)),
        ((7, 6), (9, 6, True)),
        ((6, 6), (6, 6, False)),
        ((9, 7), (9, 7, False)),
        ((8, 9), (9, 6, True)),
        ((3, 9), (3, None, False)),
    ],
)
def test_counts_of_another_attempt_are_in_place_of_a_failure(
    counts: tuple[int, int], kept: tuple[int, int | None, bool]
) -> None:
    status = read(timed_out(0, 7, 9, 6) + asked_to_dump(0, *counts))[0].groups[DEFAULT_GROUP]
    assert (status.enqueued, status.completed, status.failed is not None) == kept


@pytest.mark.parametrize(("number", "kept"), [(6, 6), (7, 7), (8, 7)])
def test_an_earlier_failure_is_of_another_attempt(number: int, kept: int) -> None:
    text = timed_out(0, 7, 9, 6) + timed_out(0, number, 9, 5)
    status = read(text)[0].groups[DEFAULT_GROUP]
    assert status.failed is not None and status.failed.number == kept
    assert status.completed == (5 if kept < 7 else 6)


def test_what_is_said_again_of_a_failure_adds_nothing() -> None:
    text = timed_out(0, 7, 9, 7)
    status = read(text + text.splitlines()[1])[0].groups[DEFAULT_GROUP]
    assert status.failed is not None and status.failed.number == 7


def test_a_line_that_names_the_group_of_a_failure_needs_no_other() -> None:
    watchdog = read(f"{place('37')} {CAUGHT}(SeqNum=5, OpType=ALLREDUCE, NumelIn=7\n")[0]
    failed = watchdog.groups["37"].failed
    assert failed is not None and failed.number == 5
    assert not watchdog.unplaced


def test_a_count_that_was_never_set_is_unknown() -> None:
    status = read(asked_to_dump(0, 9, 9))[0].groups[DEFAULT_GROUP]
    assert (status.enqueued, status.completed, status.started) == (9, 9, -1)
    assert read(asked_to_dump(0, 9, 10))[0].groups[DEFAULT_GROUP].completed is None
    first = read(timed_out(0, 1, 3, 0) + asked_to_dump(0, 3, 9))[0].groups[DEFAULT_GROUP]
    assert first.failed is not None, "it has not completed"
    started = read(timed_out(0, 5, 6, 2, version="2.13"))[0].groups[DEFAULT_GROUP]
    assert started.started == 3


def test_a_group_keeps_its_description_and_has_the_name_that_all_ranks_know() -> None:
    text = timed_out(0, 5, 6, 4, group="37", description="dp").replace("PG ID 37", "PG ID 5")
    later = asked_to_dump(0, 9, 9).replace("GUID 0(default_pg)", "GUID 37")
    groups = read(text + later)[0].groups
    assert {name: status.description for name, status in groups.items()} == {"37": "dp"}
    (status,) = read(place("37") + " Observed flight recorder dump signal\n")[0].groups.values()
    assert (status.description, status.enqueued, status.is_assumed) == ("dp", None, False)
    (status,) = read(timed_out(0, 5, 6, 4, version="2.2"))[0].groups.values()
    assert (status.description, status.enqueued, status.is_assumed) == ("", 6, True)


def test_the_named_one_of_several_groups_in_a_line_counts() -> None:
    text = f"{place('37', 5).replace('[PG', '[Rank 4] [PG')} Watchdog of Rank 3\n"
    assert list(read(text)[5].groups) == ["37"]
    assert read(text)[5].groups["37"].group_rank == 5


def test_a_rank_has_64_groups_and_64_failures_at_most() -> None:
    lines = [f"{place(str(name))} dump signal\n" for name in range(65)]
    again = asked_to_dump(0, 9, 9).replace("GUID 0(default_pg)", "GUID 63")
    groups = read("".join(lines) + again)[0].groups
    assert list(groups) == [str(name) for name in range(64)]
    assert groups["63"].enqueued == 9
    assert list(read("".join(map(work, range(65))))[0].unplaced) == list(range(64))


def test_no_rank_is_beyond_65535() -> None:
    assert list(read(work(5, rank=65_535))) == [65_535]
    assert read(work(5, rank=65_536)) == {}


@pytest.mark.parametrize(
    ("group", "ranks"),
    [
        ("[Rank 3]", [3]),
        ("[PG 0 Rank 3]", [3]),
        ("[PG 7 Rank 3]", []),
        ("", []),
    ],
)
def test_a_log_of_several_ranks_names_them_by_their_place_in_the_default_group(
    group: str, ranks: list[int]
) -> None:
    text = asked_to_dump(3, 9, 9, version="2.2").replace("[rank3]:", "").replace("[Rank 3]", group)
    assert list(read(text)) == ranks


STACK = "[rank0]:[E624 09:29:08.1 P.cpp:7] Stack trace of the failed collective: \n"


def frame(number: int) -> str:
    return f"#{number} f{number} from a.py:{number}\n"


def functions(text: str) -> list[str]:
    return [one.function for one in read(text)[0].frames]


def test_the_stack_of_what_failed_ends_with_another_line() -> None:
    text = STACK + frame(0) + frame(1) + asked_to_dump(0, 9, 9) + frame(2)
    assert functions(text) == ["f1", "f0"]
    assert read(text)[0].groups[DEFAULT_GROUP].enqueued == 9
    assert functions(STACK + frame(0)) == ["f0"], "it ends with the log"
    assert functions(STACK + frame(0) + "\n" + STACK + frame(1)) == ["f0"], "the first counts"
    missing = STACK.replace("collective:", "collective not found, is the recorder on?")
    assert functions(missing + frame(0)) == []


def test_of_a_deep_stack_the_innermost_hundred_frames_are_read() -> None:
    text = STACK + "".join(map(frame, range(101))) + asked_to_dump(0, 9, 9)
    assert functions(text) == [f"f{number}" for number in reversed(range(100))]


def test_a_process_that_its_watchdog_ended_may_begin_again() -> None:
    down = (
        "[rank0]:[E624 09:29:09.0 P.cpp:6] Process group watchdog thread terminated with exception"
    )
    first = timed_out(0, 7, 9, 6) + timed_out(1, 7, 9, 6) + down + "\n"
    assert list(read(first)) == [0, 1]
    assert read(first)[0].is_ended and not read(first)[1].is_ended
    again = read(first + timed_out(0, 3, 4, 2))
    assert list(again) == [0], "of another attempt"
    failed = again[0].groups[DEFAULT_GROUP].failed
    assert failed is not None and failed.number == 3
    assert list(read(first + timed_out(0, 7, 9, 6))) == [0, 1], "said again"
    assert list(read(work(7) + work(7, rank=1) + down + "\n" + work(7))) == [0, 1]


def test_when_a_process_ended_in_order_is_known() -> None:
    text = "Warning: destroy_process_group() was not called before program exit, which can leak\n"
    watchdog = read(f"[rank0]:[W624 09:29:06.5 P.cpp:1575] {text}")[0]
    assert watchdog.exited_at == read(work(5))[0].failed_at
    assert (watchdog.failed_at, watchdog.is_ended) == (None, False)


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
