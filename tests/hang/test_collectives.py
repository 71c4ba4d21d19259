"""Where collectives stand, from logs made by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.hang.test_explain import call, looped
from torchscale.hang.collectives import (
    due_signature,
    find_stalls,
    first_mismatch,
    group_logs,
    odd_ranks,
    payload_bytes,
    payload_dtype,
    swapped,
)
from torchscale.schema.launch.collective_log import CollectiveCall, CollectiveLog, ProcessGroup

DEFAULT = {"0": ProcessGroup("default_pg")}


def logs(*calls: list[CollectiveCall]) -> dict[int, CollectiveLog]:
    return {rank: CollectiveLog(tuple(items), DEFAULT) for rank, items in enumerate(calls)}


def test_a_completed_loop_has_no_stall() -> None:
    groups = group_logs(logs(looped(9), looped(9)), (0, 1))
    assert find_stalls(groups) == []
    assert first_mismatch(groups) is None


def test_who_waits_who_is_missing_and_who_is_silent() -> None:
    waits = [*looped(9), call(10, "broadcast", done=False), call(11, "all_reduce", done=False)]
    (stall,) = find_stalls(group_logs(logs(waits, looped(9)), (0, 1, 2)))
    assert (stall.number, stall.waiting, stall.missing, stall.silent) == (10, (0,), (1,), (2,))
    assert not stall.is_mismatch


def test_what_is_due_is_what_earlier_rounds_called() -> None:
    first = [*looped(9), call(10, "broadcast", done=False)]
    second = [*looped(9), call(10, "all_reduce", done=False)]
    (stall,) = find_stalls(group_logs(logs(first, second), (0, 1)))
    assert due_signature(stall) == stall.signatures[0]
    assert odd_ranks(stall) == ((1,), False)
    irregular = [
        call(number, name)
        for number, name in enumerate(["broadcast", "broadcast", "all_gather"], 1)
    ]
    a, b = (
        [*irregular, call(4, "broadcast", done=False)],
        [*irregular, call(4, "all_reduce", done=False)],
    )
    (stall,) = find_stalls(group_logs(logs(a, b), (0, 1)))
    assert due_signature(stall) is None
    assert odd_ranks(stall) == ((0, 1), False)


def test_a_tie_between_four_ranks_names_all() -> None:
    sides = [
        [call(1, name, done=False)]
        for name in ("broadcast", "broadcast", "all_reduce", "all_reduce")
    ]
    (stall,) = find_stalls(group_logs(logs(*sides), range(4)))
    assert odd_ranks(stall) == ((0, 1, 2, 3), False)


def test_coalesced_calls_share_a_number_in_any_order() -> None:
    a, b = call(1, "all_reduce", done=False), call(1, "all_gather", done=False)
    (stall,) = find_stalls(group_logs(logs([a, b], [b, a]), (0, 1)))
    assert not stall.is_mismatch


def test_a_swap_is_seen_where_both_calls_were_made() -> None:
    first = [call(1, "all_reduce", done=False), call(2, "broadcast", done=False)]
    second = [call(1, "broadcast", done=False), call(2, "all_reduce", done=False)]
    assert swapped(find_stalls(group_logs(logs(first, second), (0, 1)))[0])
    assert not swapped(find_stalls(group_logs(logs(first, second[:1]), (0, 1)))[0])


@pytest.mark.parametrize("operation", ["gather", "scatter", "all_to_all_single", "barrier"])
def test_operations_whose_ranks_may_differ_are_compared_by_name_alone(operation: str) -> None:
    a = replace(call(1, "all_reduce", done=False), operation=operation)
    b = replace(a, input_sizes=((3,),), input_dtypes=("int64",))
    (stall,) = find_stalls(group_logs(logs([a], [b]), (0, 1)))
    assert not stall.is_mismatch


@pytest.mark.parametrize(
    ("dtype", "width"),
    [
        ("float32", 4),
        ("bfloat16", 2),
        ("int8", 1),
        ("bool", 1),
        ("complex64", 8),
        ("float8_e4m3fn", 1),
        ("mystery", None),
    ],
)
def test_bytes_of_a_dtype(dtype: str, width: int | None) -> None:
    measured = call(1, "all_reduce", elements=10, dtype=dtype)
    assert payload_bytes(measured) == (None if width is None else 10 * width)
    assert payload_dtype(measured) == dtype


def test_a_barrier_has_no_bytes() -> None:
    barrier = replace(call(1, "all_reduce"), input_sizes=(), input_dtypes=())
    assert (payload_bytes(barrier), payload_dtype(barrier)) == (None, None)


def numbered(*numbers: int, last_done: bool = True) -> list[CollectiveCall]:
    """All-reduces and broadcasts in turn, under these numbers."""
    names = ("all_reduce", "broadcast")
    calls = [call(number, names[index % 2]) for index, number in enumerate(numbers)]
    return [*calls[:-1], replace(calls[-1], is_done=last_done)]


def test_sends_that_gloo_counts_do_not_shift_collectives() -> None:
    """Between its collectives rank 1 sends, which takes numbers."""
    steady, sending = numbered(1, 2, 3, 4, last_done=False), numbered(1, 3, 5)
    (log,) = group_logs(logs(steady, sending), (0, 1))
    assert sorted(log.calls[1]) == [1, 2, 3]
    (stall,) = find_stalls([log])
    assert (stall.number, stall.waiting, stall.missing, stall.is_mismatch) == (4, (0,), (1,), False)


@pytest.mark.parametrize("numbers", [(101, 103, 105), (102, 103, 104)])
def test_numbers_that_cannot_be_compared_are_not(numbers: tuple[int, ...]) -> None:
    """The recorder has dropped the start, and a number is missing or the ranks are shifted against
    each other."""
    recorded = logs(numbered(101, 102, 103, 104, last_done=False), numbered(*numbers))
    cut = {rank: replace(log, is_complete=False) for rank, log in recorded.items()}
    assert group_logs(cut, (0, 1)) == []
    whole = {
        rank: replace(log, is_complete=False)
        for rank, log in logs(numbered(101, 102), numbered(101)).items()
    }
    assert len(group_logs(whole, (0, 1))) == 1
