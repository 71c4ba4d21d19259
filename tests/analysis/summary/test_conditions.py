"""Launches and the sessions that they belong to."""

from __future__ import annotations

from typing import Any

import pytest

from tests.factories import cells, environment, experiment, experiment_file
from torchscale.analysis.summary.conditions import (
    disturbances,
    flagged_conditions,
    measured_sessions,
    over_sessions,
    session_facts,
    session_numbers,
    unequal_conditions,
    unlike_before,
)
from torchscale.features.compare.export_schema import Disturbance
from torchscale.schema.run.experiment_file import ExperimentFile, Session
from torchscale.schema.run.result_set import LaunchFigures, ResultCell
from torchscale.schema.state import State


def session(minute: int, **changes: Any) -> Session:
    return Session(
        started_at=time(minute), tool_version="0.1.0", environment=environment(1, **changes)
    )


def time(minute: int) -> str:
    return f"2026-01-02T03:{minute:02}:00+00:00"


def folder(*later: Session) -> ExperimentFile:
    first = environment(1)
    return experiment_file(experiment(), [], environment=first, created_at=time(0), later=later)


def launches(*minutes: int) -> list[LaunchFigures]:
    return [LaunchFigures(started_at=time(minute)) for minute in minutes]


def test_launches_count_for_the_session_in_which_they_began() -> None:
    experiment = folder(session(10, env={"NCCL_ALGO": "Ring"}), session(20), session(30))
    found = measured_sessions(experiment, launches(0, 5, 12, 30))
    assert [(one.session.started_at, one.launches) for one in found] == [
        (time(0), 2),
        (time(10), 1),
        (time(30), 1),
    ]
    # The one in which nothing was measured is left out, and what changed is against the one before
    # it.
    assert [one.changed for one in found] == [(), ("variable NCCL_ALGO",), ("variable NCCL_ALGO",)]


def test_what_changed_before_the_first_figure_is_no_change() -> None:
    (found,) = measured_sessions(folder(session(10, hostname="node-2")), launches(12))
    assert found.session.environment.hostname == "node-2"
    assert found.changed == ()


@pytest.mark.parametrize("times", [[], [""], ["1999-01-01"]])
def test_without_a_launch_that_belongs_to_any_the_first_counts(times: list[str]) -> None:
    (found,) = measured_sessions(
        folder(session(10)), [LaunchFigures(started_at=time) for time in times]
    )
    assert (found.session.started_at, found.launches) == (time(0), len(times))


def test_the_name_of_a_job_is_no_condition_and_another_gpu_is() -> None:
    again = {
        "env": {"SLURM_JOB_ID": "7", "MASTER_PORT": "29500"},
        "command": ("torchscale", "benchmark", "-v"),
    }
    other = environment(1).devices[0].model_copy(update={"uuid": "GPU-other"})
    found = measured_sessions(
        folder(session(10, **again), session(20, **again, devices=(other,))), launches(0, 10, 20)
    )
    assert [one.changed for one in found] == [(), (), ("GPU 0",)]


def test_a_fact_that_changed_is_told_in_order() -> None:
    sessions = [
        session(0),
        session(1, env={"NCCL_ALGO": "Ring"}),
        session(2, env={"NCCL_ALGO": "Ring"}),
        session(3),
    ]
    found = over_sessions([session_facts(one) for one in sessions])
    assert found["variable NCCL_ALGO"] == "absent, then Ring, then absent"
    assert found["host"] == "node-1"
    assert found["GPU 0"] == "NVIDIA H100 GPU-0"
    assert "driver" not in found


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


def test_a_launch_belongs_to_the_last_session_that_had_begun() -> None:
    sessions = [session(10), session(20)]
    assert session_numbers(sessions, launches(5, 10, 15, 20, 25)) == [0, 0, 0, 1, 1]
    assert session_numbers([], launches(5)) == [0]


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


def test_what_the_last_session_has_otherwise_than_an_earlier_one() -> None:
    """Also what was changed and changed back: figures of the sessions between differ by it."""
    ring = {"env": {"NCCL_ALGO": "Ring"}}
    assert unlike_before([session(0), session(10)]) == ()
    assert unlike_before([session(0), session(10, **ring), session(20, **ring)]) == (
        "variable NCCL_ALGO",
    )
    assert unlike_before([session(0), session(10, **ring), session(20)]) == ("variable NCCL_ALGO",)


def test_memory_is_a_fact_in_gib() -> None:
    assert session_facts(session(0, memory_bytes=64 * 2**30))["memory"] == "64 GiB"
    assert "memory" not in session_facts(session(0, memory_bytes=None))


def test_a_cell_was_measured_under_a_condition_beyond_a_third_of_its_launches() -> None:
    assert flagged_conditions(cell_of(("throttled",), ("contended",), ("contended",))) == (
        "contended",
    )
    assert flagged_conditions(cell_of((), ())) == ()
