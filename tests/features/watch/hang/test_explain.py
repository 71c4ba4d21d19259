"""Verdicts on hangs whose cause is known, from records made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchscale.features.watch.hang.activity import Activity
from torchscale.features.watch.hang.collective_log import (
    CollectiveCall,
    CollectiveLog,
    ProcessGroup,
)
from torchscale.features.watch.hang.explain import explain_failure, explain_hang
from torchscale.features.watch.hang.job import RankEvidence, job_of, seems_to_wait
from torchscale.features.watch.hang.verdict import collective_label
from torchscale.features.watch.hang.without_recorder import explain_by_activity
from torchscale.schema.launch.hang import HangCause, RankCondition, StackFrame, StuckCollective
from torchscale.schema.profiles.finding import Confidence

LOOP = ("broadcast", "all_reduce", "all_gather")
ELEMENTS = {"broadcast": 64, "all_reduce": 1024, "all_gather": 8}
TORCH = "/venv/lib/python3.11/site-packages/torch"
IN_ALL_REDUCE = (
    StackFrame(file="/home/me/train.py", line=30, function="step"),
    StackFrame(file=f"{TORCH}/distributed/c10d_logger.py", line=83, function="wrapper"),
    StackFrame(file=f"{TORCH}/distributed/distributed_c10d.py", line=3014, function="all_reduce"),
)
IN_BACKWARD = (
    StackFrame(file="/home/me/train.py", line=31, function="step"),
    StackFrame(file=f"{TORCH}/_tensor.py", line=625, function="backward"),
    StackFrame(file=f"{TORCH}/autograd/graph.py", line=841, function="_engine_run_backward"),
)
IN_OWN_CODE = (
    StackFrame(file="/home/me/train.py", line=12, function="step"),
    StackFrame(file="/home/me/dataset.py", line=88, function="read"),
)
IN_LOADER = (
    StackFrame(file="/home/me/train.py", line=12, function="step"),
    StackFrame(file=f"{TORCH}/utils/data/dataloader.py", line=700, function="__next__"),
    StackFrame(file="/home/me/dataset.py", line=88, function="read"),
)
IN_TEARDOWN = (
    StackFrame(file="/home/me/train.py", line=50, function="main"),
    StackFrame(
        file=f"{TORCH}/distributed/distributed_c10d.py", line=2200, function="destroy_process_group"
    ),
)


def call(
    number: int,
    operation: str,
    *,
    elements: int | None = None,
    dtype: str = "float32",
    done: bool = True,
    group: str = "0",
    time: int | None = None,
) -> CollectiveCall:
    size = ELEMENTS[operation] if elements is None else elements
    return CollectiveCall(
        group=group,
        sequence=number,
        operation=operation,
        is_p2p=False,
        is_done=done,
        created_ns=number if time is None else time,
        input_sizes=((size,),),
        input_dtypes=(dtype,),
        backend="gloo",
    )


def looped(count: int, *, group: str = "0", done: bool = True) -> list[CollectiveCall]:
    """The first ``count`` collectives of a training loop."""
    return [
        call(number, LOOP[(number - 1) % 3], group=group, done=done)
        for number in range(1, count + 1)
    ]


def rank(
    number: int,
    calls: Sequence[CollectiveCall] | None,
    frames: tuple[StackFrame, ...] = IN_ALL_REDUCE,
    groups: dict[str, ProcessGroup] | None = None,
    **changes: object,
) -> RankEvidence:
    known = {"0": ProcessGroup("default_pg")} if groups is None else groups
    log = None if calls is None else CollectiveLog(tuple(calls), known)
    evidence = RankEvidence(number, frames=frames, log=log)
    return replace(evidence, **changes)  # type: ignore[arg-type]


def waiting(number: int, frames: tuple[StackFrame, ...] = IN_ALL_REDUCE) -> RankEvidence:
    """A rank that waits in all_reduce #20."""
    return rank(number, [*looped(19), call(20, "all_reduce", done=False)], frames)


def test_a_rank_without_a_dump_may_be_missing_beside_those_that_are_named() -> None:
    ranks = [waiting(0), rank(1, looped(19), IN_OWN_CODE), waiting(2), waiting(3)]
    assert explain_hang(ranks).confidence is Confidence.HIGH
    ranks[3] = rank(3, None, ())
    found = explain_hang(ranks)
    assert (found.ranks, found.confidence) == ((1,), Confidence.MEDIUM)
    assert "whether rank 3 called it is not known" in found.evidence


@pytest.mark.parametrize("world_size", [2, 4, 8])
@pytest.mark.parametrize(
    ("frames", "cause", "where"),
    [
        (IN_OWN_CODE, HangCause.RANK_MISSING, "it is in dataset.py:88 `read`"),
        (IN_LOADER, HangCause.LOADER, "it is loading data in dataset.py:88 `read`"),
        (IN_TEARDOWN, HangCause.TEARDOWN, "it is in teardown in train.py:50 `main`"),
    ],
)
def test_the_rank_that_never_called_is_named_with_its_line(
    world_size: int, frames: tuple[StackFrame, ...], cause: HangCause, where: str
) -> None:
    for missing in range(world_size):
        others = [waiting(number, IN_BACKWARD) for number in range(world_size) if number != missing]
        verdict = explain_hang([*others, rank(missing, looped(19), frames)])
        assert (verdict.cause, verdict.ranks, verdict.confidence) == (
            cause,
            (missing,),
            Confidence.HIGH,
        )
        assert verdict.collective is not None and verdict.collective.sequence == 20
        assert verdict.summary == (
            f"all_reduce #20 (gradients, 4.00 KiB): rank {missing} never called it; {where}"
        )
        assert [position.rank for position in verdict.positions] == list(range(world_size))
        line = where.rpartition(" in ")[2]
        assert (
            f"rank {missing}: at {line}; its last collective was broadcast #19" in verdict.evidence
        )


