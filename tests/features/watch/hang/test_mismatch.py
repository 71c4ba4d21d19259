"""Coalesced collectives that ranks call with different arguments."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.features.watch.hang.test_explain import IN_OWN_CODE, call, looped, rank
from torchscale.features.watch.hang.collective_log import CollectiveCall
from torchscale.features.watch.hang.explain import explain_hang
from torchscale.features.watch.hang.job import RankEvidence
from torchscale.schema.launch.hang import HangCause
from torchscale.schema.profiles.finding import Confidence


def coalesced(
    number: int, *parts: tuple[str, int, str], closing: str = "ALLGATHER_coalesced"
) -> list[CollectiveCall]:
    """An entry for each part, and the one that ends them, under one number."""
    calls = [
        replace(
            call(
                number, "all_reduce", elements=elements, dtype=dtype, done=False, time=100 + place
            ),
            operation=operation,
            backend="nccl",
        )
        for place, (operation, elements, dtype) in enumerate(parts)
    ]
    end = replace(calls[-1], operation=closing, input_sizes=((),), created_ns=200)
    return [*calls, end]


def several(number: int, *elements: int, dtype: str = "float32") -> CollectiveCall:
    """One call with several tensors."""
    return replace(
        call(number, "all_reduce", done=False, time=100),
        operation="allreduce_coalesced",
        input_sizes=tuple((count,) for count in elements),
        input_dtypes=(dtype,) * len(elements),
        backend="nccl",
    )


BROADCASTS = [("_broadcast_oop", count, "float32") for count in (16, 25, 36)]


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("size", [2, 5])
@pytest.mark.parametrize(
    ("wrong", "cause", "said"),
    [
        (("_broadcast_oop", 7, "float32"), HangCause.SIZE_MISMATCH, "_broadcast_oop of 28.0 B"),
        (("_broadcast_oop", 16, "int64"), HangCause.SIZE_MISMATCH, "_broadcast_oop of 128 B int64"),
        (("_reduce_oop", 16, "float32"), HangCause.COLLECTIVE_MISMATCH, "_reduce_oop of 64.0 B"),
    ],
)
def test_the_part_in_which_ranks_differ_is_named(
    place: int, size: int, wrong: tuple[str, int, str], cause: HangCause, said: str
) -> None:
    other = list(BROADCASTS)
    other[place] = wrong
    ranks = [rank(number, coalesced(21, *BROADCASTS)) for number in range(size - 1)]
    verdict = explain_hang([*ranks, rank(size - 1, coalesced(21, *other))])
    if cause is HangCause.SIZE_MISMATCH and wrong[2] == "int64":
        cause = HangCause.DTYPE_MISMATCH
    assert verdict.cause is cause
    assert verdict.summary.startswith(f"ALLGATHER_coalesced #21, part {place + 1} of 3: ")
    assert f"rank {size - 1} called {said}" in verdict.summary
    if size > 2:
        assert (verdict.ranks, verdict.confidence) == ((size - 1,), Confidence.HIGH)
    else:
        assert (verdict.ranks, verdict.confidence) == ((0, 1), Confidence.LOW)


def test_tensors_of_one_call_are_compared_one_by_one() -> None:
    ranks = [rank(number, [several(4, 1024, 256)]) for number in (0, 2)]
    verdict = explain_hang([ranks[0], rank(1, [several(4, 1024, 128)]), ranks[1]])
    assert (verdict.cause, verdict.ranks) == (HangCause.SIZE_MISMATCH, (1,))
    assert verdict.summary.startswith("allreduce_coalesced #4, part 2 of 2: rank 1 called")
    assert "512 B" in verdict.summary and "1.00 KiB" in verdict.summary
    fewer = explain_hang([ranks[0], rank(1, [several(4, 1024)]), ranks[1]])
    assert (fewer.cause, fewer.ranks) == (HangCause.SIZE_MISMATCH, (1,))
    assert "ranks 0 and 2 called allreduce_coalesced of 2 parts" in fewer.summary
    other = explain_hang([ranks[0], rank(1, [several(4, 1024, 256, dtype="float16")]), ranks[1]])
    assert other.cause is HangCause.DTYPE_MISMATCH
    assert "part 1 (and 1 more) of 2" in other.summary


def test_tensors_whose_types_are_not_all_known_are_compared_as_one_call() -> None:
    odd = replace(several(4, 1024, 128), input_dtypes=("float32",))
    verdict = explain_hang([*(rank(n, [several(4, 1024, 128)]) for n in (0, 1)), rank(2, [odd])])
    assert (verdict.ranks, verdict.cause) == ((2,), HangCause.SIZE_MISMATCH)
    assert "rank 2 called allreduce_coalesced of float32, " in verdict.summary


def test_a_part_that_one_rank_left_out_is_another_operation() -> None:
    ranks = [rank(number, coalesced(21, *BROADCASTS)) for number in range(3)]
    verdict = explain_hang([*ranks, rank(3, coalesced(21, *BROADCASTS[:2]))])
    assert (verdict.cause, verdict.ranks) == (HangCause.COLLECTIVE_MISMATCH, (3,))
    assert "rank 3 called ALLGATHER_coalesced of 2 parts" in verdict.summary
    assert "ranks 0-2 called ALLGATHER_coalesced of 3 parts" in verdict.summary


def test_where_nobody_is_named_the_first_rank_is_told_first() -> None:
    calls = [call(1, name, done=False) for name in ("broadcast", "all_reduce")]
    verdict = explain_hang([rank(number, [one]) for number, one in enumerate(calls)])
    assert verdict.summary == (
        "collective #1: rank 0 called broadcast of 256 B float32, rank 1 called all_reduce of "
        "4.00 KiB float32"
    )


def test_a_call_without_tensors_is_told_by_its_name() -> None:
    barrier = replace(
        call(1, "all_reduce", done=False), operation="barrier", input_sizes=(), input_dtypes=()
    )
    ranks = [rank(number, [call(1, "all_reduce", done=False)]) for number in range(2)]
    verdict = explain_hang([*ranks, rank(2, [barrier])])
    assert verdict.summary.startswith("all_reduce #1: rank 2 called barrier, ranks 0 and 1 called")


def test_what_all_ranks_coalesced_alike_is_shown_with_the_bytes_of_all_parts() -> None:
    ranks = [rank(number, coalesced(21, *BROADCASTS)) for number in range(2)]
    verdict = explain_hang(ranks)
    assert verdict.cause is HangCause.UNKNOWN
    assert verdict.summary.startswith("ALLGATHER_coalesced #21 (308 B): every rank has called it")


def test_sizes_that_differed_where_all_have_left_do_not_hide_who_is_missing_later() -> None:
    """NCCL may end a collective whose ranks pass different sizes."""

    def went_on(number: int, elements: int, *, waits: bool) -> RankEvidence:
        passed = replace(several(19, 1024, elements), is_done=True)
        calls = [*looped(18), replace(passed, backend="gloo")]
        if waits:
            return rank(number, [*calls, call(20, "all_reduce", done=False)])
        return rank(number, calls, IN_OWN_CODE)

    ranks = [went_on(0, 256, waits=True), went_on(1, 128, waits=False)]
    verdict = explain_hang(ranks)
    assert (verdict.cause, verdict.ranks) == (HangCause.RANK_MISSING, (1,))
    assert verdict.summary.startswith("all_reduce #20 (4.00 KiB): rank 1 never called it")
    assert any("part 2 of 2" in line and "completed" in line for line in verdict.evidence)
    both = explain_hang([went_on(0, 256, waits=True), went_on(1, 128, waits=True)])
    assert (both.cause, both.collective and both.collective.sequence) == (
        HangCause.SIZE_MISMATCH,
        19,
    )


def test_parts_in_another_order_are_a_mismatch_over_nccl() -> None:
    """It carries them out in the order of the calls."""
    ranks = [rank(number, coalesced(21, *BROADCASTS)) for number in range(2)]
    verdict = explain_hang([*ranks, rank(2, coalesced(21, *BROADCASTS[::-1]))])
    assert (verdict.cause, verdict.ranks) == (HangCause.SIZE_MISMATCH, (2,))
    assert "part 1 (and 1 more) of 3" in verdict.summary


def test_what_all_have_left_is_told_where_nobody_waits() -> None:
    def left(elements: int) -> list[CollectiveCall]:
        return [*looped(5), replace(several(6, 1024, elements), is_done=True, backend="gloo")]

    ranks = [rank(number, left(128 if number == 1 else 256), ()) for number in range(3)]
    verdict = explain_hang(ranks)
    assert (verdict.cause, verdict.ranks, verdict.confidence) == (
        HangCause.SIZE_MISMATCH,
        (1,),
        Confidence.LOW,
    )
    assert verdict.summary.endswith("all have left it, and no rank is known to wait")
    alike = [rank(number, left(256), ()) for number in range(3)]
    assert explain_hang(alike).cause is HangCause.UNKNOWN
