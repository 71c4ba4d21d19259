"""Launches and the sessions that they belong to."""

from __future__ import annotations

import pytest

from tests.factories import cells, environment
from torchscale.features.compare.analysis.disturbances import (
    disturbances,
    disturbed_launches,
    flagged_conditions,
    is_same_machine,
    unequal_conditions,
)
from torchscale.features.compare.export_schema import Disturbance
from torchscale.schema.run.experiment_file import Session
from torchscale.schema.run.result_set import LaunchFigures, ResultCell, ResultSet
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


def busy(*delays: tuple[float, float] | None) -> ResultCell:
    """A cell whose launches were contended, with what bounds the delay of each."""
    launches = tuple(LaunchFigures(flags=BUSY, delay=delay) for delay in delays)
    return ResultCell(cell=cells()[0], state=State.OK, launches=launches)


def test_contended_launches_count_where_it_is_known_how_much_others_delayed_them() -> None:
    """The change without the delay then decides, also where both sides were contended alike; where
    nothing bounds it, as on a shared GPU, such sides are compared as measured."""
    known, unknown, quiet = busy(*[(0.1, 0.3)] * 3), busy(None, None, None), cell_of(QUIET, QUIET)
    assert unequal_conditions(known, known, same_machine=True) == ("contended",)
    assert unequal_conditions(unknown, unknown, same_machine=True) == ()
    assert unequal_conditions(known, unknown, same_machine=True) == ()
    assert unequal_conditions(quiet, unknown, same_machine=True) == ("contended",)
    one_of_four = ResultCell(
        cell=cells()[0],
        state=State.OK,
        launches=(*busy((0.1, 0.3)).launches, *cell_of(QUIET, QUIET, QUIET).launches),
    )
    assert unequal_conditions(quiet, one_of_four, same_machine=True) == ("contended",)


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


def test_a_small_delay_without_a_flag_disturbs_nothing() -> None:
    delayed = ResultCell(
        cell=cells()[0], state=State.OK, launches=(LaunchFigures(flags=(), delay=(0.0, 0.08)),)
    )
    assert disturbed_launches(delayed) == [False]
    assert disturbances(delayed, delayed, same_machine=True) == ()
    assert unequal_conditions(delayed, busy((0.0, 0.3)), same_machine=True) == ("contended",)
    assert disturbed_launches(cell_of(("throttled",), BUSY, QUIET)) == [True, True, False]


def test_the_share_of_others_is_told_of_contended_launches_alone() -> None:
    hot = LaunchFigures(flags=("throttled",), other_processes=0.3)
    cell = ResultCell(cell=cells()[0], state=State.OK, launches=(hot,))
    assert disturbances(cell, cell_of(QUIET), same_machine=True) == (
        Disturbance("throttled", 0, (1,), 1, None),
    )


def test_flags_of_some_launches_alone_are_not_kept_and_the_cell_s_count() -> None:
    assert disturbed_launches(cell_of(("throttled",), None)) == [False, False]
    assert disturbed_launches(cell_of((), None, of_cell=("throttled",))) == [True, True]


def test_a_cell_without_launches_has_the_conditions_of_its_flags() -> None:
    assert flagged_conditions(cell_of(of_cell=("throttled",))) == ("throttled",)
    assert flagged_conditions(cell_of()) == ()


def test_the_same_machine_was_slower_or_another_device_is_another_machine() -> None:
    def worked(seconds: float, device: str = "cpu") -> ResultCell:
        launch = LaunchFigures(flags=(), fixed_work=(seconds, 2 * seconds))
        return ResultCell(cell=cells()[0], state=State.OK, device=device, launches=(launch,))

    sides = worked(1e-4), worked(1.03e-4)
    assert unequal_conditions(*sides, same_machine=True) == ("slowed",)
    assert unequal_conditions(*sides, same_machine=False) == ()
    other = worked(1.03e-4, device="gpu")
    assert unequal_conditions(sides[0], other, same_machine=True) == ()
    a_little = sides[0], worked(1.01e-4)
    assert unequal_conditions(*a_little, same_machine=True) == ()
    assert disturbances(*a_little, same_machine=True) == ()


def on_hosts(*hosts: str) -> ResultSet:
    first, *later = (environment(hostname=host) for host in hosts)
    sessions = [
        Session(started_at="2026-02-01T00:00:00+00:00", tool_version="0.1.0", environment=one)
        for one in later
    ]
    return ResultSet(name="side", environment=first, later=tuple(sessions), cells=())


def test_one_host_on_both_sides_is_the_same_machine() -> None:
    assert is_same_machine(on_hosts("a"), on_hosts("a", "a"))
    assert not is_same_machine(on_hosts("a"), on_hosts("b"))
    assert not is_same_machine(on_hosts("a", "b"), on_hosts("a", "b")), "which of them is not known"
    unknown = ResultSet(name="side", cells=())
    assert not is_same_machine(unknown, unknown)