@pytest.mark.parametrize(
    ("wrong", "cause", "said"),
    [
        (
            call(20, "all_gather", done=False),
            HangCause.COLLECTIVE_MISMATCH,
            "all_gather of 32.0 B float32",
        ),
        (
            call(20, "all_reduce", elements=512, done=False),
            HangCause.SIZE_MISMATCH,
            "all_reduce of 2.00 KiB float32",
        ),
        (
            call(20, "all_reduce", dtype="float64", done=False),
            HangCause.DTYPE_MISMATCH,
            "all_reduce of 8.00 KiB float64",
        ),
    ],
)
@pytest.mark.parametrize(
    ("world_size", "confidence"), [(2, Confidence.MEDIUM), (4, Confidence.HIGH)]
)
def test_the_rank_whose_call_differs_is_named(
    wrong: CollectiveCall, cause: HangCause, said: str, world_size: int, confidence: Confidence
) -> None:
    for odd in range(world_size):
        ranks = [waiting(number) for number in range(world_size) if number != odd]
        verdict = explain_hang([*ranks, rank(odd, [*looped(19), wrong])])
        assert (verdict.cause, verdict.ranks, verdict.confidence) == (cause, (odd,), confidence)
        assert f"rank {odd} called {said}" in verdict.summary
        assert verdict.collective is not None and verdict.collective.operation == "all_reduce"


def test_two_ranks_without_a_history_are_both_named() -> None:
    first = rank(0, [call(1, "all_reduce", done=False)])
    second = rank(1, [call(1, "broadcast", done=False)])
    verdict = explain_hang([first, second])
    assert (verdict.ranks, verdict.confidence) == ((0, 1), Confidence.LOW)
    assert "nothing says which of them is wrong" in verdict.evidence


def test_swapped_collectives_are_an_order_where_both_were_called() -> None:
    first = rank(
        0, [*looped(19), call(20, "all_reduce", done=False), call(21, "all_gather", done=False)]
    )
    second = rank(
        1, [*looped(19), call(20, "all_gather", done=False), call(21, "all_reduce", done=False)]
    )
    verdict = explain_hang([first, second])
    assert (verdict.cause, verdict.ranks) == (HangCause.ORDER, (1,))
    assert verdict.confidence is Confidence.MEDIUM, (
        "two ranks: only earlier rounds say which order is right"
    )


@pytest.mark.parametrize(
    ("condition", "cause"),
    [(RankCondition.STOPPED, HangCause.RANK_STOPPED), (RankCondition.GONE, HangCause.RANK_GONE)],
)
def test_a_rank_that_is_stopped_or_has_ended_is_the_cause(
    condition: RankCondition, cause: HangCause
) -> None:
    silent = rank(2, None, (), condition=condition, pid=4711)
    verdict = explain_hang([waiting(0), waiting(1), silent, waiting(3)])
    assert (verdict.cause, verdict.ranks, verdict.confidence) == (cause, (2,), Confidence.HIGH)
    assert verdict.collective is not None and verdict.collective.sequence == 20


