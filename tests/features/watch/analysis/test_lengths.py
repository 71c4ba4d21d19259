"""Who was waited for, by the lengths of collectives on each rank."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from torchscale.analysis.exchanges.arrivals import NOBODY
from torchscale.analysis.exchanges.events import Calls, CoreTime, Lengths, Moments, RankEvents
from torchscale.analysis.exchanges.steps import WaitsBy, device_step_times
from torchscale.features.watch.analysis.chains import LEAST_STEPS, Chains
from torchscale.features.watch.analysis.lengths import (
    LengthWaits,
    is_compared,
    waits_by_length,
)

MS = 1_000_000
EMPTY = np.zeros(0, np.int64)
COMPARED = np.array([True, False])


def rank(
    *calls: tuple[int, int, float | None], group: int = 0, what: int = 0, step_ms: int = 100
) -> RankEvents:
    """Collectives of a rank: (step, number, milliseconds that it took), in the order of calls."""
    time = [step * step_ms * MS + place for place, (step, _, _) in enumerate(calls)]
    numbers = np.array([number for _, number, _ in calls], np.int64)
    same = np.full(len(calls), group, np.int64)
    known = [(number, took) for _, number, took in calls if took is not None]
    return RankEvents(
        Moments(EMPTY, EMPTY, EMPTY),
        Calls(np.array(time, np.int64), numbers, same, np.full(len(calls), what, np.int64)),
        CoreTime(EMPTY, EMPTY),
        Lengths(
            np.array([number for number, _ in known], np.int64),
            np.full(len(known), group, np.int64),
            np.array([round(took * MS) for _, took in known], np.int64),
        ),
    )


def edges(steps: int, ranks: int, step_ms: int = 100) -> list[np.ndarray]:
    return [np.arange(steps + 1, dtype=np.int64) * step_ms * MS for _ in range(ranks)]


def waits(ranks: Sequence[RankEvents], steps: int = 1) -> tuple[LengthWaits, ...]:
    return waits_by_length(
        ranks, edges(steps, len(ranks)), [(0, range(len(ranks)))], COMPARED, Chains()
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


def test_the_waits_of_a_step_add_up_to_what_its_rank_is_late() -> None:
    random = np.random.default_rng(1)
    late = 1.5 + 0.1 * random.standard_normal((LEAST_STEPS, 4))
    numbered = [
        (step, 1 + step * 4 + place, float(late[step, place]))
        for step in range(LEAST_STEPS)
        for place in range(4)
    ]
    events = [
        rank(*((step, number, 1.0 + late) for step, number, late in numbered)),
        rank(*((step, number, 1.0) for step, number, late in numbered)),
    ]
    around = edges(LEAST_STEPS, 2)
    found = waits_by_length(events, around, [(0, (0, 1))], COMPARED, Chains())
    steps, waited = device_step_times(events, found, around, 0)
    assert steps.waits_by is WaitsBy.LENGTHS
    np.testing.assert_allclose(steps.wait[0] * 1e3, late.sum(axis=1), atol=1e-5)
    np.testing.assert_allclose(steps.blame[1], steps.wait[0])
    assert not steps.wait[1].any() and not steps.estimated.any()
    assert {len(one.start) for one in waited} == {LEAST_STEPS * 4}


def joined(*parts: RankEvents) -> RankEvents:
    """The events of a rank in several process groups."""
    return replace(
        parts[0],
        calls=Calls(
            *(
                np.concatenate([getattr(one.calls, name) for one in parts])
                for name in ("time", "sequence", "group", "what")
            )
        ),
        lengths=Lengths(
            *(
                np.concatenate([getattr(one.lengths, name) for one in parts])
                for name in ("sequence", "group", "duration")
            )
        ),
    )


def test_lateness_is_passed_on_to_the_rank_that_was_waited_for_first() -> None:
    """Of two shards, with their replicas: rank 1 makes rank 0 late, for which rank 2 then waits."""
    shards = [rank((0, 1, took)) for took in (6.0, 1.0)] + [
        rank((0, 1, 1.0), group=1) for _ in range(2)
    ]
    replicas = [
        rank((0, 1, took), group=group) for took, group in ((1.0, 2), (1.0, 3), (5.0, 2), (6.0, 3))
    ]
    events = [joined(*parts) for parts in zip(shards, replicas, strict=True)]
    around = edges(1, 4)
    groups = [(0, (0, 1)), (1, (2, 3)), (2, (0, 2)), (3, (1, 3))]
    found = waits_by_length(events, around, groups, COMPARED, Chains())
    steps, _ = device_step_times(events, found, around, 0)
    assert (steps.wait[:, 0] * 1e3).tolist() == pytest.approx([5, 0, 4, 5])
    assert (steps.blame[:, 0] * 1e3).tolist() == pytest.approx([0, 14, 0, 0])


def test_waits_for_one_rank_in_two_groups_at_once_count_once() -> None:
    """Kernels of different groups run side by side; waits for different ranks add up."""
    both = [rank((0, 1, 5.0)), rank((0, 1, 1.0)), rank((0, 1, 4.0))]
    other = [rank((0, 1, 7.0), group=1), rank((0, 1, 1.0), group=1), rank((0, 1, 1.5), group=1)]
    third = [rank((0, 1, 4.0), group=2), rank((0, 1, 4.0), group=2), rank((0, 1, 1.0), group=2)]
    events = [joined(*parts) for parts in zip(both, other, third, strict=True)]
    around = edges(1, 3)
    groups = [(number, (0, 1, 2)) for number in range(3)]
    found = waits_by_length(events, around, groups, COMPARED, Chains())
    steps, _ = device_step_times(events, found, around, 0)
    assert steps.wait[0, 0] * 1e3 == pytest.approx(6.0 + 3.0)
    assert steps.blame[1, 0] * 1e3 == pytest.approx(6.0 + 3.0)
    assert steps.blame[2, 0] * 1e3 == pytest.approx(3.0 + 3.0)


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
