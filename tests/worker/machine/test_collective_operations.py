"""Collectives on real gloo ranks: right results are found right, and any that is not is caught."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.factories import VERSIONS, cpu_task
from tests.worker.forks import Forks
from torchscale.config.choices import OPERATIONS
from torchscale.launch.collect import collect_launch
from torchscale.launch.judge import EndingKind, LaunchEnding
from torchscale.schema.cells.collectives import CollectivesCell, CollectivesRank, CollectivesResult
from torchscale.schema.launch.record import LaunchRecord, payload
from torchscale.schema.launch.task import LaunchTask
from torchscale.schema.node.environment import DeviceInfo, RankIdentity
from torchscale.schema.state import State
from torchscale.worker.machine import collective_sweep
from torchscale.worker.machine import collectives as module
from torchscale.worker.machine.collective_operations import COLLECTIVES, DTYPES, AllReduce
from torchscale.worker.machine.collectives import measure_collectives
from torchscale.worker.process_group import Ranks
from torchscale.worker.rank_files import RankFiles

_SCRIPT = """
import os, sys
from pathlib import Path
import torch
import torch.distributed as dist
from torchscale.schema.launch.task import LaunchTask
from torchscale.worker.rank import run_rank

def spoiled(right, place):
    def wrong(*args, **kwargs):
        result = right(*args, **kwargs)
        if dist.get_rank() == 1 and args[0].numel() > place and args[0].dtype != torch.uint8:
            args[0].view(-1)[place] += 1
        return result
    return wrong

made, opened = dist.new_group, []

def one_at_a_time(*args, **kwargs):
    assert len(dist.distributed_c10d._world.pg_map) == 1, "an earlier pair's group is still open"
    opened.append(args)
    return made(*args, **kwargs)

dist.new_group = one_at_a_time
status = 0
for number, argument in enumerate(sys.argv[1:]):
    directory, name, place = argument.split(",")
    right = getattr(dist, name, None)
    if right is not None:
        setattr(dist, name, spoiled(right, int(place)))
    path = Path(directory, "task.json").resolve()
    task = LaunchTask.model_validate_json(path.read_bytes())
    status |= run_rank(task, path.parent, 0.0, f"launch-{number}")
    if right is not None:
        setattr(dist, name, right)
    if "pairs" in task.cell.operations:
        assert opened == [([0, 1],), ([0, 2],), ([1, 2],)]
        opened.clear()