def pairs(number: int) -> dict[str, ProcessGroup]:
    """The default group and a rank's group of two."""
    first = number // 2 * 2
    return {
        "0": ProcessGroup("default_pg", (0, 1, 2, 3)),
        str(1 + number // 2): ProcessGroup("undefined", (first, first + 1)),
    }


def test_a_victim_in_another_group_is_not_named() -> None:
    """Ranks 2 and 3 wait for 0 and 1; rank 0 waits for rank 1 in their group; rank 1 is the one to
    look at."""
    own = looped(9, group="1")
    evidence = [
        rank(0, [*own, call(10, "broadcast", group="1", done=False)], groups=pairs(0)),
        rank(1, own, IN_OWN_CODE, groups=pairs(1)),
        *(
            rank(n, [*looped(9, group="2"), call(4, "all_reduce", done=False)], groups=pairs(n))
            for n in (2, 3)
        ),
    ]
    verdict = explain_hang(evidence)
    assert (verdict.cause, verdict.ranks, verdict.confidence) == (
        HangCause.RANK_MISSING,
        (1,),
        Confidence.HIGH,
    )
    assert verdict.collective is not None
    assert (verdict.collective.group, verdict.collective.group_ranks) == ("1", (0, 1))
    assert verdict.summary.startswith(
        "broadcast #10 (256 B, group 1 of ranks 0 and 1): rank 1 never called it"
    )


def test_ranks_that_wait_for_each_other_in_two_groups_call_in_different_orders() -> None:
    groups = {"0": ProcessGroup("default_pg", (0, 1)), "1": ProcessGroup("mesh_dp", (0, 1))}
    verdict = explain_hang(
        [
            rank(0, [call(5, "all_reduce", done=False)], groups=groups),
            rank(1, [call(3, "all_reduce", group="1", done=False)], groups=groups),
        ]
    )
    assert (verdict.cause, verdict.ranks) == (HangCause.ORDER, (0, 1))
    assert "different orders" in verdict.summary
    assert verdict.confidence is Confidence.LOW
    assert verdict.collective is not None
    assert verdict.collective.group == "mesh_dp", "the one that was called first"


def test_a_rank_that_left_its_loop_for_another_group_is_named() -> None:
    """Rank 0 caught an exception and went on to the next collective of the default group."""
    groups = {"0": ProcessGroup("default_pg", (0, 1)), "1": ProcessGroup("undefined", (0, 1))}
    rounds: list[CollectiveCall] = []
    for step in range(4):
        rounds += [
            call(2 * step + 1, "broadcast", group="1", time=10 * step + 1),
            call(2 * step + 2, "all_gather", group="1", time=10 * step + 2),
            call(step + 1, "all_reduce", time=10 * step + 3),
        ]
    rounds.append(call(9, "broadcast", group="1", time=41))
    victim = [*rounds, call(10, "all_gather", group="1", done=False, time=42)]
    leaver = [*rounds, call(5, "all_reduce", done=False, time=42)]
    verdict = explain_hang([rank(0, leaver, groups=groups), rank(1, victim, groups=groups)])
    assert (verdict.cause, verdict.ranks, verdict.confidence) == (
        HangCause.ORDER,
        (0,),
        Confidence.MEDIUM,
    )
    assert verdict.collective is not None
    assert (verdict.collective.group, verdict.collective.sequence) == ("1", 10)


def test_gloo_ends_a_rank_that_receives_too_much() -> None:
    dead = rank(1, None, (), condition=RankCondition.GONE, size_error=(1024, 512))
    verdict = explain_hang([waiting(0), dead])
    assert (verdict.cause, verdict.ranks, verdict.confidence) == (
        HangCause.SIZE_MISMATCH,
        (1,),
        Confidence.MEDIUM,
    )
    assert "rank 1 received 1.00 KiB where its call expects 512 B" in verdict.summary
    assert explain_hang([waiting(0), dead, waiting(2)]).confidence is Confidence.HIGH
    wide = rank(0, [*looped(19), call(20, "all_reduce", dtype="float64", done=False)])
    verdict = explain_hang([wide, dead])
    assert (verdict.cause, verdict.ranks) == (HangCause.DTYPE_MISMATCH, (0,)), (
        "the rank that sent too much"
    )
    assert explain_hang([wide, dead, waiting(2), waiting(3)]).ranks == (0,)
    unseen = explain_hang([waiting(0), dead, waiting(2), rank(3, None, ())])
    assert (unseen.ranks, unseen.confidence) == ((1, 3), Confidence.LOW), "rank 3 may have sent it"
    unknown = explain_hang([rank(0, [call(1, "all_reduce", done=False)]), dead])
    assert (unknown.ranks, unknown.confidence) == ((0, 1), Confidence.LOW)
    failed = explain_failure([waiting(0), dead])
    assert failed is not None and failed.ranks == (1,)


def in_recv(line: int) -> tuple[StackFrame, ...]:
    own = StackFrame(file="/home/me/train.py", line=line, function="step")
    return own, StackFrame(
        file=f"{TORCH}/distributed/distributed_c10d.py", line=2600, function="recv"
    )


def test_a_rank_that_waits_to_receive_is_a_victim() -> None:
    """gloo records no sends and receives: only the stack shows them."""
    receiving = rank(1, looped(19), in_recv(40))
    verdict = explain_hang([waiting(0), receiving, rank(2, looped(19), IN_OWN_CODE), waiting(3)])
    assert (verdict.ranks, verdict.confidence) == ((2,), Confidence.HIGH)
    alone = explain_hang([waiting(0), receiving, waiting(2)])
    assert (alone.ranks, alone.confidence) == ((1,), Confidence.LOW), "it waits for somebody"
    assert alone.summary.endswith("rank 1 never called it; it is in recv, at train.py:40 `step`")


def test_a_collective_that_all_have_called_names_nobody() -> None:
    verdict = explain_hang([waiting(0), waiting(1)])
    assert (verdict.cause, verdict.ranks, verdict.confidence) == (
        HangCause.UNKNOWN,
        (),
        Confidence.LOW,
    )
    assert "every rank has called it" in verdict.summary


def test_most_ranks_missing_is_less_sure() -> None:
    others = [rank(number, looped(19), IN_OWN_CODE) for number in (1, 2, 3)]
    verdict = explain_hang([waiting(0), *others])
    assert (verdict.ranks, verdict.confidence) == ((1, 2, 3), Confidence.MEDIUM)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ((12, 12), "; they are in own.py:12 `work`"),
        ((12, 34), "; they are in own.py:12 `work` and own.py:34 `work`"),
        ((12, 34, 56), "never called it"),
    ],
)
def test_missing_ranks_in_up_to_two_places_are_told_with_them(
    lines: tuple[int, ...], said: str
) -> None:
    """More would be a list that nobody reads: the evidence has a line for each rank."""
    missing = [
        rank(number, looped(19), (StackFrame(file="/home/me/own.py", line=line, function="work"),))
        for number, line in enumerate(lines)
    ]
    others = [waiting(number) for number in range(len(lines), 2 * len(lines))]
    assert explain_hang([*missing, *others]).summary.endswith(said)


