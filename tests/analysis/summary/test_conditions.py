"""Launches and the sessions that they belong to."""

from __future__ import annotations

from typing import Any

import pytest

from tests.factories import environment, experiment, experiment_file
from torchscale.analysis.summary.conditions import (
    measured_sessions,
    over_sessions,
    session_facts,
    session_numbers,
    unlike_before,
)
from torchscale.schema.run.experiment_file import ExperimentFile, Session
from torchscale.schema.run.result_set import LaunchFigures


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


def test_a_launch_belongs_to_the_last_session_that_had_begun() -> None:
    sessions = [session(10), session(20)]
    assert session_numbers(sessions, launches(5, 10, 15, 20, 25)) == [0, 0, 0, 1, 1]
    assert session_numbers([], launches(5)) == [0]


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
