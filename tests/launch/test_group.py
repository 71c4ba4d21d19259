"""Launches that share the processes of one torchrun."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.campaign import cases
from tests.factories import training_result
from tests.integration.conftest import FAST, MODELS
from tests.launch.tasks import LIMITS, SOUND, tasks
from torchscale.launch.agents.elastic import ElasticLauncher
from torchscale.launch.control import LaunchLimits, StopRequest
from torchscale.launch.group import _END_SECONDS, LaunchGroup
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.launch.record import LaunchRecord
from torchscale.schema.launch.task import LaunchTask
from torchscale.schema.state import State
from torchscale.util.processes.subprocesses import find_token_processes

pytestmark = pytest.mark.slow


def run(
    group: LaunchGroup | ElasticLauncher, task: LaunchTask, directory: Path, **changes: Any
) -> LaunchRecord:
    directory.mkdir()
    task = task.model_copy(update={"started_at": time.time()})
    options = {
        "limits": LIMITS,
        "stop": StopRequest(),
        "on_progress": lambda progress: None,
        **changes,
    }
    return group.run(task, directory, **options)


def env() -> dict[str, str]:
    return {"PYTHONPATH": str(MODELS)}


@pytest.mark.real
def test_cells_run_one_after_the_other_in_the_same_processes(tmp_path: Path) -> None:
    fixed: dict[str, Any] = {"benchmark": {**FAST, "measure_steps": 10}}
    wanted = tasks("tiny-resnet", "tiny-decoder", parallel={"strategy": ["ddp", "fsdp"]})
    # What it imports is imported by each rank. Forks get it from the process above them
    # (test_elastic.py).
    llama = {"name": "tiny-llama", "sequence_length": 16}
    wanted += cases([], tasks(llama, training={"precision": "bf16"}, **fixed))
    wanted += tasks(
        "faulty:dropping", **fixed
    )  # its losses depend on the state of the random generators
    (single,) = tasks(SOUND, world_size=1, **fixed)
    wanted = [single, *wanted[:2], single, *wanted[2:]]
    group = LaunchGroup(
        single, tmp_path / "channel", env(), processes=2, cpu_sets=wanted[-1].cpu_sets
    )
    try:
        records = [run(group, task, tmp_path / str(number)) for number, task in enumerate(wanted)]
    finally:
        began = time.monotonic()
        group.close()
    assert time.monotonic() - began < _END_SECONDS, "ranks that wait leave when told"
    assert not [
        child
        for child in psutil.Process().children()
        if child.pid == group._process.pid and child.is_running()
    ]
    assert [record.state for record in records] == [State.OK] * len(wanted), [
        record.reason for record in records
    ]
    pids = [[rank.pid for rank in training_result(record).ranks] for record in records]
    both = pids[1]
    assert pids == [both[:1], both, both, both[:1], *[both] * (len(wanted) - 4)], (
        "the same processes, one of which waited at times"
    )
    cpus = [[rank.cpus for rank in training_result(record).ranks] for record in records]
    assert all(sets == cpus[1][: len(sets)] for sets in cpus)
    assert [
        rank.world_size for record in records for rank in training_result(record).ranks[:1]
    ] == [task.cell.world_size for task in wanted]
    assert [record.grouped for record in records] == [False, *[True] * (len(wanted) - 1)]
    assert [record.cell_id for record in records] == [task.cell.id for task in wanted]
    for task, record in zip(wanted, records, strict=True):
        assert isinstance(task.cell, TrainingCell)
        # One rank, and shards, have nothing to be compared with.
        equal = True if task.cell.strategy.name == "ddp" and task.cell.world_size > 1 else None
        assert {rank.parameters_equal for rank in training_result(record).ranks} == {equal}
        assert training_result(record).steps is not None
    # What starting costs is paid once, and resident memory is the first one's alone.
    setups = [training_result(record).ranks[0].setup for record in records]
    assert setups[0] is not None and setups[3] is not None
    assert setups[0].import_seconds > 10 * setups[3].import_seconds
    peaks = [training_result(record).ranks[0].memory.peak_bytes for record in records]
    assert [peak is not None for peak in peaks] == [True, *[False] * (len(wanted) - 1)]
    assert not find_token_processes(group._process.token)
    assert not group._channel.exists()

    last = tmp_path / str(len(wanted) - 1)
    assert (last / "torchrun.log").exists()
    assert json.loads((last / "task.json").read_text())["cell"]["model"] == "faulty:dropping"

    # Nothing of the cells before shows in the losses: they are those of new processes.
    forks = ElasticLauncher(tmp_path / "forks")
    try:
        alone = run(forks, wanted[-1], tmp_path / "alone", extra_env=env())
    finally:
        forks.close()
    losses = [
        [rank.first_loss for rank in training_result(record).ranks]
        for record in (alone, records[-1])
    ]
    assert losses[0] == losses[1]


def test_what_ranks_print_goes_to_the_launch_that_it_is_of(tmp_path: Path) -> None:
    group = LaunchGroup.__new__(LaunchGroup)  # without processes
    group._channel, group._copied = tmp_path / "channel", {}
    log = group._channel / "logs" / "none_x" / "attempt_0" / "1" / "stdout.log"
    log.parent.mkdir(parents=True)
    silent = log.with_name("stderr.log")
    silent.touch()
    for number in range(3):
        with log.open("a") as file:
            file.write(f"NCCL INFO of launch {number}\n" * number)
        (tmp_path / str(number)).mkdir()
        group._copy_new_output(tmp_path / str(number))
    written = {
        str(path.relative_to(tmp_path)): path.read_text() for path in tmp_path.glob("[0-9]/*")
    }
    assert written == {
        "1/rank-1.stdout.log": "NCCL INFO of launch 1\n",
        "2/rank-1.stdout.log": "NCCL INFO of launch 2\n" * 2,
    }


@pytest.mark.campaign
@pytest.mark.parametrize("fault", ["raise", "kill", "leave", "segfault", "nan"])
def test_a_failure_ends_the_group_and_tells_its_cause(tmp_path: Path, fault: str) -> None:
    options = {"fault": fault, "rank": 1, "step": 6}
    good, bad = tasks(SOUND, {"name": "faulty:build", **options})
    group = LaunchGroup(good, tmp_path / "channel", env())
    try:
        assert run(group, good, tmp_path / "good").state is State.OK
        record = run(group, bad, tmp_path / "bad")
    finally:
        group.close()
    expected = {
        "raise": State.CRASHED,
        "kill": State.KILLED,
        "leave": State.INCOMPLETE,
        "segfault": State.CRASHED,
        "nan": State.INVALID,
    }
    assert record.state is expected[fault]
    assert record.grouped
    if fault == "raise":
        assert "the fault that was asked for" in record.reason
        assert "the fault that was asked for" in record.log_tail
    assert not find_token_processes(group._process.token)


@pytest.mark.campaign
def test_a_hang_in_a_group_is_ended_and_located(tmp_path: Path) -> None:
    good, bad = tasks(SOUND, {"name": "faulty:build", "fault": "hang", "rank": 1, "step": 6})
    group = LaunchGroup(good, tmp_path / "channel", env())
    try:
        run(group, good, tmp_path / "good")
        record = run(
            group, bad, tmp_path / "bad", limits=LaunchLimits(timeout_seconds=60, stall_seconds=6)
        )
    finally:
        group.close()
    assert record.state is State.TIMEOUT
    assert "rank 1 never called it; it is in faulty.py" in record.reason
    assert not find_token_processes(group._process.token)