def test_a_difference_in_a_collective_that_completed_is_found() -> None:
    """A broadcast's root does not wait, so the ranks part later than their calls differ."""
    first = [*looped(18), call(19, "broadcast"), call(20, "all_reduce", done=False)]
    second = [*looped(18), call(19, "all_reduce", done=False)]
    verdict = explain_hang([rank(0, first), rank(1, second), rank(2, first), rank(3, first)])
    assert (verdict.cause, verdict.ranks) == (HangCause.COLLECTIVE_MISMATCH, (1,))
    assert verdict.collective is not None and verdict.collective.sequence == 19


def test_a_stack_decides_where_there_is_no_recorder() -> None:
    blind = [rank(0, None), rank(1, None, IN_OWN_CODE), rank(2, None)]
    verdict = explain_hang(blind)
    assert (verdict.cause, verdict.ranks, verdict.confidence) == (
        HangCause.RANK_MISSING,
        (1,),
        Confidence.MEDIUM,
    )
    assert verdict.summary == "all_reduce: rank 1 is not in it; it is in dataset.py:88 `read`"
    assert verdict.collective is not None and verdict.collective.sequence is None
    assert [position.collective for position in verdict.positions] == [
        "all_reduce",
        "",
        "all_reduce",
    ]
    assert verdict.evidence == (
        "ranks 0 and 2: in all_reduce, at train.py:30 `step`",
        "rank 1: at dataset.py:88 `read`",
    )


def test_a_collective_whose_operation_nobody_knows_is_told_by_its_number() -> None:
    """As from the lines of a watchdog: who is missing is known all the same."""
    unnamed = replace(call(20, "all_reduce", done=False), operation="", input_sizes=())
    ranks = [rank(number, [*looped(19), unnamed]) for number in range(2)]
    verdict = explain_hang([*ranks, rank(2, looped(19), IN_OWN_CODE)])
    assert verdict.ranks == (2,)
    assert verdict.summary.startswith("collective #20: rank 2 never called it")
    assert verdict.positions[0].collective == "collective #20"
    assert verdict.evidence[0] == "ranks 0 and 1: in collective #20, at train.py:30 `step`"


def test_ranks_in_the_backward_pass_wait_for_one_that_is_not() -> None:
    verdict = explain_hang([rank(0, None, IN_BACKWARD), rank(1, None, IN_OWN_CODE)])
    assert (verdict.ranks, verdict.confidence) == ((1,), Confidence.LOW)


BUSY, IDLE = Activity.BUSY, Activity.IDLE
IN_BARRIER = (
    StackFrame(file="/home/me/train.py", line=50, function="main"),
    StackFrame(file=f"{TORCH}/distributed/distributed_c10d.py", line=5300, function="barrier"),
)
IN_LOOP = (StackFrame(file="/home/me/train.py", line=45, function="main"), *IN_BACKWARD)
LOOPS = {50: None, 45: None, 31: (30, 33)}
"""Line of the user's code → its loop."""


def with_loops(
    number: int, frames: tuple[StackFrame, ...], activity: Activity | None = IDLE
) -> RankEvidence:
    """A rank without a recorder whose sources are known."""
    loops = tuple(LOOPS.get(frame.line) for frame in frames)
    return rank(number, None, frames, activity=activity, loops=loops)


def test_a_busy_rank_without_a_stack_is_named_where_all_others_sleep() -> None:
    verdict = explain_hang(
        [rank(number, None, (), activity=BUSY if number == 2 else IDLE) for number in range(4)]
    )
    assert (verdict.cause, verdict.ranks, verdict.confidence) == (
        HangCause.RANK_MISSING,
        (2,),
        Confidence.LOW,
    )
    assert verdict.summary == (
        "rank 2 is busy while all others sleep: it has not arrived where the others wait"
    )
    waits = rank(0, None, IN_ALL_REDUCE, activity=IDLE)
    found = explain_by_activity(job_of([waits, rank(1, None, (), activity=BUSY)], ()))
    assert found is not None and found.ranks == (1,), "a stack that waits does not contradict that"


@pytest.mark.parametrize(
    ("busy_frames", "idle_frames"),
    [(IN_ALL_REDUCE, ()), ((), IN_OWN_CODE), ((), IN_LOADER), (IN_OWN_CODE, IN_LOADER)],
)
def test_a_busy_rank_is_not_named_against_a_stack(
    busy_frames: tuple[StackFrame, ...], idle_frames: tuple[StackFrame, ...]
) -> None:
    """It waits busily, or a rank that sleeps does not wait for others."""
    verdict = explain_hang(
        [rank(0, None, idle_frames, activity=IDLE), rank(1, None, busy_frames, activity=BUSY)]
    )
    assert verdict.ranks != (1,)


def test_a_rank_that_computes_in_the_backward_pass_does_not_wait_there() -> None:
    stuck = [
        rank(number, None, IN_BACKWARD, activity=BUSY if number == 1 else IDLE)
        for number in range(3)
    ]
    verdict = explain_hang(stuck)
    assert (verdict.ranks, verdict.confidence) == ((1,), Confidence.MEDIUM)
    assert explain_hang([replace(one, activity=None) for one in stuck]).cause is HangCause.UNKNOWN


