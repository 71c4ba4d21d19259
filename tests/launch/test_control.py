"""Limits of a launch, requests to stop, and the task that its ranks get."""

from __future__ import annotations

import time

import pytest

from tests.factories import experiment, machine
from torchscale.launch.control import LaunchLimits, StopRequest, launch_task
from torchscale.plan.expand import make_plan


@pytest.mark.parametrize(
    ("timeout", "budget", "expected"),
    [(600.0, None, 600.0), (600.0, 30.0, 40.0), (20.0, 30.0, 20.0)],
)
def test_a_launch_ends_by_its_timeout_or_its_budget(
    timeout: float, budget: float | None, expected: float
) -> None:
    limits = LaunchLimits(timeout, stall_seconds=60.0, budget_seconds=budget)
    assert limits.hard_seconds == expected
    assert limits.collective_seconds > expected


@pytest.mark.parametrize(
    ("count", "asked", "at_once"), [(0, False, False), (1, True, False), (2, True, True)]
)
def test_the_second_request_to_stop_takes_no_grace(count: int, asked: bool, at_once: bool) -> None:
    stop = StopRequest()
    stop.count = count
    assert (stop.asked, stop.at_once) == (asked, at_once)


def test_a_task_has_the_devices_of_the_plan_and_the_bounds_of_the_limits() -> None:
    plan = make_plan(
        experiment(gpu_counts=[1, 2], launch={"threads_per_rank": 2}), machine(cores=4)
    )
    limits = LaunchLimits(600.0, 60.0, budget_seconds=30.0)
    before = time.time()
    task = launch_task(plan, plan.to_run[1], limits, launch=3)
    assert before <= task.started_at <= time.time()
    assert (task.cell, task.launch, task.device) == (plan.to_run[1], 3, "cpu")
    assert task.cpu_sets == ((0, 1), (2, 3))
    assert task.threads_per_rank == 2
    assert task.budget_seconds == 30.0
    assert task.collective_timeout_seconds == limits.collective_seconds
    assert not task.oversubscribed
    assert task.recording is None and task.telemetry_seconds is None
