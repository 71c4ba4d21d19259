from __future__ import annotations

import errno
import itertools
import json
import os
import platform
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal, cast

import psutil
import pytest

from tests.factories import experiment, machine, training_result
from tests.integration.conftest import MODELS
from torchscale.config.choices import DeviceKind
from torchscale.features.watch.hang.evidence import read_facts
from torchscale.launch.control import LaunchLimits, StopRequest
from torchscale.launch.judge import EndingKind
from torchscale.launch.run import run_launch
from torchscale.launch.torchrun import Watch, torchrun_command, worker_environment
from torchscale.plan.expand import make_plan
from torchscale.schema.launch.progress import Progress
from torchscale.schema.launch.record import LaunchRecord
from torchscale.schema.launch.steps import StopRule
from torchscale.schema.launch.task import LaunchTask
from torchscale.schema.state import State
from torchscale.util.processes.subprocesses import ManagedProcess

pytestmark = pytest.mark.slow


def launch(
    directory: Path,
    world_size: int,
    heard: Callable[[Progress], None],
    *,
    log_step_times: bool = True,
    env: dict[str, str] | None = None,
    **content: object,
) -> LaunchRecord:
    usable = sorted(os.sched_getaffinity(0))[:2]
    settings = {
        "preset": "quick",
        "measure_steps": 30,
        "warmup_seconds": 0.1,
        "warmup_max_seconds": 1.0,
    }
    plan = make_plan(
        experiment(
            gpu_counts=world_size,
            device="cpu",
            launch={"threads_per_rank": 1},
            benchmark=settings,
            **content,
        ),
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
        extra_env=env or {},
        stop=StopRequest(),
        on_progress=heard,
    )


class Converting:
    """A process that lives for half a second after its ranks have ended, as nsys does while it
    writes a report."""

    pid = 2**22 + 1  # of no process

    def __init__(self) -> None:
        self._ends = time.monotonic() + 0.5

    def poll(self) -> int | None:
        """As of a process."""
        return 0 if time.monotonic() > self._ends else None


@pytest.mark.parametrize(
    ("phase", "patience", "kind"),
    [
        ("finishing", 30.0, EndingKind.FINISHED),
        ("finishing", None, EndingKind.TIMEOUT),
        ("recording", 30.0, EndingKind.TIMEOUT),
    ],
)
def test_a_report_may_take_longer_than_a_step(
    phase: Literal["finishing", "recording"],
    patience: float | None,
    kind: EndingKind,
    tmp_path: Path,
) -> None:
    (tmp_path / "progress.jsonl").write_text(Progress(phase=phase).model_dump_json() + "\n")
    limits = LaunchLimits(timeout_seconds=60, stall_seconds=0.1)
    watch = Watch(tmp_path, limits, StopRequest(), lambda progress: None, patience)
    assert watch.wait(cast(ManagedProcess, Converting()))[0] is kind


@pytest.mark.parametrize(("timeout", "stall", "moves"), [(0.2, 60.0, True), (60.0, 0.2, False)])
def test_a_launch_that_runs_out_of_time_is_no_hang(
    timeout: float, stall: float, moves: bool, tmp_path: Path
) -> None:
    (tmp_path / "progress.jsonl").write_text(Progress(phase="measuring").model_dump_json() + "\n")
    watch = Watch(tmp_path, LaunchLimits(timeout, stall), StopRequest(), lambda progress: None)
    assert watch.wait(cast(ManagedProcess, Converting()))[0] is EndingKind.TIMEOUT
    assert (read_facts(tmp_path).moved_seconds_ago is not None) is moves


@pytest.fixture(scope="module")
def two_ranks(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Path, LaunchRecord, list[Progress]]:
    heard: list[Progress] = []
    directory = tmp_path_factory.mktemp("launch") / "launch-0"
    return directory, launch(directory, 2, heard.append), heard


