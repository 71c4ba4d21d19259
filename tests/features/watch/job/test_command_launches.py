"""Launches of programs that know nothing of torchscale, and the run folders that they leave."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.factories import environment
from torchscale.features.watch.job.command_launches import LOG, CommandLaunches
from torchscale.launch.control import StopRequest
from torchscale.results.reader import read_summary
from torchscale.schema.launch.record import payload
from torchscale.schema.launch.training import TrainingResult
from torchscale.schema.state import State
from torchscale.store.run_folder import load_run

pytestmark = pytest.mark.slow

TRAIN = """
import time, torch
torch.set_num_threads(1)
weight = torch.nn.Parameter(torch.zeros(4))
optimizer = torch.optim.SGD([weight], lr=0.1)
while True:
    weight.sum().backward()
    time.sleep(0.01)
    optimizer.step()
"""


@pytest.fixture
def launches() -> CommandLaunches:
    return CommandLaunches(environment(), StopRequest(), 0.5, 120.0)


def test_each_launch_is_one_of_a_run_and_a_session_of_its_own(
    tmp_path: Path, launches: CommandLaunches
) -> None:
    command = (sys.executable, "-c", TRAIN, "--lr={x}")
    for number in range(2):
        record = launches.launch(command, tmp_path / "A")
        assert (record.state, record.reason, record.launch) == (State.OK, "", number)
    run = load_run(tmp_path / "A")
    assert not run.problems
    assert len(run.experiment.sessions) == 2
    assert run.experiment.environment.command == command
    (cell,) = read_summary(tmp_path / "A").measured
    assert cell.figures is not None
    for one in run.cells[0].launches:
        result = payload(one, TrainingResult)
        assert 0.01 < result.measured_seconds / result.measured_steps < 1.0
    assert sorted(path.name for path in (tmp_path / "A").iterdir()) == [
        "cells",
        "experiment.json",
        LOG,
    ]


@pytest.mark.parametrize(
    ("code", "state", "reason"),
    [
        ("print('begin')\nraise ValueError('no data')", State.CRASHED, "ValueError: no data"),
        ("import torch; torch.zeros(2)", State.INVALID, ""),
        (TRAIN.replace("while True", "for _ in range(3)"), State.INVALID, "before warm-up"),
    ],
    ids=["fails", "no optimizer", "too few steps"],
)
def test_a_launch_without_figures_says_why_and_leaves_its_log_alone(
    tmp_path: Path, launches: CommandLaunches, code: str, state: State, reason: str
) -> None:
    record = launches.launch((sys.executable, "-c", code), tmp_path / "A")
    assert record.state is state
    assert reason in record.reason
    assert record.reason
    assert [path.name for path in (tmp_path / "A").iterdir()] == [LOG]


def test_a_launch_that_takes_too_long_or_that_the_user_stops_is_ended(tmp_path: Path) -> None:
    stop = StopRequest()
    wait = (sys.executable, "-c", "import time; time.sleep(600)")
    short = CommandLaunches(environment(), stop, 0.5, 0.3)
    assert short.launch(wait, tmp_path / "A").state is State.TIMEOUT
    stop.count = 1
    assert short.is_stopped
    assert short.launch(wait, tmp_path / "A").state is State.INTERRUPTED
