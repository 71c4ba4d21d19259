"""Tables of very many ranks."""

from __future__ import annotations

from torchscale.report.text.rank_table import (
    MOST_ROWS,
    distributions,
    hidden_line,
    shown_ranks,
)
from torchscale.schema.profiles.analysis import Idle, RankBreakdown


def rank(number: int, compute: float, stall: float | None = 0.1) -> RankBreakdown:
    """A rank whose window is a second."""
    return RankBreakdown(
        rank=number,
        host=None,
        source="",
        window_seconds=1.0,
        compute_seconds=compute,
        communication_seconds=0.2,
        exposed_communication_seconds=0.2,
        overlap=None,
        sync_stall_seconds=stall,
        transfer_seconds=0.1,
        copy_seconds=None,
        idle=Idle(
            total_seconds=0.1, host_bound_seconds=None, input_seconds=None, other_seconds=None
        ),
    )


def test_few_ranks_are_all_shown() -> None:
    ranks = [rank(number, 0.5) for number in range(MOST_ROWS)]
    assert shown_ranks(ranks) == ranks
    assert distributions(ranks) == []
    assert hidden_line(ranks) == ""


def test_of_many_the_outliers_are_shown() -> None:
    ranks = [rank(number, 0.5 + 1e-5 * number) for number in range(1024)]
    ranks[700] = rank(700, 0.9)
    ranks[41] = rank(41, 0.5, stall=0.0)
    shown = shown_ranks(ranks)
    assert len(shown) == MOST_ROWS
    assert {700, 41} <= {one.rank for one in shown}
    assert [one.rank for one in shown] == sorted(one.rank for one in shown)
    assert hidden_line(ranks).startswith("32 of 1,024 ranks")


def test_distributions_leave_out_what_was_not_measured() -> None:
    ranks = [rank(number, number / 100, stall=None) for number in range(100)]
    lines = {line.label: line.shares for line in distributions(ranks)}
    assert lines["least"][0] == 0.0
    assert lines["most"][0] == 0.99
    assert lines["median"][0] == 0.495
    assert lines["median"][1] is None