@pytest.mark.real
def test_a_real_launch_of_two_ranks(two_ranks: tuple[Path, LaunchRecord, list[Progress]]) -> None:
    directory, record, heard = two_ranks
    assert record.state is State.OK, record.log_tail
    ranks = training_result(record).ranks
    assert [rank.rank for rank in ranks] == [0, 1]
    assert {rank.backend for rank in ranks} == {"gloo"}
    assert [rank.stop_rule for rank in ranks] == [StopRule.MEASURE_STEPS] * 2
    assert all(
        rank.parameters_equal and rank.parameters_changed and rank.losses_finite for rank in ranks
    )
    assert all(len(rank.cpus) == 1 and rank.threads == 1 for rank in ranks)
    assert ranks[0].cpus != ranks[1].cpus
    phases = [phase for phase, _ in itertools.groupby(progress.phase for progress in heard)]
    assert phases == ["starting", "building", "warming up", "measuring", "finishing"]
    assert (directory / "task.json").exists()


@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="other C libraries are left as they are"
)
def test_the_record_says_by_what_gloo_moved_the_data(
    two_ranks: tuple[Path, LaunchRecord, list[Progress]],
) -> None:
    _, record, _ = two_ranks
    assert record.transport is not None
    assert record.transport.text == "TCP over lo (IPv4)"
    assert [len(rank.sockets) for rank in record.payload.ranks] == [1, 1]


def test_ranks_keep_what_their_steps_free(
    two_ranks: tuple[Path, LaunchRecord, list[Progress]],
) -> None:
    for rank in training_result(two_ranks[1]).ranks:
        assert rank.allocator is not None and rank.allocator.setting == "keep"
        assert rank.signals is not None and rank.signals.minor_faults is not None
        assert rank.signals.minor_faults.seconds_each > 0


def test_ranks_draw_different_data_and_start_from_the_same_weights(
    two_ranks: tuple[Path, LaunchRecord, list[Progress]],
) -> None:
    first, second = training_result(two_ranks[1]).ranks
    assert first.first_loss != second.first_loss
    assert first.parameters == second.parameters == 310_746


def test_steps_add_up_to_batches_and_phases_to_steps(
    two_ranks: tuple[Path, LaunchRecord, list[Progress]],
) -> None:
    directory, record, _ = two_ranks
    for rank in training_result(record).ranks:
        lines = [
            json.loads(line)
            for line in (directory / f"steps-rank-{rank.rank}.jsonl").read_text().splitlines()
        ]
        assert len(lines) == rank.batches.total_steps == 30
        assert sum(line["seconds"] for line in lines) == pytest.approx(rank.batches.total_seconds)
        for line in lines:
            phases = line["data_wait"] + line["forward"] + line["backward"] + line["optimizer"]
            phases += (line["exposed_sync"] or 0.0) + (line["buffer_sync"] or 0.0)
            assert phases == pytest.approx(line["seconds"], rel=1e-9)
    result = training_result(record)
    assert result.steps is not None
    assert result.steps.seconds.count == 30
    assert result.steps.seconds.mean >= max(result.rank_steps.mean) - 1e-12


def test_all_ranks_measure_the_same_batches(
    two_ranks: tuple[Path, LaunchRecord, list[Progress]],
) -> None:
    first, second = training_result(two_ranks[1]).ranks
    assert first.batches.steps == second.batches.steps == (3,) * 10
    assert first.warmup.batches.steps == second.warmup.batches.steps
    assert first.warmup.steady == second.warmup.steady
    # They start each batch together and wait for each other in it. A single batch of three steps
    # may differ by as long as the machine keeps one rank waiting; all together may not.
    assert first.batches.total_seconds == pytest.approx(second.batches.total_seconds, rel=0.5)


@pytest.mark.real
def test_memory_is_the_models_and_not_that_of_the_libraries_it_needs(
    two_ranks: tuple[Path, LaunchRecord, list[Progress]],
) -> None:
    """310,746 parameters and batches of 8: importing transformers alone takes more than 100 MiB."""
    for rank in training_result(two_ranks[1]).ranks:
        assert rank.memory.peak_bytes is not None
        assert 310_746 * 4 * 4 < rank.memory.peak_bytes < 100 * 2**20


