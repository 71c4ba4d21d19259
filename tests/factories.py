"""Records and runs as real launches leave them, made to measure for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torchscale.analysis.kinds import training
from torchscale.analysis.stats.series import digest
from torchscale.analysis.training.summary import TrainingSummary
from torchscale.config.experiment import Experiment
from torchscale.plan.expand import make_plan
from torchscale.schema.cells.kinds import AnyCell
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.launch.nodes import LaunchNode
from torchscale.schema.launch.rank import HostLoad, MemoryUse, RankRecord, Setup
from torchscale.schema.launch.record import LaunchRecord, payload
from torchscale.schema.launch.steps import BatchTimes, RankSteps, StepDigest, StopRule, Warmup
from torchscale.schema.launch.task import LaunchTask
from torchscale.schema.launch.training import TrainingResult
from torchscale.schema.node.environment import DeviceInfo, Environment, Versions
from torchscale.schema.node.machine import Machine
from torchscale.schema.run.content import CellRun, Run
from torchscale.schema.run.experiment_file import ExperimentFile, PlannedCell
from torchscale.schema.state import State

VERSIONS = Versions(torchscale="0.1.0", python="3.11.7", torch="2.13.0")


def environment(gpus: int = 0, capability: str = "9.0", **changes: Any) -> Environment:
    """A machine with this many GPUs."""
    devices = tuple(
        DeviceInfo(
            kind="cuda",
            index=index,
            name="NVIDIA H100",
            uuid=f"GPU-{index}",
            compute_capability=capability,
        )
        for index in range(gpus)
    )
    defaults: dict[str, Any] = {
        "hostname": "node-1",
        "system": "Linux 6.1",
        "cpu": "Test Processor",
        "cores": 2,
        "memory_bytes": 2**34,
        "versions": VERSIONS,
        "devices": devices,
        "cuda_available": gpus > 0,
        "command": ("torchscale", "benchmark"),
    }
    return Environment(**{**defaults, **changes})


def machine(gpus: int = 0, cores: int = 2, capability: str = "9.0") -> Machine:
    """What a plan may use."""
    return Machine(environment(gpus, capability, cores=cores), tuple(range(cores)))


def experiment(**content: Any) -> Experiment:
    """A small experiment; keys as in a config."""
    return Experiment.model_validate(
        {"models": "tiny-resnet", "batch_sizes": [8], "gpu_counts": [1, 2], **content}
    )


def cells(**content: Any) -> list[TrainingCell]:
    """The cells of :func:`experiment` on a machine that can run them all."""
    return [trained(entry) for entry in make_plan(experiment(**content), machine(cores=16)).cells]


def trained(entry: PlannedCell) -> TrainingCell:
    """Its cell, which is one of training."""
    assert isinstance(entry.cell, TrainingCell)
    return entry.cell


def cpu_task(cell: AnyCell, **changes: Any) -> LaunchTask:
    """The first launch of a cell on CPU ranks of one thread each."""
    content: dict[str, Any] = {
        "launch": 0,
        "device": "cpu",
        "threads_per_rank": 1,
        "started_at": 0.0,
        "collective_timeout_seconds": 90,
    }
    return LaunchTask(cell=cell, **{**content, **changes})


def rank_identity(rank: int, world_size: int) -> dict[str, Any]:
    """What every rank says of itself, whatever it measures: one of a node with CPUs."""
    return {
        "rank": rank,
        "local_rank": rank,
        "world_size": world_size,
        "pid": 100 + rank,
        "hostname": "node-1",
        "device": DeviceInfo(kind="cpu", index=rank, name="Test Processor"),
        "backend": None if world_size == 1 else "gloo",
        "threads": 1,
        "cpus": (rank,),
        "versions": VERSIONS,
    }


def rank_record(
    cell: TrainingCell, rank: int = 0, batches: Sequence[float] = (1.0,) * 10, **changes: Any
) -> RankRecord:
    """A rank whose batches of ten steps took these seconds."""
    measured = sum(batches)
    defaults: dict[str, Any] = {
        **rank_identity(rank, cell.world_size),
        "parameters": 1000,
        "samples_per_step": cell.per_device_batch_size,
        "tokens_per_step": None,
        "setup": Setup(
            import_seconds=1, process_group_seconds=0.1, build_seconds=1, first_step_seconds=0.2
        ),
        "warmup": Warmup(
            steps=20,
            seconds=2.0,
            steady=True,
            batches=BatchTimes(steps=(10, 10), seconds=(1.0, 1.0)),
        ),
        "batches": BatchTimes(steps=(10,) * len(batches), seconds=tuple(batches)),
        "stop_rule": StopRule.CONVERGED,
        "memory": MemoryUse(resident_before_bytes=100, resident_peak_bytes=300 + rank),
        "host_load": HostLoad(
            wall_seconds=measured,
            busy_seconds=measured,
            process_seconds=measured,
            cores=1,
            pinned=True,
        ),
        "first_loss": 2.0,
        "last_loss": 1.0,
        "losses_finite": True,
        "parameters_changed": True,
        "parameters_equal": None if cell.world_size == 1 else True,
    }
    return RankRecord(**{**defaults, **changes})


def launch_nodes(*hostnames: str) -> tuple[LaunchNode, ...]:
    """Nodes of these names, with one rank on each."""
    return tuple(
        LaunchNode(node_rank=place, hostname=name, address="10.0.0.1", first_rank=place, ranks=1)
        for place, name in enumerate(hostnames)
    )


def launch_record(
    cell: TrainingCell,
    launch: int = 0,
    batches: Sequence[float] = (1.0,) * 10,
    ranks: Sequence[RankRecord] = (),
    **changes: Any,
) -> LaunchRecord:
    """An ``ok`` launch; its steps are the batches' means. ``changes`` are of the record or of its
    payload."""
    records = tuple(ranks) or tuple(
        rank_record(cell, rank, batches) for rank in range(cell.world_size)
    )
    seconds = [value / 10 for value in batches for _ in range(10)]
    mean = sum(seconds) / len(seconds)
    steps = StepDigest(
        seconds=digest(seconds),
        mean_data_wait=0.1 * mean,
        mean_forward=0.3 * mean,
        mean_backward=0.4 * mean,
        mean_optimizer=0.2 * mean,
    )
    defaults: dict[str, Any] = {
        "cell_id": cell.id,
        "launch": launch,
        "state": State.OK,
        "started_at": "2026-01-02T03:04:05+00:00",
        "seconds": 2.0 + sum(batches) + 5.0,
        "exit_code": 0,
    }
    measured: dict[str, Any] = {
        "ranks": records,
        "steps": steps,
        "rank_steps": RankSteps.of([steps] * len(records)),
    }
    of_payload = {
        key: changes.pop(key) for key in list(changes) if key in TrainingResult.model_fields
    }
    return LaunchRecord(
        **{**defaults, "payload": TrainingResult(**{**measured, **of_payload}), **changes}
    )


def summarize_cell(cell_run: CellRun, repeats: int | None = None) -> TrainingSummary:
    """The summary of a training cell on its own."""
    return training.summarize(cell_run, trained(cell_run.planned), repeats)


def training_result(record: LaunchRecord) -> TrainingResult:
    """What a launch of training measured."""
    return payload(record, TrainingResult)


def failed_record(cell: TrainingCell, state: State, reason: str, launch: int = 0) -> LaunchRecord:
    """A launch that ended badly."""
    return launch_record(cell, launch, state=state, reason=reason, payload=TrainingResult())


def experiment_file(
    config: Experiment, plan: Sequence[PlannedCell], **changes: Any
) -> ExperimentFile:
    """``experiment.json`` of a plan."""
    defaults: dict[str, Any] = {
        "tool_version": "0.1.0",
        "config": config,
        "plan_hash": "0" * 16,
        "plan": tuple(plan),
        "environment": environment(),
        "created_at": "2026-01-02T03:04:05+00:00",
        "threads_per_rank": 1,
    }
    return ExperimentFile(**{**defaults, **changes})


def run(
    launches: Mapping[str, Sequence[LaunchRecord]] | None = None,
    problems: Sequence[str] = (),
    **content: Any,
) -> Run:
    """A run of :func:`experiment`; without ``launches`` every runnable cell has one of 100 steps in
    10 s."""
    config = experiment(**content)
    plan = make_plan(config, machine(cores=2)).cells
    if launches is None:
        launches = {
            entry.cell.id: (launch_record(trained(entry)),)
            for entry in plan
            if entry.skip_reason is None
        }
    cell_runs = tuple(CellRun(entry, tuple(launches.get(entry.cell.id, ()))) for entry in plan)
    return Run("run", experiment_file(config, plan), cell_runs, tuple(problems))
