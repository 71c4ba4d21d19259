"""Where collectives stand, from logs made by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.features.watch.hang.test_explain import call, looped
from torchscale.features.watch.hang.collective_log import (
    CollectiveCall,
    CollectiveLog,
    ProcessGroup,
)
from torchscale.features.watch.hang.collectives import find_stalls, first_mismatch, group_logs
from torchscale.features.watch.hang.history import due_signature, odd_ranks, swapped
from torchscale.features.watch.hang.signatures import (
    payload_bytes,
    payload_dtype,
    payload_elements,
)

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
    assert [stall.log.last(number) for number in range(3)] == [11, 9, 0]


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
        ("complex128", 16),
        ("float64", 8),
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
    cut = {rank: replace(log, truncated=frozenset({"gloo"})) for rank, log in recorded.items()}
    assert group_logs(cut, (0, 1)) == []
    whole = {
        rank: replace(log, truncated=frozenset({"gloo"}))
        for rank, log in logs(numbered(101, 102), numbered(101)).items()
    }
    assert len(group_logs(whole, (0, 1))) == 1
    apart = {**whole, 1: replace(whole[1], calls=())}
    assert len(group_logs(apart, (0, 1))) == 1, "a rank that has called nothing contradicts nobody"


def test_a_number_that_is_missing_once_shifts_all_that_follow() -> None:
    (log,) = group_logs(logs(numbered(1, 2, 3, last_done=False), numbered(1, 3)), (0, 1))
    (stall,) = find_stalls([log])
    assert (stall.number, stall.missing, stall.is_mismatch) == (3, (1,), False)


def test_logs_that_begin_alike_are_compared_to_their_end() -> None:
    """The recorder has dropped the start. A difference at the end is the fault that is looked for
    and no shift of numbers."""
    first = [call(101, "all_reduce"), call(102, "broadcast"), call(103, "all_reduce", done=False)]
    second = [*first[:2], call(103, "broadcast", done=False)]
    cut = {
        rank: replace(log, truncated=frozenset({"gloo"}))
        for rank, log in logs(first, second).items()
    }
    (stall,) = find_stalls(group_logs(cut, (0, 1)))
    assert (stall.number, stall.is_mismatch) == (103, True)


def test_other_operations_before_it_are_the_stall_though_all_have_left_them() -> None:
    """Only sizes that differ may have nothing to do with a rank that does not come to the next."""
    went_on = [*looped(3), call(4, "broadcast"), call(5, "all_reduce", done=False)]
    behind = [*looped(3), call(4, "all_reduce")]
    (stall,) = find_stalls(group_logs(logs(went_on, behind), (0, 1)))
    assert (stall.number, stall.passed) == (4, None)
    sizes = [call(4, "all_reduce", elements=elements) for elements in (8, 9)]
    went_on[3], behind[3] = sizes
    (stall,) = find_stalls(group_logs(logs(went_on, behind), (0, 1)))
    assert (stall.number, stall.passed and stall.passed.number) == (5, 4)


def test_sizes_that_differ_are_not_passed_while_ranks_wait_in_them() -> None:
    sides = [[call(1, "all_reduce", elements=elements, done=False)] for elements in (8, 9)]
    (stall,) = find_stalls(group_logs(logs(*sides, []), range(3)))
    assert (stall.number, stall.missing, stall.passed) == (1, (2,), None)


def test_the_first_collective_that_any_rank_is_in_is_the_stall() -> None:
    """The source of a broadcast may leave it before the others, and waits in the next one."""
    receiver = [*looped(9), call(10, "broadcast", done=False)]
    source = [*looped(9), call(10, "broadcast"), call(11, "all_reduce", done=False)]
    (stall,) = find_stalls(group_logs(logs(source, receiver), (0, 1)))
    assert (stall.number, stall.waiting, stall.missing) == (10, (1,), ())


def of_two_groups(*calls: list[CollectiveCall]) -> dict[int, CollectiveLog]:
    groups = {"0": ProcessGroup("default_pg"), "1": ProcessGroup("one", (0, 1))}
    return {rank: CollectiveLog(tuple(items), groups) for rank, items in enumerate(calls)}


def test_the_group_whose_collective_was_called_first_comes_first() -> None:
    """A hang spreads: what was called earlier is the cause. That a rank came late to it, after the
    other group had begun to wait, does not change that."""
    early = [call(1, "all_reduce", done=False, time=time) for time in (5, 100)]
    later = [call(1, "broadcast", done=False, time=time, group="1") for time in (50, 60)]
    recorded = of_two_groups([early[0], later[0]], [early[1], later[1]])
    assert [stall.log.name for stall in find_stalls(group_logs(recorded, (0, 1)))] == ["0", "1"]


def test_the_first_of_several_mismatches_is_named() -> None:
    early = [call(1, name, time=5) for name in ("all_reduce", "broadcast")]
    later = [call(1, name, time=50, group="1") for name in ("all_gather", "broadcast")]
    found = first_mismatch(
        group_logs(of_two_groups([early[0], later[0]], [early[1], later[1]]), (0, 1))
    )
    assert found is not None
    assert found.log.name == "0"


def test_a_mismatch_is_seen_though_another_rank_ended_before_it() -> None:
    first, second = [*looped(3), call(4, "broadcast")], [*looped(3), call(4, "all_gather")]
    found = first_mismatch(group_logs(logs(first, second, looped(1)), (0, 1, 2)))
    assert found is not None
    assert (found.number, sorted(found.signatures)) == (4, [0, 1])


def test_ranks_that_call_in_a_group_belong_to_it_though_their_recorder_does_not_list_it() -> None:
    """Where no recorder says who the members are, those that call are: without the second rank the
    first would wait for nobody."""
    waits = [call(1, "all_reduce", done=False, group="1")]
    listed = CollectiveLog(tuple(waits), {"1": ProcessGroup("undefined")})
    other = [call(1, "broadcast", done=False, group="1")]
    (stall,) = find_stalls(group_logs({0: listed, 1: CollectiveLog(tuple(other), {})}, (0, 1)))
    assert (stall.log.members, stall.waiting, stall.is_mismatch) == ((0, 1), (0, 1), True)


@pytest.mark.parametrize(
    ("operation", "backend", "differs"),
    [
        ("all_gather", "gloo", True),
        ("all_gather", "nccl", False),
        ("all_reduce", "nccl", True),
        ("all_gather_v", "gloo", False),
        ("reduce_scatter_v", "gloo", False),
    ],
)
def test_lists_of_tensors_may_differ_in_size_over_nccl_alone(
    operation: str, backend: str, differs: bool
) -> None:
    """Over gloo a rank that gathers more than the others ends one of them."""
    sides = [
        replace(call(1, operation, elements=size, done=False), backend=backend) for size in (8, 9)
    ]
    (stall,) = find_stalls(group_logs(logs(*([side] for side in sides)), (0, 1)))
    assert stall.is_mismatch is differs


def test_a_rank_that_passes_an_empty_tensor_passes_no_bytes() -> None:
    """Which is known, and may be what is wrong with it."""
    assert payload_bytes(call(1, "all_reduce", elements=0)) == 0
    damaged = replace(call(1, "all_reduce"), input_sizes=((-4,),))
    assert payload_bytes(damaged) is None


def test_a_size_that_no_memory_has_is_that_of_a_damaged_dump() -> None:
    at_most = call(1, "all_reduce", elements=2**62 - 1, dtype="int8")
    assert payload_bytes(at_most) == 2**62 - 1
    assert payload_bytes(replace(at_most, input_sizes=((2**62,),))) is None
    untyped = replace(at_most, input_dtypes=())
    assert payload_elements(untyped) == 2**62 - 1
    assert payload_elements(replace(untyped, input_sizes=((2**62,),))) is None
    assert payload_elements(replace(untyped, input_sizes=((-1,),))) is None


def test_elements_are_told_where_bytes_cannot_be() -> None:
    """As in the lines of a watchdog, which tell no types."""
    typed = call(1, "all_reduce", elements=6)
    untyped = replace(typed, input_dtypes=())
    assert (payload_bytes(untyped), payload_elements(untyped)) == (None, 6)
    assert payload_elements(typed) is None
    received = replace(untyped, input_sizes=(), output_sizes=((2, 3), (4,)))
    assert payload_elements(received) == 10
    assert payload_elements(replace(untyped, input_sizes=((0,),))) == 0
    assert payload_elements(replace(untyped, input_sizes=())) is None


def test_backends_of_one_group_number_their_collectives_apart() -> None:
    """A group of ``cpu:gloo,cuda:nccl``: the second all-reduce over NCCL is missing on rank 1."""
    gloo = [call(number, "broadcast") for number in (1, 2, 3)]
    nccl = [replace(call(number, "all_reduce"), backend="nccl") for number in (1, 2)]
    waits = [*nccl[:1], replace(nccl[1], is_done=False)]
    recorded = logs([*gloo, *waits], [*gloo, *nccl[:1]])
    (stall,) = find_stalls(group_logs(recorded, (0, 1)))
    assert (stall.number, stall.waiting, stall.missing) == (2, (0,), (1,))
    assert stall.call(0).backend == "nccl"


def test_calls_of_a_backend_that_tells_no_end_are_pending_until_all_have_called() -> None:
    first = [replace(call(number, "all_reduce"), backend="c10d") for number in (1, 2, 3)]
    recorded = {
        rank: replace(log, untold=frozenset({"c10d"}))
        for rank, log in logs(first, first[:2]).items()
    }
    (stall,) = find_stalls(group_logs(recorded, (0, 1)))
    assert (stall.number, stall.waiting, stall.missing) == (3, (0,), (1,))
    alike = {rank: replace(recorded[0]) for rank in (0, 1)}
    assert find_stalls(group_logs(alike, (0, 1))) == []
