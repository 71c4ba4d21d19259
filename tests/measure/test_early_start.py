"""When the process of a sweep's launches is started before the plan, and with which environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.factories import experiment, machine
from torchscale.launch.control import LaunchLimits, launch_task
from torchscale.launch.torchrun import cell_environment, worker_environment
from torchscale.measure import early_start as ahead_module
from torchscale.measure.early_start import started_ahead
from torchscale.plan.expand import make_plan

SCRIPT = {"command": "torchrun --nproc-per-node {world_size} train.py {batch_size}"}


class NoProcess:
    """Stands for the process that is started ahead."""

    made: list[NoProcess]

    def __init__(self, channel: Path, environment: dict[str, str]) -> None:
        self.channel, self.environment, self.is_closed = channel, environment, False
        self.made.append(self)

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[NoProcess]:
    """What was started ahead, on four cores without a GPU."""
    NoProcess.made = []
    monkeypatch.setattr(ahead_module, "AgentForker", NoProcess)
    monkeypatch.setattr(ahead_module, "usable_cores", lambda: (0, 1, 2, 3))
    monkeypatch.setattr(ahead_module, "has_gpu_driver", lambda: False)
    return NoProcess.made


@pytest.mark.parametrize("launch", [{}, {"env": {"MINE": "1"}}, {"threads_per_rank": 2}])
def test_the_process_that_is_started_ahead_has_the_environment_of_the_launches(
    tmp_path: Path, started: list[NoProcess], launch: dict[str, Any]
) -> None:
    config = experiment(gpu_counts=[1, 2], launch=launch)
    states = []
    with started_ahead(config, tmp_path / "run") as ahead:
        assert ahead is not None
        (process,) = started
        states.append(process.is_closed)
    states.append(process.is_closed)
    assert states == [False, True]
    assert process.channel == tmp_path / "run" / ".group"
    plan = make_plan(config, machine(cores=4))
    for cell in plan.to_run:
        task = launch_task(plan, cell, LaunchLimits(60.0, 60.0))
        assert not cell_environment(cell)
        assert worker_environment(task, launch.get("env", {})) == process.environment


@pytest.mark.parametrize(
    ("content", "driver", "is_started"),
    [
        ({}, False, True),
        ({}, True, False),
        ({"device": "cpu"}, True, True),
        ({"device": "cuda"}, False, False),
        ({"launch": {"isolation": "cell"}}, False, False),
        ({"launch": {"threads_per_rank": 5}}, False, False),
        ({"models": ["tiny-resnet", SCRIPT]}, False, False),
    ],
)
def test_it_is_started_where_launches_will_be_forked(
    tmp_path: Path,
    started: list[NoProcess],
    monkeypatch: pytest.MonkeyPatch,
    content: dict[str, Any],
    driver: bool,
    is_started: bool,
) -> None:
    monkeypatch.setattr(ahead_module, "has_gpu_driver", lambda: driver)
    with started_ahead(experiment(**content), tmp_path / "run") as ahead:
        assert (ahead is not None) is is_started
    assert len(started) == is_started


def test_nothing_is_started_ahead_for_a_folder_that_is_there(
    tmp_path: Path, started: list[NoProcess]
) -> None:
    with started_ahead(experiment(), tmp_path) as ahead:
        assert ahead is None
    assert started == []
