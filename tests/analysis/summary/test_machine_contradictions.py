"""Records of collectives, rates and memory that say something twice, and differently."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.factories import experiment, launch_record, machine, rank_identity
from torchscale.analysis.summary.contradictions import contradiction
from torchscale.analysis.summary.run import summarize_any
from torchscale.plan.expand import make_plan
from torchscale.schema.cells.checkpoint import (
    CheckpointCell,
    CheckpointRank,
    CheckpointResult,
    LoadSample,
    SaveSample,
)
from torchscale.schema.cells.collectives import (
    CollectiveSample,
    CollectivesCell,
    CollectivesRank,
    CollectivesResult,
    PairSample,
)
from torchscale.schema.cells.hardware import (
    CopySample,
    DiskSample,
    HardwareCell,
    HardwareRank,
    HardwareResult,
    MatmulSample,
)
from torchscale.schema.cells.kinds import AnyCell, AnyPayload
from torchscale.schema.cells.memory import MemoryCell, MemoryParts, MemoryRank, MemoryResult
from torchscale.schema.launch.rank import HostLoad
from torchscale.schema.launch.record import LaunchRecord
from torchscale.schema.run.content import CellRun
from torchscale.schema.run.experiment_file import PlannedCell
from torchscale.schema.state import State

CONTENT: dict[str, Any] = {
    "measure": ["hardware", "collectives", "memory", "checkpoint", "training"],
    "checkpoint": {"repeats": 1},
    "gpu_counts": [2],
    "collectives": {
        "operations": ["all_reduce", "pairs"],
        "dtypes": ["fp32"],
        "min_bytes": 1024,
        "max_bytes": 4096,
        "iterations": 3,
    },
    "hardware": {"matmul_sizes": [64, 128], "copy_bytes": 1024, "disk_bytes": "1MiB"},
}
CELLS: dict[type, AnyCell] = {
    type(entry.cell): entry.cell for entry in make_plan(experiment(**CONTENT), machine()).cells
}


def load(seconds: float) -> HostLoad:
    return HostLoad(
        wall_seconds=seconds, busy_seconds=0.0, process_seconds=0.0, cores=1, pinned=True
    )


def launch(kind: type, payload: AnyPayload) -> LaunchRecord:
    (training,) = make_plan(experiment(gpu_counts=1), machine()).training
    return launch_record(training, cell_id=CELLS[kind].id, payload=payload)


def swept(*changes: Mapping[str, Any], pair: Mapping[str, Any] | None = None) -> LaunchRecord:
    """Two ranks with an all-reduce of 1 KiB, a message to each, and these changes of each rank's
    sample."""
    sample: dict[str, Any] = {
        "operation": "all_reduce",
        "dtype": "fp32",
        "payload_bytes": 1024,
        "elements": 256,
        "in_place": True,
        "mean_seconds": 0.01,
        "call_seconds": (0.01, 0.02, 0.03),
        "wrong_elements": 0,
        "host_load": load(1.0),
    }
    ranks = []
    for rank, change in enumerate(changes or ({}, {})):
        message = {
            "source": 1 - rank,
            "target": rank,
            "payload_bytes": 4096,
            "seconds": 0.1,
            "latency_seconds": 0.01,
            "wrong_elements": 0,
            **(pair or {}),
        }
        measured = CollectiveSample(**{**sample, **change})
        sent = PairSample.model_validate(message)
        ranks.append(CollectivesRank(**rank_identity(rank, 2), samples=(measured,), pairs=(sent,)))
    return launch(CollectivesCell, CollectivesResult(ranks=tuple(ranks)))


def rated(**changes: Any) -> LaunchRecord:
    """Two ranks with a product and a copy each, and these changes of their records."""
    product = MatmulSample(
        dtype="fp32", m=128, n=32, k=32, warm_seconds=(0.1, 0.1), cold_seconds=(0.2,)
    )
    measured: dict[str, Any] = {
        "matmuls": (product,),
        "copies": (CopySample(kind="device", payload_bytes=1024, seconds=(0.1,)),),
        "host_load": load(1.0),
        **changes,
    }
    ranks = tuple(HardwareRank(**rank_identity(rank, 2), **measured) for rank in range(2))
    return launch(HardwareCell, HardwareResult(ranks=ranks))


def stored(**changes: Any) -> LaunchRecord:
    """Two ranks with 10 bytes of parameters at a peak of 50."""
    parts = MemoryParts(parameters=10, buffers=0, gradients=10, optimizer_states=20, activations=5)
    measured = {"parts": parts, "peak_bytes": 50, **changes}
    ranks = tuple(MemoryRank(**rank_identity(rank, 2), **measured) for rank in range(2))
    return launch(MemoryCell, MemoryResult(ranks=ranks))


def checkpointed(**changes: Any) -> LaunchRecord:
    """Two ranks that each saved 50 of 100 bytes, and these changes of each."""
    save = {"payload_bytes": 50, "write_seconds": 0.1, "seconds": 0.2, "stop_seconds": 0.3}
    loaded = {"payload_bytes": 50, "read_seconds": 0.1, "seconds": 0.2, "restored": True}
    samples = {
        "saves": (SaveSample.model_validate({**save, **changes.get("save", {})}),),
        "loads": (LoadSample.model_validate({**loaded, **changes.get("load", {})}),)
        * changes.get("loads", 1),
    }
    ranks = tuple(
        CheckpointRank(**rank_identity(rank, 2), place="/data", state_bytes=100, **samples)
        for rank in range(2)
    )
    return launch(CheckpointCell, CheckpointResult(ranks=ranks))


SOUND: dict[type, Callable[[], LaunchRecord]] = {
    CollectivesCell: swept,
    HardwareCell: rated,
    MemoryCell: stored,
    CheckpointCell: checkpointed,
}
BARRIER = {"operation": "barrier", "payload_bytes": 0, "elements": 0, "wrong_elements": None}
HUGE = MatmulSample(dtype="fp32", m=6400, n=6400, k=6400, warm_seconds=(0.1,))
OTHER_TYPE = MatmulSample(dtype="fp64", m=64, n=64, k=64, warm_seconds=(0.1,))
DISK = DiskSample(
    path="/data",
    payload_bytes=1 << 30,
    write_seconds=1.0,
    read_seconds=1.0,
    resident_share=None,
)
CASES: dict[str, tuple[type, Callable[[], LaunchRecord], str]] = {
    "wrong elements": (
        CollectivesCell,
        lambda: swept({}, {"wrong_elements": 3}),
        "rank 1 received wrong elements",
    ),
    "wrong elements of a message": (
        CollectivesCell,
        lambda: swept(pair={"wrong_elements": 3}),
        "rank 0 received wrong elements",
    ),
    "a payload of other elements": (
        CollectivesCell,
        lambda: swept({"payload_bytes": 4096}, {"payload_bytes": 4096}),
        "all_reduce of 4096 bytes is of 256 elements of 4 bytes",
    ),
    "a payload that was not asked for": (
        CollectivesCell,
        lambda: swept(*[{"payload_bytes": 8192, "elements": 2048}] * 2),
        "all_reduce of 8192 bytes, which its cell does not have",
    ),
    "an operation that was not asked for": (
        CollectivesCell,
        lambda: swept(BARRIER, BARRIER),
        "barrier of 0 bytes, which its cell does not have",
    ),
    "another operation on each rank": (
        CollectivesCell,
        lambda: swept({}, {"payload_bytes": 2048, "elements": 512}),
        "its ranks called different operations",
    ),
    "calls longer than the time": (
        CollectivesCell,
        lambda: swept({"mean_seconds": 0.5}, {}),
        "its calls took 1.56 s of 1 s",
    ),
    "a message to itself": (
        CollectivesCell,
        lambda: swept(pair={"source": 0, "target": 0}),
        "rank 0 timed messages of rank 0 to 0",
    ),
    "a message of nobody": (
        CollectivesCell,
        lambda: swept(pair={"source": 7}),
        "rank 0 timed messages of rank 7 to 0",
    ),
    "a product that was not asked for": (
        HardwareCell,
        lambda: rated(matmuls=(HUGE,)),
        "multiplied fp32 of 6400 × 6400 × 6400, which its cell does not have",
    ),
    "a dtype that was not asked for": (
        HardwareCell,
        lambda: rated(matmuls=(OTHER_TYPE,)),
        "multiplied fp64 of 64 × 64 × 64, which its cell does not have",
    ),
    "a larger copy": (
        HardwareCell,
        lambda: rated(copies=(CopySample(kind="device", payload_bytes=9999, seconds=(0.1,)),)),
        "rank 0 copied 9999 bytes, its cell has 1024",
    ),
    "a larger file": (
        HardwareCell,
        lambda: rated(disk=DISK),
        "rank 0 wrote 1073741824 bytes to the disk, its cell has 1048576",
    ),
    "products longer than the time": (
        HardwareCell,
        lambda: rated(host_load=load(0.1)),
        "its products and copies took 0.5 s of 0.1 s",
    ),
    "a peak below the parameters": (
        MemoryCell,
        lambda: stored(peak_bytes=9),
        "its peak of 9 bytes is below its parameters of 10",
    ),
    "less reserved than allocated": (
        MemoryCell,
        lambda: stored(reserved_bytes=49),
        "50 bytes were allocated of 49 that were reserved",
    ),
    "another number of loads": (
        CheckpointCell,
        lambda: checkpointed(loads=2),
        "rank 0 has 1 saves and 2 loads, its cell 1 of each",
    ),
    "less saved than there is": (
        CheckpointCell,
        lambda: checkpointed(save={"payload_bytes": 49}),
        "98 bytes were saved of a state of 100",
    ),
    "a stop shorter than the save": (
        CheckpointCell,
        lambda: checkpointed(save={"stop_seconds": 0.15}),
        "a save of 0.2 s, for which training stopped 0.15 s",
    ),
    "a read longer than the load": (
        CheckpointCell,
        lambda: checkpointed(load={"read_seconds": 0.25}),
        "rank 0 read for 0.25 s of a load of 0.2 s",
    ),
    "a state that did not come back": (
        CheckpointCell,
        lambda: checkpointed(load={"restored": False}),
        "rank 0 did not get back what was saved",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_record_that_contradicts_itself_is_invalid_with_the_reason(case: str) -> None:
    kind, make, said = CASES[case]
    summary = summarize_any(CellRun(PlannedCell(cell=CELLS[kind]), (make(),)))
    assert summary.state is State.INVALID
    assert said in summary.reason


@pytest.mark.parametrize("kind", SOUND)
def test_a_sound_record_is_none(kind: type) -> None:
    run = CellRun(PlannedCell(cell=CELLS[kind]), (SOUND[kind](),))
    assert contradiction(run) is None


def test_what_was_not_read_is_not_judged() -> None:
    """Records of earlier versions have no load of the host."""
    for kind, record in (
        (CollectivesCell, swept(*[{"host_load": None}] * 2)),
        (HardwareCell, rated(host_load=None)),
    ):
        assert contradiction(CellRun(PlannedCell(cell=CELLS[kind]), (record,))) is None


def test_parameters_in_the_memory_of_the_host_are_not_in_the_peak() -> None:
    content = {**CONTENT, "parallel": {"strategy": {"name": "fsdp", "offload": True}}}
    plan = make_plan(experiment(**content), machine())
    (cell,) = (entry.cell for entry in plan.cells if isinstance(entry.cell, MemoryCell))
    record = stored(peak_bytes=9).model_copy(update={"cell_id": cell.id})
    assert contradiction(CellRun(PlannedCell(cell=cell), (record,))) is None
