"""Launches and the sessions that they belong to."""

from __future__ import annotations

import pytest

from tests.factories import cells
from torchscale.features.compare.analysis.disturbances import (
    disturbances,
    flagged_conditions,
    unequal_conditions,
)
from torchscale.features.compare.export_schema import Disturbance
from torchscale.schema.run.result_set import LaunchFigures, ResultCell
from torchscale.schema.state import State


def cell_of(*flags: tuple[str, ...] | None, of_cell: tuple[str, ...] = ()) -> ResultCell:
    launches = tuple(LaunchFigures(flags=one) for one in flags)
    return ResultCell(cell=cells()[0], state=State.OK, flags=of_cell, launches=launches)


BUSY, QUIET = ("contended", "drifting"), ("noisy",)


@pytest.mark.parametrize(
    ("before", "after", "unequal"),
    [
        (cell_of(QUIET, QUIET, QUIET), cell_of(BUSY, BUSY, BUSY), ("contended",)),
        (cell_of(BUSY, BUSY, BUSY), cell_of(QUIET, QUIET, QUIET), ("contended",)),
        (cell_of(QUIET, QUIET, QUIET), cell_of(BUSY, BUSY, QUIET), ("contended",)),
        (cell_of(QUIET, QUIET, QUIET), cell_of(BUSY, QUIET, QUIET), ()),
        (cell_of(BUSY, BUSY, BUSY), cell_of(BUSY, BUSY, QUIET), ()),
        (cell_of(BUSY, BUSY, BUSY), cell_of(BUSY, QUIET, QUIET), ("contended",)),
        (cell_of(BUSY, BUSY, BUSY), cell_of(BUSY, BUSY, BUSY), ()),
        (cell_of(("throttled",), ("throttled",)), cell_of((), ()), ("throttled",)),
        (cell_of(("noisy", "drifting"), ("noisy",)), cell_of((), ()), ()),
        (
            cell_of(None, None, None, of_cell=("contended",)),
            cell_of(QUIET, QUIET, QUIET),
            ("contended",),
        ),
        (cell_of(None, None, None, of_cell=("contended",)), cell_of(BUSY, BUSY, BUSY), ()),
        (cell_of(None, None, None), cell_of(QUIET, QUIET, QUIET), ()),
    ],
)
def test_conditions_are_unequal_beyond_a_third_of_the_launches(
    before: ResultCell, after: ResultCell, unequal: tuple[str, ...]
) -> None:
    """Without flags of launches, as in older baselines, those of the cell count for all of them."""
    assert unequal_conditions(before, after, same_machine=True) == unequal


@pytest.mark.parametrize(
    ("before", "after", "flags", "unequal"),
    [
        ((0.15, 0.15, 0.15), (0.5, 0.5, 0.5), BUSY, ("contended",)),
        ((0.15, 0.15, 0.15), (0.2, 0.2, 0.2), BUSY, ()),
        ((0.0, 0.0, 0.0), (0.5, 0.5, 0.5), QUIET, ()),
        ((0.15, 0.15, 0.15), (None, None, None), BUSY, ()),
    ],
)
def test_sides_that_are_both_contended_may_be_so_to_another_degree(
    before: tuple[float, ...],
    after: tuple[float | None, ...],
    flags: tuple[str, ...],
    unequal: tuple[str, ...],
) -> None:
    sides = [
        ResultCell(
            cell=cells()[0],
            state=State.OK,
            launches=tuple(LaunchFigures(flags=flags, other_processes=load) for load in loads),
        )
        for loads in (before, after)
    ]
    assert unequal_conditions(*sides, same_machine=True) == unequal


def test_disturbed_launches_are_told_by_their_numbers_with_the_largest_share_of_others() -> None:
    """The first is 1, and the share is of those launches, not of their neighbours."""
    busy = [(BUSY, 0.5), (QUIET, 0.9), (BUSY, 0.2)]
    figures = tuple(LaunchFigures(flags=flags, other_processes=load) for flags, load in busy)
    after = ResultCell(cell=cells()[0], state=State.OK, launches=figures)
    assert disturbances(cell_of(QUIET, QUIET), after, same_machine=True) == (
        Disturbance("contended", 1, (1, 3), 3, 0.5),
    )


def test_a_slower_machine_is_a_disturbance_of_all_launches_of_its_side() -> None:
    def worked(*work: tuple[float, float]) -> ResultCell:
        figures = tuple(LaunchFigures(fixed_work=one) for one in work)
        return ResultCell(cell=cells()[0], state=State.OK, launches=figures)

    usual, slow = (1e-4, 2e-4), (1.3e-4, 2.6e-4)
    sides = worked(usual, usual, usual), worked(slow, slow)
    (found,) = disturbances(*sides, same_machine=True)
    assert (found.condition, found.side, found.launches, found.of) == ("slowed", 1, (1, 2), 2)
    assert found.fixed_work == pytest.approx(0.3)
    assert disturbances(*sides, same_machine=False) == (), "another machine may be another one"


def test_a_cell_was_measured_under_a_condition_beyond_a_third_of_its_launches() -> None:
    assert flagged_conditions(cell_of(("throttled",), ("contended",), ("contended",))) == (
        "contended",
    )
    assert flagged_conditions(cell_of((), ())) == ()
