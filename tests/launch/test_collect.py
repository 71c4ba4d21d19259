from __future__ import annotations

from typing import Any

import pytest

from tests.factories import cells, rank_record
from torchscale.launch.collect import Ending, EndingKind, Evidence, classify
from torchscale.schema.record import FailureKind, RankFailure, State

TWO = cells()[1]
ENDED = Ending(EndingKind.FINISHED, 1, "")


def failure(rank: int, kind: FailureKind, time: float = 1.0, message: str = "why\nmore") -> RankFailure:
    return RankFailure(rank=rank, kind=kind, type="SomeError", message=message, time=time)


def judge(ranks: tuple[int, ...] = (), failures: tuple[RankFailure, ...] = (), **changes: Any) -> tuple[State, str]:
    defaults: dict[str, Any] = {
        "ending": ENDED,
        "world_size": 2,
        "ranks": tuple(rank_record(TWO, rank) for rank in ranks),
        "failures": tuple(sorted(failures, key=lambda item: item.time)),
        "exit_codes": {},
        "oom_kills": 0,
    }
    return classify(Evidence(**{**defaults, **changes}))


LOST = failure(0, FailureKind.PEER_LOST)


def test_all_records_are_there() -> None:
    assert judge((0, 1), ending=Ending(EndingKind.FINISHED, 0, "")) == (State.OK, "")


def test_a_rank_that_aborts_after_its_record_is_written_has_done_its_work() -> None:
    assert judge((0, 1), exit_codes={1: -6}) == (State.OK, "")


def test_a_launch_that_is_done_when_its_time_runs_out_is_done() -> None:
    assert judge((0, 1), ending=Ending(EndingKind.TIMEOUT, None, "slow end"))[0] is State.OK


@pytest.mark.parametrize(
    ("evidence", "state", "reason"),
    [
        ({"failures": (LOST, failure(1, FailureKind.ERROR, 2.0))}, State.CRASHED, "rank 1: SomeError: why"),
        (
            {"failures": (failure(0, FailureKind.ERROR, 5.0), failure(1, FailureKind.ERROR, 4.0))},
            State.CRASHED,
            "rank 1: SomeError: why",
        ),
        ({"failures": (LOST, failure(1, FailureKind.OOM, 9.0))}, State.OOM, "rank 1: why"),
        ({"failures": (LOST,), "exit_codes": {1: -9}}, State.KILLED, "rank 1 was ended by SIGKILL"),
        ({"failures": (LOST,), "exit_codes": {1: -9}, "oom_kills": 1}, State.OOM, "the host ran out of memory"),
        ({"failures": (LOST,), "exit_codes": {1: -11}}, State.CRASHED, "rank 1 died of SIGSEGV"),
        ({"failures": (LOST,), "exit_codes": {1: -15}}, State.KILLED, "rank 1 was ended by SIGTERM"),
        ({"exit_codes": {0: -15, 1: -11}}, State.CRASHED, "rank 1 died of SIGSEGV"),
        (
            {"failures": (failure(1, FailureKind.ERROR),), "exit_codes": {0: -15}},
            State.CRASHED,
            "rank 1: SomeError: why",
        ),
        ({"failures": (LOST,), "exit_codes": {1: 3}}, State.CRASHED, "rank 1 exited with 3 and said nothing"),
        ({"failures": (LOST,)}, State.INCOMPLETE, "rank 1 left before the measurement was done"),
        (
            {"failures": (failure(1, FailureKind.LEFT_EARLY), LOST)},
            State.INCOMPLETE,
            "rank 1 left before the measurement was done",
        ),
        ({"ranks": (0,), "ending": Ending(EndingKind.FINISHED, 0, "")}, State.INCOMPLETE, "rank 1 left"),
        ({"failures": (LOST, failure(1, FailureKind.PEER_LOST))}, State.CRASHED, "rank 0: SomeError: why"),
        ({"ending": Ending(EndingKind.FINISHED, -9, "")}, State.KILLED, "torchrun was ended by SIGKILL"),
        ({"ending": Ending(EndingKind.TIMEOUT, None, "too long")}, State.TIMEOUT, "too long"),
        ({"ending": Ending(EndingKind.INTERRUPTED, None, "stopped")}, State.INTERRUPTED, "stopped"),
        ({"ending": Ending(EndingKind.NOT_STARTED, None, "no python")}, State.CRASHED, "no python"),
    ],
)
def test_the_true_cause(evidence: dict[str, Any], state: State, reason: str) -> None:
    found = judge(**evidence)
    assert found[0] is state
    assert reason in found[1]
    assert "\n" not in found[1]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"losses_finite": False}, "the loss of rank 1 was not a finite number"),
        ({"parameters_equal": False, "parameters_differing": "fc.weight (2 of 9)"}, "fc.weight (2 of 9)"),
        ({"parameters_changed": False}, "nothing was trained"),
    ],
)
def test_figures_that_cannot_be_trusted(changes: dict[str, Any], reason: str) -> None:
    ranks = (rank_record(TWO, 0), rank_record(TWO, 1, **changes))
    state, told = classify(Evidence(ENDED, 2, ranks, (), {}, 0))
    assert state is State.INVALID
    assert reason in told
