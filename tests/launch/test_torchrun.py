from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from tests.factories import experiment, machine
from torchscale.launch.torchrun import LaunchLimits, StopRequest, run_launch, worker_environment
from torchscale.plan import make_plan
from torchscale.schema.cell import LaunchTask
from torchscale.schema.progress import Progress
from torchscale.schema.record import LaunchRecord, State, StopRule


def launch(
    directory: Path, world_size: int, heard: list[Progress], *, log_step_times: bool = True, **content: object
) -> LaunchRecord:
    usable = sorted(os.sched_getaffinity(0))[:2]
    settings = {"preset": "quick", "measure_steps": 30, "warmup_seconds": 0.1, "warmup_max_seconds": 1.0}
    plan = make_plan(
        experiment(gpu_counts=world_size, device="cpu", launch={"threads_per_rank": 1}, benchmark=settings, **content),
        machine(cores=len(usable)),
    )
    cell = plan.to_run[0]
    directory.mkdir()
    task = LaunchTask(
        cell=cell,
        launch=0,
        device="cpu",
        cpu_sets=tuple((cpu,) for cpu in usable[:world_size]),
        threads_per_rank=1,
        started_at=time.time(),
        collective_timeout_seconds=120,
        log_step_times=log_step_times,
    )
    return run_launch(
        task,
        directory,
        limits=LaunchLimits(timeout_seconds=120, stall_seconds=60),
        extra_env={"TORCHSCALE_EXTRA": "seen"},
        stop=StopRequest(),
        on_progress=heard.append,
    )


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, LaunchRecord, list[Progress]]:
    heard: list[Progress] = []
    directory = tmp_path_factory.mktemp("launch") / "launch-0"
    return directory, launch(directory, 2, heard), heard


def test_a_real_launch_of_two_ranks(two_ranks: tuple[Path, LaunchRecord, list[Progress]]) -> None:
    directory, record, heard = two_ranks
    assert record.state is State.OK, record.log_tail
    assert [rank.rank for rank in record.ranks] == [0, 1]
    assert {rank.backend for rank in record.ranks} == {"gloo"}
    assert [rank.stop_rule for rank in record.ranks] == [StopRule.MEASURE_STEPS] * 2
    assert all(rank.parameters_equal and rank.parameters_changed and rank.losses_finite for rank in record.ranks)
    assert all(len(rank.cpus) == 1 and rank.threads == 1 for rank in record.ranks)
    assert record.ranks[0].cpus != record.ranks[1].cpus
    assert heard[0].phase == "starting"
    assert {"warming up", "measuring"} <= {progress.phase for progress in heard}
    assert (directory / "task.json").exists()


def test_ranks_draw_different_data_and_start_from_the_same_weights(
    two_ranks: tuple[Path, LaunchRecord, list[Progress]],
) -> None:
    first, second = two_ranks[1].ranks
    assert first.first_loss != second.first_loss
    assert first.parameters == second.parameters == 310_746


def test_steps_add_up_to_batches_and_phases_to_steps(two_ranks: tuple[Path, LaunchRecord, list[Progress]]) -> None:
    directory, record, _ = two_ranks
    for rank in record.ranks:
        lines = [json.loads(line) for line in (directory / f"steps-rank-{rank.rank}.jsonl").read_text().splitlines()]
        assert len(lines) == sum(batch.steps for batch in rank.batches) == 30
        assert sum(line["seconds"] for line in lines) == pytest.approx(sum(batch.seconds for batch in rank.batches))
        for line in lines:
            phases = line["data_wait"] + line["forward"] + line["backward"] + line["optimizer"]
            assert phases == pytest.approx(line["seconds"], rel=1e-9)
    assert record.steps is not None
    assert record.steps.seconds.count == 30
    assert record.steps.seconds.mean >= max(steps.seconds.mean for steps in record.rank_steps) - 1e-12


def test_no_process_is_left(two_ranks: tuple[Path, LaunchRecord, list[Progress]]) -> None:
    assert all(not Path(f"/proc/{rank.pid}").exists() for rank in two_ranks[1].ranks)


def test_a_single_rank_needs_no_process_group_and_steps_can_be_left_out(tmp_path: Path) -> None:
    record = launch(tmp_path / "launch-0", 1, [], log_step_times=False)
    assert record.state is State.OK, record.log_tail
    assert record.ranks[0].backend is None
    assert record.ranks[0].parameters_equal is None
    assert record.steps is not None
    assert not list((tmp_path / "launch-0").glob("steps-*"))


def test_epochs_bound_a_run(tmp_path: Path) -> None:
    settings = {"preset": "quick", "warmup_seconds": 0.1, "warmup_max_seconds": 1.0}
    plan = make_plan(
        experiment(
            gpu_counts=1,
            device="cpu",
            benchmark=settings,
            training={"epochs": 2},
            data={"num_samples": 100},
            batch_sizes=8,
        ),
        machine(cores=1),
    )
    (tmp_path / "launch-0").mkdir()
    task = LaunchTask(
        cell=plan.to_run[0],
        launch=0,
        device="cpu",
        threads_per_rank=1,
        started_at=time.time(),
        collective_timeout_seconds=120,
    )
    record = run_launch(
        task,
        tmp_path / "launch-0",
        limits=LaunchLimits(timeout_seconds=120, stall_seconds=60),
        extra_env={},
        stop=StopRequest(),
        on_progress=lambda _: None,
    )
    assert record.state is State.OK, record.log_tail
    assert record.ranks[0].stop_rule is StopRule.EPOCHS
    assert [(epoch.epoch, epoch.steps, epoch.samples) for epoch in record.epochs] == [(0, 12, 96), (1, 12, 96)]


def test_the_ranks_environment() -> None:
    plan = make_plan(experiment(), machine())
    task = LaunchTask(
        cell=plan.to_run[0], launch=0, device="cpu", threads_per_rank=3, started_at=0.0, collective_timeout_seconds=1
    )
    found = worker_environment(task, {"OMP_NUM_THREADS": "7", "MINE": "x"})
    assert (found["OMP_NUM_THREADS"], found["MKL_NUM_THREADS"], found["MINE"], found["HF_HUB_OFFLINE"]) == (
        "7",
        "3",
        "x",
        "1",
    )
