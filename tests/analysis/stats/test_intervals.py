"""Unions of intervals against counting every unit of time."""

from __future__ import annotations

import time

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from torchscale.analysis.stats.intervals import IntervalSet, contains_any, outermost, union

TIME = st.integers(0, 40)
INTERVALS = st.lists(st.tuples(TIME, TIME), max_size=12)


def cover(pairs: list[tuple[int, int]]) -> IntervalSet:
    table = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return IntervalSet(table[:, 0], table[:, 1])


def units(pairs: list[tuple[int, int]]) -> set[int]:
    return {unit for start, end in pairs for unit in range(start, end)}


def of(found: IntervalSet) -> set[int]:
    assert (found.start[1:] > found.end[:-1]).all()  # disjoint, sorted, and no two that touch
    return {
        unit
        for start, end in zip(found.start, found.end, strict=True)
        for unit in range(start, end)
    }


@given(INTERVALS, INTERVALS, TIME, TIME)
def test_every_operation_counts_right(
    first: list[tuple[int, int]], second: list[tuple[int, int]], a: int, b: int
) -> None:
    one, two = cover(first), cover(second)
    assert of(one) == units(first)
    assert one.length == len(units(first))
    assert of(union([one, two])) == units(first) | units(second)
    low, high = sorted((a, b))
    assert of(one.clipped(low, high)) == units(first) & units([(low, high)])
    assert one.within(np.array([low]), np.array([high])).tolist() == [
        len(units(first) & units([(low, high)]))
    ]
    left = one.minus(two)
    found = {
        unit for start, end in zip(left.start, left.end, strict=True) for unit in range(start, end)
    }
    assert found == units(first) - units(second)
    assert one.minus(two).length == len(units(first) - units(second))


def test_the_outermost_calls_and_those_that_contain_a_moment() -> None:
    start, end = np.array([0, 2, 3, 20, 0]), np.array([10, 8, 4, 30, 50])
    lane = np.array([1, 1, 1, 1, 2])
    assert outermost(start, end, lane).tolist() == [True, False, False, True, True]
    moments, where = np.array([3, 25]), np.array([1, 2])
    assert contains_any(start, end, lane, moments, where).tolist() == [
        True,
        True,
        True,
        False,
        True,
    ]


@given(
    st.lists(st.tuples(TIME, TIME, st.integers(0, 3)), max_size=12),
    st.lists(st.tuples(TIME, st.integers(0, 3)), max_size=6),
)
def test_lanes_are_told_apart(
    calls: list[tuple[int, int, int]], moments: list[tuple[int, int]]
) -> None:
    table = np.array(calls, dtype=np.int64).reshape(-1, 3)
    start, end, lane = table[:, 0], table[:, 0] + table[:, 1], table[:, 2]
    times = np.array(moments, dtype=np.int64).reshape(-1, 2)
    together = [
        outermost(start, end, lane),
        contains_any(start, end, lane, times[:, 0], times[:, 1]),
    ]
    for each in range(4):
        mine, theirs = lane == each, times[:, 1] == each
        alone = start[mine], end[mine], lane[mine]
        assert together[0][mine].tolist() == outermost(*alone).tolist()
        inside = contains_any(*alone, times[theirs, 0], times[theirs, 1])
        assert together[1][mine].tolist() == inside.tolist()


def test_a_lane_for_every_interval_takes_seconds() -> None:
    lane = np.arange(200_000)
    began = time.process_time()
    assert outermost(10 * lane, 10 * lane + 5, lane).all()
    assert contains_any(10 * lane, 10 * lane + 5, lane, 10 * lane + 1, lane).all()
    assert time.process_time() - began < 10  # each lane was looked for among all
