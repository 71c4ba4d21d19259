"""What processor time says of a rank, and of all together."""

from __future__ import annotations

import pytest

from torchscale.features.watch.hang.activity import Activity, activity_of, busy_among_idle

BUSY, IDLE = Activity.BUSY, Activity.IDLE


@pytest.mark.parametrize(
    ("runs", "cpu", "expected"),
    [
        (1.0, 1.0, BUSY),
        (0.95, 0.2, BUSY),  # others take its core
        (0.0, 0.0, IDLE),
        (0.05, 0.02, IDLE),
        (0.0, 0.9, None),  # another thread computes
        (0.5, 0.5, None),
        (0.5, 0.05, None),  # it reads files
        (0.8, 0.2, BUSY),
        (0.1, 0.1, IDLE),
    ],
)
def test_what_a_rank_does(runs: float, cpu: float, expected: Activity | None) -> None:
    assert activity_of(runs, cpu) is expected


@pytest.mark.parametrize(
    ("activities", "named"),
    [
        ([IDLE, BUSY], (1,)),
        ([IDLE, BUSY, IDLE, BUSY], (1, 3)),
        ([IDLE, BUSY, None], ()),
        ([BUSY, BUSY, IDLE], ()),
        ([BUSY, BUSY], ()),
        ([IDLE, IDLE], ()),
        ([BUSY], ()),
        ([], ()),
    ],
)
def test_a_busy_rank_is_named_only_where_all_others_sleep(
    activities: list[Activity | None], named: tuple[int, ...]
) -> None:
    assert busy_among_idle(dict(enumerate(activities))) == named
