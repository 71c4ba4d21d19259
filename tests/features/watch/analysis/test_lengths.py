"""Who was waited for, by the lengths of collectives on each rank."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.features.watch.analysis.called_ranks import MS, rank, waits
from torchscale.analysis.exchanges.arrivals import NOBODY
from torchscale.analysis.exchanges.events import RankEvents
from torchscale.features.watch.analysis.lengths import (
    is_compared,
)


def test_the_rank_with_the_shortest_collective_came_last() -> None:
    first, second, third = waits([rank((0, 1, 7.0)), rank((0, 1, 2.0)), rank((0, 1, 5.5))])
    assert [list(one.last) for one in (first, second, third)] == [[1], [1], [1]]
    assert [one.wait[0] / MS for one in (first, second, third)] == [5.0, 0.0, 3.5]
    assert first.length[0] == 2 * MS


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(rank((0, 1, None)), id="no length"),
        pytest.param(rank((0, 2, 2.0)), id="not called"),
        pytest.param(rank((0, 1, 2.0), what=1), id="another collective"),
    ],
)
def test_what_not_all_ranks_know_is_not_compared(other: RankEvents) -> None:
    (found, _) = waits([rank((0, 1, 7.0)), other])
    assert list(found.last) == [NOBODY]
    assert list(found.wait) == [0]


def test_collectives_with_a_root_are_not_compared() -> None:
    found, _ = waits([rank((0, 1, 7.0), what=1), rank((0, 1, 2.0), what=1)])
    assert list(found.last) == [NOBODY]


@pytest.mark.parametrize(
    ("operation", "compared"),
    [
        ("all_reduce", True),
        ("allreduce_coalesced", True),
        ("_all_gather_base", True),
        ("all_gather_into_tensor_coalesced", True),
        ("_reduce_scatter_base", True),
        ("reduce_scatter_tensor_coalesced", True),
        ("all_to_all", True),
        ("all_reduce_barrier", True),
        ("broadcast", False),
        ("_broadcast_oop", False),
        ("reduce", False),
        ("gather", False),
        ("scatter", False),
        ("send 0->1", False),
    ],
)
def test_in_which_collectives_all_wait_for_all(operation: str, *, compared: bool) -> None:
    assert is_compared(operation) == compared


def test_the_parts_of_a_coalesced_collective_count_once() -> None:
    """They share a number, and the whole, which has the length, comes last."""
    parts = [(0, 1, None), (0, 1, None)]
    found, _ = waits([rank(*parts, (0, 1, 6.0)), rank(*parts, (0, 1, 1.0))])
    assert list(found.wait) == [0, 0, 5 * MS]
    assert list(found.last) == [NOBODY, NOBODY, 1]


def test_two_real_ranks_over_nccl_of_which_one_slept() -> None:
    """20 ms before each step, which is seen in those steps before which the device had nothing left
    to do. Both used one GPU, which gives each process slices of time."""
    recorded = Path(__file__).parents[3] / "data" / "nccl"
    events = []
    for number in (0, 1):
        dump = json.loads((recorded / f"timed-rank-{number}.json").read_text())
        reduced = [one for one in dump["entries"] if one["profiling_name"] == "nccl:all_reduce"]
        numbered = [(one["collective_seq_id"], one["duration_ms"]) for one in reduced]
        events.append(rank(*((step, *call) for step, call in enumerate(numbered))))
    first, second = waits(events, len(numbered))
    seconds = dict(zip(events[0].calls.sequence.tolist(), first.wait.tolist(), strict=True))
    assert {number for number, wait in seconds.items() if wait > 15 * MS} == {4, 7, 19, 35}
    longest = int(np.argmax(first.wait))
    assert first.last[longest] == 1
    assert second.wait[longest] == 0