@pytest.mark.parametrize(
    ("gone", "cause", "named", "text"),
    [
        (
            (1,),
            HangCause.TEARDOWN,
            (1,),
            "backward pass: rank 1 has left the loop before ranks 0 and 2, and waits in barrier, "
            "at train.py:50 `main`",
        ),
        (
            (0, 2),
            HangCause.RANK_MISSING,
            (1,),
            "barrier: rank 1 waits in the backward pass, at train.py:31 `step`, in a loop that "
            "ranks 0 and 2 have left",
        ),
    ],
)
def test_ranks_that_left_the_loop_are_told_from_those_in_it(
    gone: tuple[int, ...], cause: HangCause, named: tuple[int, ...], text: str
) -> None:
    ranks = [with_loops(number, IN_BARRIER if number in gone else IN_LOOP) for number in range(3)]
    verdict = explain_hang(ranks)
    assert (verdict.cause, verdict.ranks, verdict.confidence, verdict.summary) == (
        cause,
        named,
        Confidence.MEDIUM,
        text,
    )
    unsure = explain_hang([replace(one, activity=None) for one in ranks])
    assert (unsure.ranks, unsure.confidence) == (named, Confidence.LOW), (
        "they may compute in the backward pass"
    )


def test_nobody_is_named_where_sources_do_not_say_who_left() -> None:
    ranks = [with_loops(0, IN_LOOP), with_loops(1, IN_BARRIER), with_loops(2, IN_LOOP)]
    assert explain_hang([replace(one, loops=()) for one in ranks]).cause is HangCause.UNKNOWN


def test_a_rank_that_computes_while_another_waits_at_the_end_is_late() -> None:
    """It may be slow, and the barrier then waits for it as it should."""
    verdict = explain_hang([with_loops(0, IN_LOOP, BUSY), with_loops(1, IN_BARRIER)])
    assert (verdict.cause, verdict.ranks) == (HangCause.RANK_MISSING, (0,))


def test_a_rank_in_its_own_code_is_missing_and_not_those_in_the_backward_pass() -> None:
    ranks = [
        rank(0, None),
        rank(1, None, IN_OWN_CODE),
        rank(2, None, IN_BACKWARD),
        rank(3, None, IN_BACKWARD),
    ]
    assert explain_hang(ranks).ranks == (1,)


def test_a_rank_that_did_not_answer_is_named_with_low_confidence() -> None:
    verdict = explain_hang([waiting(0), rank(1, None, (), problem="it did not answer"), waiting(2)])
    assert (verdict.cause, verdict.ranks, verdict.confidence) == (
        HangCause.RANK_MISSING,
        (1,),
        Confidence.LOW,
    )
    assert any("it did not answer" in line for line in verdict.evidence)
    located = explain_hang([waiting(0), rank(1, None, IN_OWN_CODE), waiting(2)])
    assert (located.ranks, located.confidence) == ((1,), Confidence.MEDIUM), (
        "its stack is in no collective"
    )


def test_a_single_rank_is_described() -> None:
    verdict = explain_hang([rank(0, None, IN_OWN_CODE)])
    assert verdict.summary == "rank 0 is in dataset.py:88 `read`"
    assert explain_hang([rank(0, None, IN_LOADER)]).cause is HangCause.LOADER
    assert explain_hang([rank(0, None, ())]).cause is HangCause.UNKNOWN


def test_a_failure_has_an_autopsy_only_if_calls_differ() -> None:
    wrong = [*looped(19), call(20, "all_reduce", elements=7, done=False)]
    verdict = explain_failure([waiting(0), waiting(1), rank(2, wrong)])
    assert verdict is not None
    assert (verdict.cause, verdict.ranks) == (HangCause.SIZE_MISMATCH, (2,))
    assert explain_failure([waiting(0), rank(1, looped(19))]) is None
    assert explain_failure([rank(0, None), rank(1, None)]) is None


def test_a_job_that_may_only_be_slow_names_nobody() -> None:
    verdict = explain_hang([waiting(0), rank(1, looped(19), IN_OWN_CODE)], moved_seconds_ago=2.0)
    assert (verdict.cause, verdict.ranks) == (HangCause.UNKNOWN, ())
    assert verdict.summary == "the last progress was 2.00 s earlier, so the ranks may not hang"
    assert "rank 0: in all_reduce #20, at train.py:30 `step`" in verdict.evidence, (
        "where they are is still said"
    )


def test_notes_are_part_of_the_evidence() -> None:
    assert (
        explain_hang([waiting(0), rank(1, looped(19))], ["NCCL RAS: rank 1"]).evidence[-1]
        == "NCCL RAS: rank 1"
    )


def test_labels() -> None:
    plain = StuckCollective(operation="barrier")
    assert collective_label(plain) == "barrier"
    counted = [plain.model_copy(update={"elements": count}) for count in (0, 1, 6400)]
    assert [collective_label(one) for one in counted] == [
        "barrier (0 elements)",
        "barrier (1 element)",
        "barrier (6,400 elements)",
    ]
    assert collective_label(plain.model_copy(update={"payload_bytes": 0})) == "barrier (0 B)"
    assert collective_label(plain.model_copy(update={"sequence": 0})) == "barrier #0"
    unlisted = plain.model_copy(update={"group": "mesh_dp"})
    assert collective_label(unlisted) == "barrier (group mesh_dp)"
    full = StuckCollective(
        operation="all_reduce",
        sequence=4312,
        payload_bytes=25 << 20,
        purpose="gradients",
        group="mesh_dp",
        group_ranks=(0, 2),
    )
    assert (
        collective_label(full)
        == "all_reduce #4312 (gradients, 25.0 MiB, group mesh_dp of ranks 0 and 2)"
    )