os._exit(status)
"""


def cell(**changes: Any) -> CollectivesCell:
    defaults: dict[str, Any] = {
        "operations": OPERATIONS,
        "dtypes": ("fp32",),
        "min_bytes": 4,
        "max_bytes": 4096,
        "iterations": 3,
        "warmup": 1,
        "world_size": 3,
        "device": "cpu",
    }
    return CollectivesCell(**{**defaults, **changes})


@dataclass(frozen=True)
class Sweep:
    """What to measure; ``spoiled`` names a function of torch.distributed that errs on rank 1, at
    element ``place``."""

    cell: CollectivesCell
    spoiled: str = "nothing"
    place: int = 0


def measured(forks: Forks, directory: Path, sweeps: Sequence[Sweep]) -> list[LaunchRecord]:
    """The record of each sweep, all on the same ranks."""
    (directory / "script.py").write_text(_SCRIPT)
    tasks, arguments = [], []
    for number, sweep in enumerate(sweeps):
        task = LaunchTask(
            cell=sweep.cell,
            launch=0,
            device="cpu",
            threads_per_rank=1,
            started_at=time.time(),
            collective_timeout_seconds=60,
        )
        (directory / str(number)).mkdir()
        (directory / str(number) / "task.json").write_text(task.model_dump_json())
        tasks.append(task)
        arguments.append(f"{number},{sweep.spoiled},{sweep.place}")
    (world_size,) = {sweep.cell.world_size for sweep in sweeps}
    forks.run(directory / "script.py", *arguments, ranks=world_size)
    ending = LaunchEnding(EndingKind.FINISHED, 0, "")
    return [
        collect_launch(
            task,
            directory / str(number),
            ending,
            command=(),
            started_at="",
            seconds=1.0,
            oom_kills=0,
        )
        for number, task in enumerate(tasks)
    ]


@pytest.fixture(scope="module")
def right(forks: Forks, tmp_path_factory: pytest.TempPathFactory) -> LaunchRecord:
    sweep = Sweep(cell(dtypes=tuple(DTYPES)))
    (record,) = measured(forks, tmp_path_factory.mktemp("right"), [sweep])
    return record


def test_every_operation_in_every_dtype_is_right_on_three_ranks(right: LaunchRecord) -> None:
    assert right.state is State.OK, right.reason
    assert [rank.rank for rank in payload(right, CollectivesResult).ranks] == [0, 1, 2]
    for rank in payload(right, CollectivesResult).ranks:
        assert rank.unsupported == {}
        found = {(sample.operation, sample.dtype) for sample in rank.samples}
        operations = [name for name in OPERATIONS if name not in ("pairs", "barrier")]
        expected = {(name, dtype) for name in operations for dtype in DTYPES if name != "barrier"}
        assert found == expected | {("barrier", next(iter(DTYPES)))}
        for sample in rank.samples:
            assert len(sample.call_seconds) == 3
            assert sample.mean_seconds > 0
            if sample.operation != "barrier":
                assert sample.wrong_elements == 0
                assert sample.payload_bytes == sample.elements * DTYPES[sample.dtype].itemsize


def test_sizes_are_what_was_asked_rounded_to_equal_parts(right: LaunchRecord) -> None:
    def sizes(operation: str, dtype: str) -> list[int]:
        samples = payload(right, CollectivesResult).ranks[0].samples
        return [
            sample.payload_bytes
            for sample in samples
            if (sample.operation, sample.dtype) == (operation, dtype)
        ]

    assert sizes("all_reduce", "fp32") == [4 << power for power in range(11)]
    # Parts of three ranks: whole elements, at least one of each; equal ones are measured once.
    gathered = sizes("all_gather", "fp32")
    assert gathered[:4] == [12, 24, 60, 120]
    assert all(size % 12 == 0 for size in gathered)


def test_messages_between_every_two_ranks_are_told_by_who_receives(right: LaunchRecord) -> None:
    pairs = [
        (pair.source, pair.target, rank.rank)
        for rank in payload(right, CollectivesResult).ranks
        for pair in rank.pairs
    ]
    assert sorted(pairs) == [(s, t, t) for s in range(3) for t in range(3) if s != t]
    assert all(
        pair.seconds > 0 and pair.wrong_elements == 0
        for rank in payload(right, CollectivesResult).ranks
        for pair in rank.pairs
    )


SPOILED = (
    ("all_reduce", "all_reduce", 700),
    ("all_gather_into_tensor", "all_gather", 500),
    ("reduce_scatter_tensor", "reduce_scatter", 100),
    ("all_to_all_single", "all_to_all", 400),
    ("broadcast", "broadcast", 1000),
)


def test_one_wrong_element_on_one_rank_makes_the_sweep_invalid(
    forks: Forks, tmp_path: Path
) -> None:
    # Enough elements that the ranks' own words to each other, a few numbers each, stay whole.
    options: dict[str, Any] = {"dtypes": ("fp32",), "min_bytes": 4096, "world_size": 2}
    sweeps = [
        Sweep(cell(operations=(operation,), **options), name, place)
        for name, operation, place in SPOILED
    ]
    records = measured(forks, tmp_path, sweeps)
    for (_, operation, _), record in zip(SPOILED, records, strict=True):
        assert record.state is State.INVALID, operation
        assert f"{operation} of 4.00 KiB in fp32: 1 wrong elements on rank 1" in record.reason


def test_elements_tell_where_they_come_from_and_sums_stay_exact() -> None:
    for world_size in (2, 8, 300):
        for dtype in DTYPES:
            ranks = Ranks(0, 0, world_size, torch.device("cpu"), "gloo")
            exchange = AllReduce(ranks, dtype, 4096)
            sums = exchange.sums(0, exchange.elements)
            assert torch.equal(sums.to(DTYPES[dtype]).to(torch.float64), sums.to(torch.float64))
            assert sums.max() > 0
            # Half of the ranks left out would show.
            first = exchange.values(0, 0, exchange.elements)
            assert not torch.equal(first.to(DTYPES[dtype]), sums.to(DTYPES[dtype]))


class Refused(AllReduce):
    """What NCCL from 2.24 on says where NCCL_ALGO leaves nothing for the operation, as torch passes
    it on."""

    def call(self) -> None:
        """Fail as it does at the first call."""
        raise torch.distributed.DistBackendError(
            "NCCL error in: ProcessGroupNCCL.cpp:3690, invalid usage (run with NCCL_DEBUG=WARN "
            "for details), NCCL "
            "version 2.27.5\nncclInvalidUsage: This usually reflects invalid usage of NCCL "
            "library.\nLast error:\n"
            "Error : no algorithm/protocol available for function Broadcast with datatype "
            "ncclInt8. "
            "NCCL_ALGO was set to NVLS."
        )


def swept(
    algorithm: str | None, backend: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> CollectivesRank:
    """A sweep on one rank whose operations do nothing; a broadcast is refused as NCCL refuses
    it."""
    done = type("Done", (AllReduce,), {"call": lambda self: None, "wrong_elements": lambda self: 0})
    monkeypatch.setattr(
        collective_sweep, "COLLECTIVES", {**dict.fromkeys(COLLECTIVES, done), "broadcast": Refused}
    )
    asked = cell(
        operations=("all_reduce", "all_gather", "broadcast", "send_recv"),
        world_size=1,
        algorithm=algorithm,
    )
    task = cpu_task(asked)
    ranks = Ranks(rank=0, local_rank=0, world_size=1, device=torch.device("cpu"), backend=None)
    monkeypatch.setattr(module, "rank_identity", lambda task, ranks: identity(backend))
    return measure_collectives(task, asked, replace(ranks, backend=backend), RankFiles(tmp_path, 0))


def identity(backend: str) -> RankIdentity:
    """Of the only rank."""
    return RankIdentity(
        rank=0, local_rank=0, world_size=1, pid=1, hostname="node-1", backend=backend, threads=1, cpus=(),
        device=DeviceInfo(kind="cpu", index=0, name="Test Processor"), versions=VERSIONS,
    )  # fmt: skip


def test_what_nccl_refuses_is_listed_and_costs_no_other_figure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(Ranks, "barrier", lambda self: None)
    monkeypatch.setattr(Ranks, "broadcast_scalar", lambda self, value: value)
    monkeypatch.setattr(Ranks, "add_up", lambda self, values: values)
    free = swept(None, "nccl", monkeypatch, tmp_path)
    assert {sample.operation for sample in free.samples} == {
        "all_reduce",
        "all_gather",
        "send_recv",
    }
    assert free.unsupported == {
        "broadcast fp32": "Error : no algorithm/protocol available for function Broadcast with "
        "datatype ncclInt8. "
        "NCCL_ALGO was set to NVLS."
    }
    tree = swept("Tree", "nccl", monkeypatch, tmp_path)
    assert {sample.operation for sample in tree.samples} == {"all_reduce", "send_recv"}
    assert tree.unsupported == {
        "all_gather fp32": "NCCL's algorithm Tree implements all_reduce, not all_gather",
        "broadcast fp32": "NCCL's algorithm Tree implements all_reduce, not broadcast",
    }
    # A list or an exclusion leaves NCCL a choice, and gloo has no algorithms.
    assert {
        sample.operation for sample in swept("^Tree", "nccl", monkeypatch, tmp_path).samples
    } >= {"all_gather"}
    assert {
        sample.operation for sample in swept("Tree", "gloo", monkeypatch, tmp_path).samples
    } >= {"all_gather"}
