"""Launches that share the processes of one torchrun."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.factories import experiment, machine
from tests.integration.conftest import FAST, MODELS
from torchscale.launch.group import Group
from torchscale.launch.process import find_token_processes
from torchscale.launch.torchrun import LaunchLimits, StopRequest
from torchscale.plan import make_plan
from torchscale.schema.cell import Cell
from torchscale.schema.record import LaunchRecord, State
from torchscale.schema.task import LaunchTask

LIMITS = LaunchLimits(timeout_seconds=120, stall_seconds=60)


def tasks(*models: Any, world_size: int = 2, **content: Any) -> list[LaunchTask]:
    usable = sorted(os.sched_getaffinity(0))[:2]
    settings = {"device": "cpu", "launch": {"threads_per_rank": 1}, "benchmark": FAST, **content}
    plan = make_plan(
        experiment(models=list(models), gpu_counts=world_size, **settings), machine(cores=max(len(usable), world_size))
    )
    return [
        LaunchTask(
            cell=one,
            launch=0,
            device="cpu",
            cpu_sets=tuple((usable[rank % len(usable)],) for rank in range(world_size)),
            threads_per_rank=1,
            started_at=time.time(),
            collective_timeout_seconds=120,
        )
        for one in plan.to_run
    ]


def run(group: Group, task: LaunchTask, directory: Path, **changes: Any) -> LaunchRecord:
    directory.mkdir()
    task = task.model_copy(update={"started_at": time.time()})
    options = {"limits": LIMITS, "stop": StopRequest(), "on_progress": lambda progress: None, **changes}
    return group.run(task, directory, **options)


def env() -> dict[str, str]:
    return {"PYTHONPATH": str(MODELS)}


def test_cells_run_one_after_the_other_in_the_same_processes(tmp_path: Path) -> None:
    wanted = tasks("tiny-resnet", "tiny-decoder", parallel={"strategy": ["ddp", "fsdp"]})
    group = Group(wanted[0], tmp_path / "channel", env())
    try:
        records = [run(group, task, tmp_path / str(number)) for number, task in enumerate(wanted)]
    finally:
        group.close()
    assert [record.state for record in records] == [State.OK] * 4, [record.reason for record in records]
    assert len({tuple(rank.pid for rank in record.ranks) for record in records}) == 1
    assert [record.grouped for record in records] == [False, True, True, True]
    assert [record.cell_id for record in records] == [task.cell.id for task in wanted]
    for task, record in zip(wanted, records, strict=True):
        assert isinstance(task.cell, Cell)
        equal = True if task.cell.strategy.name == "ddp" else None  # shards have nothing to be compared with
        assert [rank.parameters_equal for rank in record.ranks] == [equal, equal]
        assert record.steps is not None
    # What starting costs is paid once, and resident memory is the first one's alone.
    assert records[0].ranks[0].setup.import_seconds > 10 * records[1].ranks[0].setup.import_seconds
    assert [record.ranks[0].memory.peak_bytes is not None for record in records] == [True, False, False, False]
    assert not find_token_processes(group._process.token)
    assert not group._channel.exists()


def test_a_launch_in_a_group_trains_what_it_trains_alone(tmp_path: Path) -> None:
    """Nothing of the cells before shows in the losses: not their random state, their precision, their determinism."""
    fixed: dict[str, Any] = {"benchmark": {**FAST, "measure_steps": 10}}
    before = tasks("tiny-gpt2", training={"precision": "bf16"}, **fixed)
    (wanted,) = tasks("tiny-bert", **fixed)
    lasts = []
    for name, others in (("alone", []), ("after", before)):
        group = Group(wanted, tmp_path / "channel", env())
        try:
            for number, task in enumerate([*others, wanted]):
                record = run(group, task, tmp_path / f"{name}-{number}")
        finally:
            group.close()
        lasts.append([rank.first_loss for rank in record.ranks])
    assert lasts[0] == lasts[1]


@pytest.mark.parametrize("fault", ["raise", "kill", "leave", "nan"])
def test_a_failure_ends_the_group_and_tells_its_cause(tmp_path: Path, fault: str) -> None:
    options = {"fault": fault, "rank": 1, "step": 6}
    good, bad = tasks("tiny-resnet", {"name": "faulty:build", **options})
    group = Group(good, tmp_path / "channel", env())
    try:
        assert run(group, good, tmp_path / "good").state is State.OK
        record = run(group, bad, tmp_path / "bad")
    finally:
        group.close()
    expected = {"raise": State.CRASHED, "kill": State.KILLED, "leave": State.INCOMPLETE, "nan": State.INVALID}
    assert record.state is expected[fault]
    assert record.grouped
    if fault == "raise":
        assert "the fault that was asked for" in record.reason
        assert "the fault that was asked for" in record.log_tail
    assert not find_token_processes(group._process.token)


def test_a_hang_in_a_group_is_ended_and_located(tmp_path: Path) -> None:
    good, bad = tasks("tiny-resnet", {"name": "faulty:build", "fault": "hang", "rank": 1, "step": 6})
    group = Group(good, tmp_path / "channel", env())
    try:
        run(group, good, tmp_path / "good")
        record = run(group, bad, tmp_path / "bad", limits=LaunchLimits(timeout_seconds=6, stall_seconds=60))
    finally:
        group.close()
    assert record.state is State.TIMEOUT
    assert "rank 1 was in faulty.py" in record.reason
    assert not find_token_processes(group._process.token)


def test_ranks_that_wait_leave_when_told(tmp_path: Path) -> None:
    (task,) = tasks("tiny-resnet")
    group = Group(task, tmp_path / "channel", env())
    run(group, task, tmp_path / "one")
    began = time.monotonic()
    group.close()
    assert time.monotonic() - began < 10
    assert not find_token_processes(group._process.token)
    assert not [
        child for child in psutil.Process().children() if child.pid == group._process.pid and child.is_running()
    ]
    assert (tmp_path / "one" / "torchrun.log").exists()
    assert json.loads((tmp_path / "one" / "task.json").read_text())["cell"]["model"] == "tiny-resnet"