@given(
    st.lists(
        st.lists(
            st.builds(
                call,
                st.integers(1, 6),
                st.sampled_from(LOOP),
                elements=st.sampled_from([None, 1]),
                done=st.booleans(),
                group=st.sampled_from(["0", "1"]),
            ),
            max_size=8,
        ),
        min_size=1,
        max_size=4,
    ),
    st.data(),
)
def test_any_evidence_gives_a_verdict(
    logs: list[list[CollectiveCall]], data: st.DataObject
) -> None:
    stacks = [(), IN_ALL_REDUCE, IN_BACKWARD, IN_OWN_CODE, IN_LOADER, IN_TEARDOWN]
    evidence = [
        rank(
            number,
            data.draw(st.sampled_from([calls, None])),
            data.draw(st.sampled_from(stacks)),
            {
                "0": ProcessGroup("default_pg"),
                "1": ProcessGroup("undefined", tuple(range(len(logs) + 1))),
            },
            condition=data.draw(st.sampled_from(list(RankCondition))),
            activity=data.draw(st.sampled_from([None, *Activity])),
        )
        for number, calls in enumerate(logs)
    ]
    verdict = explain_hang(evidence)
    assert verdict.summary and "\n" not in verdict.summary
    assert set(verdict.ranks) <= set(range(len(logs)))
    assert verdict.cause is HangCause.UNKNOWN or verdict.ranks
    assert verdict.cause is not HangCause.UNKNOWN or verdict.confidence is Confidence.LOW
    assert verdict == explain_hang(list(reversed(evidence))), "the order of ranks does not matter"


def test_of_several_ranks_that_are_missing_the_one_furthest_behind_is_named() -> None:
    """The others may wait for it in ways that no recorder shows."""
    behind = rank(1, looped(10), IN_OWN_CODE)
    verdict = explain_hang([waiting(0), behind, rank(2, looped(19), IN_OWN_CODE), waiting(3)])
    assert (verdict.cause, verdict.ranks) == (HangCause.RANK_MISSING, (1,))


def test_the_rank_that_differs_comes_first_in_the_sentence() -> None:
    due, other = (call(20, name, done=False) for name in ("all_reduce", "broadcast"))
    four = [rank(number, [*looped(19), other if number == 2 else due]) for number in range(4)]
    summary = explain_hang(four).summary
    assert summary.index("rank 2 called broadcast") < summary.index("ranks 0, 1 and 3 called")
    two = explain_hang(four[1:3])
    assert two.ranks == (2,)
    assert two.summary.endswith("; rank 2 differs from earlier rounds")


def test_ranks_that_call_different_things_are_the_cause_though_another_is_stopped() -> None:
    """A rank that somebody stopped to look at it does not make the others differ."""
    due, other = (call(20, name, done=False) for name in ("all_reduce", "broadcast"))
    calls = (due, due, other, due)
    ranks = [rank(number, [*looped(19), one]) for number, one in enumerate(calls)]
    stopped = replace(ranks[3], condition=RankCondition.STOPPED)
    verdict = explain_hang([*ranks[:3], stopped])
    assert (verdict.cause, verdict.ranks) == (HangCause.COLLECTIVE_MISMATCH, (2,))


def test_without_a_recorder_the_collective_is_the_one_that_most_ranks_are_in() -> None:
    in_barrier = (
        IN_ALL_REDUCE[0],
        StackFrame(file=f"{TORCH}/distributed/distributed_c10d.py", line=4800, function="barrier"),
    )
    verdict = explain_hang(
        [
            rank(0, None, in_barrier),
            rank(1, None),
            rank(2, None),
            rank(3, None, IN_OWN_CODE),
        ]
    )
    assert verdict.ranks == (3,)
    assert verdict.collective is not None
    assert verdict.collective.operation == "all_reduce"


def test_a_difference_in_a_collective_that_all_have_left_is_found() -> None:
    """As a broadcast and an all-reduce of equal sizes may complete by chance, and what comes after
    them does not."""
    last = call(20, "all_reduce", done=False)
    calls = [[*looped(18), call(19, "all_reduce"), last] for _ in range(4)]
    calls[2][18] = call(19, "broadcast")
    verdict = explain_hang([rank(number, items) for number, items in enumerate(calls)])
    assert (verdict.cause, verdict.ranks) == (HangCause.COLLECTIVE_MISMATCH, (2,))
    assert verdict.collective is not None and verdict.collective.sequence == 19


@pytest.mark.parametrize(("count", "words"), [(1, "rank 0 is in"), (2, "ranks 0 and 1 are in")])
def test_where_no_rank_waits_those_that_end_are_told(count: int, words: str) -> None:
    ranks = [rank(number, None, IN_TEARDOWN) for number in range(count)]
    verdict = explain_hang(ranks)
    assert verdict.cause is HangCause.TEARDOWN
    assert f"no rank waits in a collective; {words} teardown in train.py:50" in verdict.summary


