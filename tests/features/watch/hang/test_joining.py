"""Ranks that wait for others before the first collective, and torchrun for other nodes."""

from __future__ import annotations

import pytest

from torchscale.features.watch.hang.joining import (
    Joining,
    Meeting,
    explain_joining,
    explain_meeting,
)
from torchscale.schema.launch.hang import Autopsy, HangCause, StackFrame
from torchscale.schema.profiles.finding import Confidence

STACK = (
    StackFrame(file="/home/me/init_wait.py", line=3, function="main"),
    StackFrame(file="/x/site-packages/torch/distributed/c10d.py", line=9, function="wrapper"),
)


def _joining(*ranks: int, of: int = 4, address: str = "127.0.0.1:29876") -> list[Joining]:
    return [Joining(rank, of, address, STACK) for rank in ranks]


def _explained(
    joining: list[Joining],
    others: dict[int, str] | None = None,
    ended: dict[int, str] | None = None,
) -> Autopsy:
    found = explain_joining(joining, others or {}, ended or {}, ("note",))
    assert found is not None
    return found


def test_one_rank_that_is_not_there_has_not_joined() -> None:
    found = _explained(_joining(2, 0, 1))

    assert found.summary == (
        "ranks 0-2 wait in init_process_group at init_wait.py:3 (main) for rank 3 at "
        "127.0.0.1:29876, which has not joined: it was not started, or it cannot reach that address"
    )
    assert (found.cause, found.ranks) == (HangCause.RANK_MISSING, (3,))
    assert found.confidence is Confidence.HIGH
    assert found.evidence == ("note",)
    assert [one.collective for one in found.positions] == ["init_process_group"] * 3


def test_of_several_one_at_least_has_not() -> None:
    found = _explained(_joining(0, address=""))
    assert "for ranks 1-3, of which one at least has not joined" in found.summary
    assert found.confidence is Confidence.MEDIUM


def test_a_rank_that_is_there_has_its_line() -> None:
    found = _explained(_joining(0, 1, 2), {3: "pid 7 is at load.py:9 `read`"})
    assert found.summary.endswith("for rank 3 at 127.0.0.1:29876, which runs and has not called it")
    assert found.evidence[0] == "rank 3: pid 7 is at load.py:9 `read`"


def test_a_rank_that_has_ended_is_why() -> None:
    found = _explained(_joining(0, 1, 2), ended={3: "it raised OSError: no"})
    assert (found.cause, found.ranks) == (HangCause.RANK_GONE, (3,))
    assert found.summary.endswith("which has ended: it raised OSError: no")


def test_ranks_at_several_addresses_do_not_meet() -> None:
    found = _explained([*_joining(0), *_joining(1, 2, 3, address="other:1")])
    assert found.cause is HangCause.UNKNOWN
    assert found.summary.endswith("rank 0 at 127.0.0.1:29876; ranks 1-3 at other:1")


def test_all_ranks_that_wait_name_nobody() -> None:
    found = _explained(_joining(0, 1, 2, 3))
    assert (found.cause, found.ranks) == (HangCause.UNKNOWN, ())
    assert found.summary.endswith("all 4 ranks have come")


def test_nobody_waits() -> None:
    assert explain_joining([], {}, {}) is None


@pytest.mark.parametrize(
    ("meeting", "text"),
    [
        (Meeting("head:29400", 2, 2, 1), "at head:29400 waits for a second node (1 of 2 joined)"),
        (Meeting("head:29400", 4, 4, 1), "waits for 3 more nodes (1 of 4 joined)"),
        (Meeting("head:29400", 4, 8, 3), "waits for 1 more node (3 of 4 to 8 joined)"),
        (Meeting("head:29500", 2, 2, None, 0), "waits for node 1 (this is node 0 of 2)"),
        (Meeting("head:29500", 4, 4, None, 2), "waits for other nodes (this is node 2 of 4)"),
        (Meeting("", 2, 4), "its rendezvous waits for other nodes (it takes 2 to 4)"),
        (Meeting(), "its rendezvous waits for other nodes"),
    ],
)
def test_a_rendezvous_says_for_whom_it_waits(meeting: Meeting, text: str) -> None:
    found = explain_meeting(meeting)
    assert text in found.summary
    assert found.cause is HangCause.NODE_MISSING
    assert (found.confidence is Confidence.HIGH) is (meeting.joined is not None)
