"""Launches of scripts: their commands, and how real ones end."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests import factories
from torchscale.config.experiment import Experiment
from torchscale.features.watch.job.script_command import script_command
from torchscale.features.watch.job.script_launch import run_script
from torchscale.features.watch.job.script_records import WATCHED
from torchscale.launch.control import LaunchLimits, StopRequest
from torchscale.plan.expand import make_plan
from torchscale.schema.launch.progress import Progress
from torchscale.schema.launch.record import LaunchRecord, payload
from torchscale.schema.launch.steps import StopRule
from torchscale.schema.launch.task import LaunchTask
from torchscale.schema.launch.training import TrainingResult
from torchscale.schema.state import State

_LIMITS = LaunchLimits(timeout_seconds=60.0, stall_seconds=60.0)
_LOOP = """
import sys, time, torch, torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(int(sys.argv[1])):
    optimizer.zero_grad()
    model(torch.randn(8, 64)).sum().backward()
    optimizer.step()
    time.sleep(0.002)
"""
_ALONE = """
import time, torch
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
while True:
    model(torch.randn(8, 64)).sum().backward()
    optimizer.step()
    time.sleep(0.01)
"""


def _experiment(**entry: Any) -> Experiment:
    return factories.experiment(
        models=[entry],
        batch_sizes=[8],
        gpu_counts=[2],
        # However unsteady steps are on a busy machine, few of them are enough for the warm-up.
        benchmark={
            "preset": "quick",
            "warmup_seconds": 0.2,
            "steady_tolerance": 0.99,
            "min_seconds": 0.3,
        },
        launch={"threads_per_rank": 1},
    )


def _task(**entry: Any) -> LaunchTask:
    plan = make_plan(_experiment(**entry), factories.machine(cores=2))
    return LaunchTask(
        cell=plan.cells[0].cell,
        launch=0,
        device="cpu",
        threads_per_rank=1,
        started_at=time.time(),
        collective_timeout_seconds=100.0,
    )


def _run(
    directory: Path,
    text: str,
    arguments: str = "100000 {batch_size}",
    *,
    limits: LaunchLimits = _LIMITS,
    hidden: Mapping[str, str] | None = None,
    **entry: Any,
) -> tuple[LaunchRecord, list[Progress]]:
    script = directory / "train.py"
    script.write_text(text)
    launch = directory / "launch-0"
    launch.mkdir()
    told: list[Progress] = []
    record = run_script(
        _task(**{"script": f"{script} {arguments}", **entry}),
        launch,
        limits=limits,
        extra_env={},
        hidden=hidden or {},
        stop=StopRequest(),
        on_progress=told.append,
    )
    return record, told


def test_a_script_is_started_by_torchrun_with_its_values() -> None:
    task = _task(script="train.py --batch {batch_size} --lr {lr} -n {gpus}", lr=[0.5])
    command = script_command(task, Path("/launch"), {})

    assert "torch.distributed.run" in command
    assert "--nproc-per-node=2" in command
    assert command[-7:] == ["train.py", "--batch", "8", "--lr", "0.5", "-n", "2"]


def test_a_module_is_started_by_name_and_a_command_as_it_is() -> None:
    module = script_command(_task(module="package.train {seed}"), Path("/launch"), {})
    assert module[-3:] == ["-m", "package.train", "0"]

    command = script_command(_task(command="run -n {world_size} x"), Path("/launch"), {})
    assert command == ["run", "-n", "2", "x"]


def test_a_secret_comes_back_in_the_command_alone() -> None:
    task = _task(script="train.py --url <redacted>")
    command = script_command(task, Path("/l"), {"train.py --url <redacted>": "train.py --url key"})

    assert command[-1] == "key"


@pytest.mark.slow
def test_a_script_is_measured_and_then_ended(tmp_path: Path) -> None:
    record, told = _run(tmp_path, _LOOP)

    assert (record.state, record.reason) == (State.OK, "")
    result = payload(record, TrainingResult)
    assert [rank.rank for rank in result.ranks] == [0, 1]
    assert result.ranks[0].samples_per_step == 8
    assert result.ranks[0].backend == "gloo"
    assert result.ranks[0].parameters is None
    assert result.steps is not None
    assert 0.002 < result.steps.seconds.p50 < 0.5
    assert result.steps.mean_forward is None
    assert result.steps.mean_compute is not None
    assert result.signals is not None
    assert result.signals.wait is not None
    assert "measuring" in {progress.phase for progress in told}
    assert (tmp_path / "launch-0" / WATCHED / "watch.json").is_file()
    assert not list(tmp_path.glob("launch-0/watch/ranks/*/*.bin"))


@pytest.mark.slow
def test_a_script_that_is_to_run_to_its_end_does(tmp_path: Path) -> None:
    ending = _LOOP + "open(sys.argv[2] + str(rank), 'w')\n"
    record, _ = _run(tmp_path, ending, f"300 {tmp_path}/done-", steps="all")

    assert record.state is State.OK
    assert payload(record, TrainingResult).ranks[0].stop_rule is StopRule.PROGRAM
    assert payload(record, TrainingResult).ranks[0].samples_per_step is None
    assert {path.name for path in tmp_path.glob("done-*")} == {"done-0", "done-1"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "arguments", "state", "reason"),
    [
        (_LOOP + "raise ValueError('no more')\n", "60", State.CRASHED, "ValueError: no more"),
        (_LOOP, "6", State.INVALID, "it ended after 6 steps, before the warm-up"),
        ("print('hello')\n", "", State.INVALID, "no rank reported"),
        (
            "import torch.distributed as dist\ndist.init_process_group('gloo')\n",
            "",
            State.INVALID,
            "no optimizer of torch",
        ),
        (
            "import torch\nraise torch.OutOfMemoryError('Tried to allocate 2 GiB')\n",
            "",
            State.OOM,
            "Tried to allocate 2 GiB",
        ),
    ],
)
def test_a_script_that_is_not_measured_says_why(
    tmp_path: Path, text: str, arguments: str, state: State, reason: str
) -> None:
    record, _ = _run(tmp_path, text, arguments)

    assert record.state is state
    assert reason in record.reason


@pytest.mark.slow
def test_a_command_of_other_ranks_is_refused(tmp_path: Path) -> None:
    command = f"{sys.executable} {tmp_path / 'train.py'} {{world_size}}"
    record, _ = _run(tmp_path, _ALONE, script=None, command=command)

    assert record.state is State.INVALID
    assert "its ranks are 1, and the cell is of 2" in record.reason


@pytest.mark.slow
def test_a_command_that_fails_without_a_word_has_crashed(tmp_path: Path) -> None:
    record, _ = _run(tmp_path, "", script=None, command="sh -c 'exit 7' {world_size}")

    assert record.state is State.CRASHED
    assert record.reason == "sh exited with 7"


@pytest.mark.slow
@pytest.mark.campaign
def test_why_a_script_hangs_is_told(tmp_path: Path) -> None:
    hanging = _LOOP.replace("    time.sleep(0.002)", "    time.sleep(100 * (rank and step == 3))")
    limits = LaunchLimits(timeout_seconds=120.0, stall_seconds=30.0)
    record, _ = _run(tmp_path, hanging, limits=limits)

    assert record.state is State.TIMEOUT
    assert record.autopsy is not None
    assert record.autopsy.ranks == (1,), record.autopsy