IN_JOINING = (
    StackFrame(file="/home/me/train.py", line=8, function="main"),
    StackFrame(
        file=f"{TORCH}/distributed/distributed_c10d.py", line=1600, function="init_process_group"
    ),
)


@pytest.mark.parametrize(
    ("frames", "waits"),
    [(IN_ALL_REDUCE, True), (IN_BACKWARD, True), (IN_JOINING, True), (IN_OWN_CODE, False)],
)
def test_a_rank_without_a_recorder_waits_where_its_stack_says_so(
    frames: tuple[StackFrame, ...], waits: bool
) -> None:
    """In the backward pass, in a collective, or while it joins a group: it is a victim there, and
    not the one that the others wait for."""
    job = job_of([waiting(0), rank(1, None, frames)], ())
    assert seems_to_wait(job, 1) is waits


def test_a_rank_that_ended_comes_before_a_difference_that_nobody_waits_in() -> None:
    """A broadcast and an all-reduce completed by chance; what the ranks wait for now is the process
    that is gone."""
    last = call(20, "all_reduce", done=False)
    calls = [[*looped(18), call(19, "all_reduce"), last] for _ in range(3)]
    calls[2][18] = call(19, "broadcast")
    gone = rank(3, None, (), condition=RankCondition.GONE)
    verdict = explain_hang([*(rank(number, items) for number, items in enumerate(calls)), gone])
    assert (verdict.cause, verdict.ranks) == (HangCause.RANK_GONE, (3,))


def test_a_collective_of_empty_tensors_has_no_size() -> None:
    """Zero bytes would read like a measured size."""
    waits = rank(0, [*looped(19), call(20, "all_reduce", elements=0, done=False)])
    verdict = explain_hang([waits, rank(1, looped(19), IN_OWN_CODE)])
    assert verdict.collective is not None and verdict.collective.payload_bytes is None
    assert verdict.summary.startswith("all_reduce #20: rank 1")


def test_a_rank_that_left_nothing_is_not_said_to_have_left_what_cannot_be_read() -> None:
    verdict = explain_hang([waiting(0), rank(1, None, ()), waiting(2)])
    assert verdict.summary.endswith("rank 1 left no dump")


@pytest.mark.parametrize("frames", [IN_OWN_CODE, ()])
@pytest.mark.parametrize("activities", [(None, None), (Activity.IDLE, Activity.BUSY)])
def test_a_rank_that_has_called_the_collective_is_not_accused_by_its_stack(
    frames: tuple[StackFrame, ...], activities: tuple[Activity | None, Activity | None]
) -> None:
    """It called an asynchronous all-reduce and computes meanwhile."""
    ranks = [replace(waiting(0), activity=activities[0])]
    ranks.append(replace(waiting(1, frames), activity=activities[1]))
    verdict = explain_hang(ranks)
    assert (verdict.cause, verdict.ranks) == (HangCause.UNKNOWN, ())


def test_ranks_that_may_compute_in_the_backward_pass_make_a_verdict_unsure() -> None:
    """Whether they wait there is known where all of them sleep, and only if another rank shows
    that there is something to wait for."""
    own, behind = rank(1, None, IN_OWN_CODE), rank(2, None, IN_BACKWARD)
    mixed = [rank(0, None), own, behind, replace(behind, rank=3)]
    assert explain_hang(mixed).confidence is Confidence.LOW
    asleep = [replace(one, activity=Activity.IDLE) for one in mixed]
    assert explain_hang(asleep).confidence is Confidence.MEDIUM
    nobody_waits = [replace(one, activity=Activity.IDLE) for one in (own, behind)]
    verdict = explain_hang(nobody_waits)
    assert (verdict.ranks, verdict.confidence) == ((1,), Confidence.LOW)


@pytest.mark.parametrize(
    ("inside", "outside", "said", "confidence"),
    [
        (1, 1, "rank 1 is not in it", Confidence.MEDIUM),
        (2, 2, "ranks 2 and 3 are not in it", Confidence.MEDIUM),
        (1, 2, "ranks 1 and 2 are not in it", Confidence.LOW),
    ],
)
def test_those_outside_of_a_collective_are_less_surely_wrong_where_they_are_the_most(
    inside: int, outside: int, said: str, confidence: Confidence
) -> None:
    ranks = [rank(number, None) for number in range(inside)]
    ranks += [rank(inside + number, None, IN_OWN_CODE) for number in range(outside)]
    verdict = explain_hang(ranks)
    assert verdict.summary.startswith(f"all_reduce: {said}; ")
    assert verdict.confidence is confidence


def test_a_rank_whose_stack_is_not_known_is_not_said_to_be_elsewhere() -> None:
    """Where it is nobody saw: only the others' wait speaks against it."""
    verdict = explain_hang([rank(0, None), rank(1, None), rank(2, None, ())])
    assert (verdict.ranks, verdict.confidence) == ((2,), Confidence.LOW)
    assert verdict.summary == "all_reduce: rank 2 left no dump"


