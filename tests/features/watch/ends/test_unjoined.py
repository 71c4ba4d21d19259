"""Ranks that gave up in ``init_process_group``: whom they had waited for."""

from __future__ import annotations

from typing import Any

import pytest

from tests.features.watch.ends.left import TRAIN, attempt, exited, facts, raised
from torchscale.features.watch.ends.failure import find_failure
from torchscale.schema.watch.ends import ProcessEnd, ProcessWait
from torchscale.schema.watch.failure import FailureCause, JobFailure

C10D = "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
JOINING = ((TRAIN, 30, "main"), (C10D, 1700, "init_process_group"))
STORE = "torch.distributed.DistStoreError"


def gave_up(rank: int, text: str = "wait timeout after 20000ms, keys: /0//1") -> ProcessEnd:
    return raised(rank, 30.0 + rank / 100, STORE, text, frames=JOINING)


def waiting(rank: int, **fields: Any) -> ProcessWait:
    known = {"format": 1, "pid": 100 + rank, "host": "here", "rank": rank, "world_size": 4}
    return ProcessWait.model_validate({**known, "what": "group", "since": 10.0, **fields})


def found(*ends: ProcessEnd, **fields: Any) -> JobFailure:
    failure = find_failure(attempt(*ends, **fields))
    assert failure is not None
    return failure


@pytest.mark.parametrize(
    "text",
    [
        "wait timeout after 20000ms, keys: /default_pg/0//cpu//0/1",
        "Timed out after 21 seconds waiting for clients. 3/4 clients joined.",
        "Gloo connectFullMesh failed with [tcp/pair.cc:209] connect: Connection timed out",
    ],
)
def test_a_rank_that_never_came_is_named(text: str) -> None:
    failure = found(gave_up(0, text), exited(3, 30.2, -15), waits=[waiting(1), waiting(2)])
    assert failure.cause is FailureCause.NOT_JOINED
    assert failure.rank == 0
    assert failure.summary == (
        "rank 3 never joined: rank 0 waited for it in init_process_group at train.py:30 (main) "
        "until its time-out"
    )
    assert failure.evidence[0] == "rank 3 ran, and had not called init_process_group"
    assert failure.evidence[1].startswith(f"rank 0 raised {STORE}: ")


def test_several_and_of_which_nothing_is_known() -> None:
    failure = found(gave_up(1), gave_up(0), waits=[waiting(0)])
    assert failure.summary.startswith("ranks 2 and 3 never joined: ")
    assert "ranks 0 and 1 waited for them" in failure.summary
    assert failure.evidence[0] == (
        "ranks 2 and 3 were not started, ended before, or cannot reach the others"
    )


def test_a_rank_whose_own_call_failed_had_come() -> None:
    refused = raised(2, 30.5, "RuntimeError", "Connection refused", frames=JOINING)
    failure = found(gave_up(0), gave_up(1), refused)
    assert failure.summary.startswith("rank 3 never joined: ")


@pytest.mark.parametrize(
    ("ends", "fields"),
    [
        ([gave_up(rank) for rank in range(4)], {}),
        ([gave_up(0)], {"ranks": {rank: facts(rank) for rank in range(1, 4)}}),
        ([gave_up(0, "Address already in use")], {}),
        ([raised(0, 1.0, "TimeoutError", "timed out")], {}),
    ],
    ids=["all gave up", "the others had joined", "another error", "in another place"],
)
def test_nobody_is_named_where_none_is_missing(
    ends: list[ProcessEnd], fields: dict[str, Any]
) -> None:
    failure = found(*ends, **fields)
    assert failure.cause is not FailureCause.NOT_JOINED
    assert "never joined" not in failure.summary