def test_the_time_of_a_launch_covers_its_parts(
    two_ranks: tuple[Path, LaunchRecord, list[Progress]],
) -> None:
    record = two_ranks[1]
    for rank in training_result(record).ranks:
        assert rank.setup is not None
        parts = [
            rank.setup.import_seconds,
            rank.setup.process_group_seconds,
            rank.setup.build_seconds,
            rank.warmup.seconds,
            *rank.batches.seconds,
        ]
        assert min(parts) > 0
        assert sum(parts) < record.seconds
        assert rank.warmup.seconds > rank.setup.first_step_seconds
        assert rank.host_load.process_seconds <= rank.host_load.wall_seconds * 1.2
        assert rank.host_load.wall_seconds >= rank.batches.total_seconds


def test_no_process_is_left(two_ranks: tuple[Path, LaunchRecord, list[Progress]]) -> None:
    assert all(
        not Path(f"/proc/{rank.pid}").exists() for rank in training_result(two_ranks[1]).ranks
    )


@pytest.mark.campaign
def test_epochs_bound_a_run_of_one_rank_without_process_group_or_step_log(
    tmp_path: Path,
) -> None:
    settings = {"preset": "quick", "warmup_seconds": 0.1, "warmup_max_seconds": 1.0}
    plan = make_plan(
        experiment(
            models="tiny-decoder",
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
        log_step_times=False,
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
    assert training_result(record).ranks[0].stop_rule is StopRule.EPOCHS
    assert training_result(record).ranks[0].backend is None
    assert training_result(record).ranks[0].parameters_equal is None
    assert training_result(record).steps is not None
    assert not list((tmp_path / "launch-0").glob("steps-*"))
    assert [
        (epoch.epoch, epoch.steps, epoch.samples) for epoch in training_result(record).epochs
    ] == [
        (0, 12, 96),
        (1, 12, 96),
    ]


@pytest.mark.real
def test_torchrun_that_is_asked_to_end_is_killed_and_takes_its_ranks_along(tmp_path: Path) -> None:
    """As a batch system does before it takes the node away."""
    ranks: list[psutil.Process] = []

    def end_torchrun(progress: Progress) -> None:
        if progress.phase == "warming up" and not ranks:
            # The test process may have other children: a browser that tests share.
            (torchrun,) = (
                one
                for one in psutil.Process().children()
                if "torch.distributed.run" in one.cmdline()
            )
            ranks.extend(torchrun.children())
            torchrun.terminate()

    record = launch(tmp_path / "launch-0", 2, end_torchrun, models="tiny-decoder")
    assert (record.state, record.reason) == (State.KILLED, "torchrun was killed by SIGTERM")
    assert len(ranks) == 2
    assert not any(rank.is_running() for rank in ranks)


def test_a_rank_that_is_killed_is_named_and_takes_torchrun_and_the_others_along(
    tmp_path: Path,
) -> None:
    model = {"name": "faulty:build", "fault": "kill", "rank": 1, "step": 6}
    places = {"PYTHONPATH": str(MODELS)}
    record = launch(tmp_path / "launch-0", 2, lambda _: None, env=places, models=model)
    assert record.state is State.KILLED
    assert record.reason.startswith("rank 1 was killed by SIGKILL")
    assert record.exit_code == 1, "torchrun's own"


@pytest.mark.campaign
def test_a_broken_contract_is_told_in_the_reason(tmp_path: Path) -> None:
    model = (
        "import torch\nclass Net(torch.nn.Linear):\n    def make_batch(self, size, generator):\n"
    )
    model += "        return torch.randn(3, 4)\ndef build():\n    return Net(4, 4)\n"
    (tmp_path / "broken_net.py").write_text(model)
    record = launch(
        tmp_path / "launch-0",
        1,
        lambda _: None,
        env={"PYTHONPATH": str(tmp_path)},
        models="broken_net:build",
    )
    assert record.state is State.CRASHED
    assert (
        record.reason
        == "rank 0: TypeError: make_batch must return a dictionary of tensors, not Tensor"
    )
    assert record.exit_code == 1
    assert record.log_tail


def test_options_of_torchrun_in_the_environment_do_not_reach_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PET_NNODES", "4")
    monkeypatch.setenv("RANK", "3")
    plan = make_plan(experiment(), machine())
    task = LaunchTask(
        cell=plan.to_run[0],
        launch=0,
        device="cpu",
        threads_per_rank=3,
        started_at=0.0,
        collective_timeout_seconds=1,
    )
    assert "PET_NNODES" not in worker_environment(task, {})


@pytest.mark.parametrize(
    ("device", "variable", "asked"),
    [
        ("cuda", "", {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,GRAPH"}),
        ("cuda", "NCCL_DEBUG", {"NCCL_DEBUG": "mine"}),
        ("cuda", "NCCL_DEBUG_FILE", {"NCCL_DEBUG_FILE": "mine"}),
        ("cpu", "", {}),
    ],
)
@pytest.mark.parametrize("exported", [False, True])
def test_nccls_log_is_asked_for_unless_the_user_sets_it(
    monkeypatch: pytest.MonkeyPatch,
    device: DeviceKind,
    variable: str,
    asked: dict[str, str],
    *,
    exported: bool,
) -> None:
    for name in ("NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE"):
        monkeypatch.delenv(name, raising=False)
    if variable and exported:
        monkeypatch.setenv(variable, "mine")
    task = LaunchTask(
        cell=make_plan(experiment(), machine()).to_run[0],
        launch=0,
        device=device,
        threads_per_rank=1,
        started_at=0.0,
        collective_timeout_seconds=1,
    )
    found = worker_environment(task, {variable: "mine"} if variable and not exported else {})
    assert {name: text for name, text in found.items() if name.startswith("NCCL_DEBUG")} == asked


def test_the_ranks_environment() -> None:
    plan = make_plan(experiment(), machine())
    task = LaunchTask(
        cell=plan.to_run[0],
        launch=0,
        device="cpu",
        threads_per_rank=3,
        started_at=0.0,
        collective_timeout_seconds=1,
    )
    found = worker_environment(task, {"OMP_NUM_THREADS": "7", "MINE": "x"})
    assert (
        found["OMP_NUM_THREADS"],
        found["MKL_NUM_THREADS"],
        found["MINE"],
        found["HF_HUB_OFFLINE"],
    ) == (
        "7",
        "3",
        "x",
        "1",
    )


def test_nothing_has_to_be_resolved_to_start_ranks() -> None:
    """Not every container has an /etc/hosts with ``localhost``."""
    command = torchrun_command(2, Path("here"), "task.json")
    assert "--standalone" not in command
    assert "--rdzv-endpoint=127.0.0.1:0" in command


def test_a_loopback_interface_that_is_down_is_told_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(*_: object, **__: object) -> None:
        raise OSError(errno.ENETUNREACH, os.strerror(errno.ENETUNREACH))

    monkeypatch.setattr(socket, "create_connection", unreachable)
    watch = Watch(tmp_path, LaunchLimits(60.0, 60.0), StopRequest(), lambda _: None)
    ending = watch.run(torchrun_command(1, tmp_path, "task.json"), {})
    assert ending.kind is EndingKind.NOT_STARTED
    assert "over 127.0.0.1 (is the loopback interface up?): Network is unreachable" in ending.detail
    assert not (tmp_path / "logs").exists()


def test_what_ranks_print_is_bounded_while_they_run(tmp_path: Path) -> None:
    """Two hundred megabytes to torchrun's log: never more than a part of them takes space."""
    log = tmp_path / "logs" / "run" / "attempt_0" / "0" / "stdout.log"
    log.parent.mkdir(parents=True)
    code = "import sys, time\nfor _ in range(100): sys.stdout.write('x' * 2**21); time.sleep(0.01)"
    seen: list[int] = []

    def look() -> bool:
        seen.append(log.stat().st_blocks * 512)
        return False

    with log.open("wb") as file:
        process = ManagedProcess(
            [sys.executable, "-c", code], env=os.environ, stdout=file, stderr=file
        )
        watch = Watch(tmp_path, LaunchLimits(60.0, 60.0), StopRequest(), lambda _: None)
        watch.wait(process, look)
        process.end()
    assert log.stat().st_size == 100 * 2**21
    assert max(seen) < 100 * 2**20