def test_the_purpose_of_a_collective_is_told_by_a_rank_that_is_in_it() -> None:
    """Not by one that waits elsewhere: here the first rank is in a barrier, all others in the
    all-reduce of a backward pass."""
    in_hook = (*IN_BACKWARD, *IN_ALL_REDUCE[1:])
    ranks = [rank(0, None, IN_BARRIER), rank(1, None, in_hook), rank(2, None, in_hook)]
    verdict = explain_hang([*ranks, rank(3, None, IN_OWN_CODE)])
    assert verdict.summary.startswith("all_reduce (gradients): rank 3 is not in it")


def test_ranks_that_wait_in_one_place_or_in_three_name_nobody() -> None:
    """Nothing says which of them is wrong."""
    same = [with_loops(number, IN_BARRIER) for number in range(3)]
    assert explain_hang(same).cause is HangCause.UNKNOWN
    three = [*same[:1], with_loops(1, IN_LOOP), rank(2, None, IN_JOINING, activity=IDLE)]
    assert explain_hang(three).cause is HangCause.UNKNOWN


def test_of_two_equal_sides_the_one_that_left_the_loop_is_named() -> None:
    """The other still has work that both began."""
    verdict = explain_hang([with_loops(0, IN_LOOP), with_loops(1, IN_BARRIER)])
    assert (verdict.cause, verdict.ranks) == (HangCause.TEARDOWN, (1,))
    assert verdict.evidence[0] == (
        "rank 1 may have had fewer batches, returned early or caught an exception"
    )


def test_ranks_that_load_in_several_places_are_named_without_one() -> None:
    """And with less confidence where a rank's stack is not known: it may be the cause."""
    elsewhere = (*IN_LOADER[:2], StackFrame(file="/home/me/other.py", line=5, function="read"))
    ranks = [rank(0, None, IN_LOADER), rank(1, None, elsewhere)]
    verdict = explain_hang(ranks)
    assert (verdict.ranks, verdict.confidence) == ((0, 1), Confidence.MEDIUM)
    assert verdict.summary == "no rank waits in a collective; ranks 0 and 1 are loading data"
    unsure = explain_hang([ranks[0], rank(1, None, ())])
    assert (unsure.ranks, unsure.confidence) == ((0,), Confidence.LOW)


def test_a_hang_that_nobody_is_named_for_says_where_the_first_ranks_are() -> None:
    """Four of them: the evidence has a line for each place."""
    stacks = [(StackFrame(file="/home/me/own.py", line=n, function="f"),) for n in range(9, 4, -1)]
    verdict = explain_hang([rank(number, None, stack) for number, stack in enumerate(stacks)])
    assert verdict.summary == (
        "no rank is known to wait in a collective; rank 0 is in own.py:9 `f`; rank 1 is in "
        "own.py:8 `f`; rank 2 is in own.py:7 `f`; rank 3 is in own.py:6 `f`"
    )
    unseen = explain_hang([rank(0, None, ()), rank(1, None, ())])
    assert unseen.summary == "no rank is known to wait in a collective"


@pytest.mark.parametrize(
    ("description", "callers", "is_doubtful"),
    [("undefined", 1, False), ("undefined", 2, True), ("default_pg", 2, False)],
)
def test_ranks_that_may_be_of_several_groups_are_said_to(
    description: str, callers: int, is_doubtful: bool
) -> None:
    """One rank is of one group, and there is one default group."""
    groups = {"1": ProcessGroup(description, (0, 1, 2), is_inferred=True)}
    waits = [call(1, "all_reduce", group="1", done=False)]
    ranks = [
        rank(number, waits if number < callers else [], IN_OWN_CODE, groups) for number in range(3)
    ]
    verdict = explain_hang(ranks)
    assert verdict.ranks == tuple(range(callers, 3))
    assert verdict.confidence is Confidence.LOW, "that they are of one group is inferred"
    told = [line for line in verdict.evidence if line.startswith("nothing proves")]
    said = "nothing proves that ranks 0 and 1 are of one group 1"
    assert told == ([said] if is_doubtful else [])


def test_a_rank_in_several_collectives_is_shown_in_two_of_them() -> None:
    groups = {str(n): ProcessGroup("undefined", (0, 1)) for n in range(1, 4)}
    calls = [call(1, "all_reduce", group=str(n), done=False, time=n) for n in range(1, 4)]
    verdict = explain_hang([rank(0, calls, groups=groups), rank(1, [], IN_OWN_CODE, groups)])
    assert verdict.positions[0].collective == (
        "all_reduce #1 of group 1 and all_reduce #1 of group 2"
    )


def test_the_last_collective_of_a_rank_is_no_send() -> None:
    """Sends are counted apart from the collectives that are compared."""
    sent = replace(call(7, "broadcast"), is_p2p=True)
    verdict = explain_hang([waiting(0), rank(1, [*looped(19), sent], IN_OWN_CODE)])
    assert any("its last collective was broadcast #19" in line for line in verdict.evidence)


def test_a_rank_that_waits_busily_where_all_wait_is_not_named() -> None:
    """Some backends poll while they wait."""
    ranks = [rank(0, None, activity=IDLE), rank(1, None, activity=BUSY)]
    assert explain_hang(ranks).cause is HangCause.UNKNOWN


def test_where_all_that_are_missing_wait_themselves_nobody_is_named() -> None:
    """A rank without a recorder whose stack shows a wait."""
    silent = explain_hang([waiting(0), rank(1, None, IN_ALL_REDUCE)])
    assert silent.summary.endswith("no rank can be named")
