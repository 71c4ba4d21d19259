"""Calls of all ranks → who came last."""

from __future__ import annotations

import numpy as np

from torchscale.analysis.exchanges.arrivals import NOBODY, find_arrivals
from torchscale.analysis.exchanges.events import Calls


def _calls(*rows: tuple[int, int, int]) -> Calls:
    """(time, sequence, group) of each."""
    table = np.array(rows, np.int64).reshape(-1, 3)
    return Calls(table[:, 0], table[:, 1], table[:, 2], np.zeros(len(table), np.int64))


def test_the_last_rank_of_each_collective_is_known_to_all() -> None:
    first, second = find_arrivals(
        [_calls((10, 1, 0), (20, 2, 0)), _calls((13, 1, 0), (18, 2, 0))], [(0, [0, 1])]
    )

    assert first.latest.tolist() == second.latest.tolist() == [13, 20]
    assert first.last.tolist() == second.last.tolist() == [1, 0]


def test_a_collective_that_a_rank_has_not_called_yet_has_no_last_rank() -> None:
    first, _ = find_arrivals([_calls((10, 1, 0), (20, 2, 0)), _calls((13, 1, 0))], [(0, [0, 1])])

    assert first.last.tolist() == [1, NOBODY]
    assert first.latest.tolist() == [13, 0]


def test_a_number_that_one_rank_lost_is_compared_with_nobody() -> None:
    first, second = find_arrivals(
        [
            _calls((10, 1, 0), (20, 2, 0), (30, 3, 0)),
            _calls((11, 1, 0), (31, 3, 0)),
        ],
        [(0, [0, 1])],
    )

    assert first.last.tolist() == [1, NOBODY, 1]
    assert second.last.tolist() == [1, 1]


def test_groups_are_numbered_by_themselves() -> None:
    ranks = [
        _calls((10, 1, 0), (11, 1, 1)),
        _calls((12, 1, 0), (13, 1, 2)),
        _calls((14, 1, 1)),
        _calls((9, 1, 2)),
    ]
    found = find_arrivals(ranks, [(0, [0, 1]), (1, [0, 2]), (2, [1, 3])])

    assert found[0].last.tolist() == [1, 2]
    assert found[1].last.tolist() == [1, 1]


def test_a_group_of_one_and_a_group_without_calls_are_left_out() -> None:
    (first, second) = find_arrivals([_calls((10, 1, 0)), _calls()], [(0, [0]), (1, [0, 1])])

    assert first.last.tolist() == [NOBODY]
    assert not len(second.last)
