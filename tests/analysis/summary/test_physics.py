"""Records of each kind in which a part exceeds its whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.factories import (
    cells,
    experiment,
    launch_nodes,
    launch_record,
    machine,
    rank_identity,
    rank_record,
)
from torchscale.analysis.summary.physics import impossible
from torchscale.analysis.summary.run import summarize_any
from torchscale.plan.expand import make_plan
from torchscale.schema.cells.checkpoint import (
    CheckpointRank,
    CheckpointResult,
    LoadSample,
    SaveSample,
)
from torchscale.schema.cells.collectives import (
    CollectiveSample,
    CollectivesRank,
    CollectivesResult,
)
from torchscale.schema.cells.hardware import (
    CopySample,
    HardwareRank,
    HardwareResult,
    MatmulSample,
)
from torchscale.schema.cells.kinds import AnyCell, AnyPayload
from torchscale.schema.cells.memory import MemoryParts, MemoryRank, MemoryResult
from torchscale.schema.launch.rank import HostLoad
from torchscale.schema.launch.record import LaunchRecord
from torchscale.schema.launch.signals import SignalDigest
from torchscale.schema.launch.steps import RankSteps, StepDigest
from torchscale.schema.run.content import CellRun
from torchscale.schema.run.experiment_file import PlannedCell
from torchscale.schema.state import State

CONTENT: dict[str, Any] = {
    "measure": ["hardware", "collectives", "memory", "checkpoint", "training"],
    "checkpoint": {"repeats": 1},
    "gpu_counts": [2],
}
CELLS: dict[str, AnyCell] = {
    entry.cell.kind: entry.cell for entry in make_plan(experiment(**CONTENT), machine()).cells
}
CELL = cells(gpu_counts=[2])[0]


def with_ranks(*changes: Mapping[str, Any], **of_record: Any) -> LaunchRecord:
    """A training launch of as many ranks as there are changes."""
    ranks = [rank_record(CELL, **{"rank": place, **change}) for place, change in enumerate(changes)]
    return launch_record(CELL, ranks=ranks, **of_record)


def loaded(seconds: float) -> HostLoad:
    """The load of a measurement that took so long."""
    return HostLoad(
        wall_seconds=seconds, busy_seconds=0.0, process_seconds=0.0, cores=1, pinned=True
    )


def with_digest(**changes: Any) -> LaunchRecord:
    """A launch with these changes of the digest of its steps, of 0.1 s."""
    steps = launch_record(CELL).payload.steps  # type: ignore[union-attr]
    assert isinstance(steps, StepDigest)
    return launch_record(
        CELL,
        steps=steps.model_copy(update={"seconds": steps.seconds.model_copy(update=changes)}),
    )


def with_rank_steps(**changes: Any) -> LaunchRecord:
    """The same of each rank's steps."""
    digest = launch_record(CELL).payload.steps  # type: ignore[union-attr]
    return launch_record(
        CELL,
        rank_steps=RankSteps.of([digest] * 2).model_copy(update=changes),  # type: ignore[list-item]
    )


def with_signals(**changes: Any) -> LaunchRecord:
    """Of two ranks and ten batches."""
    signals = SignalDigest(compute=((0.05,) * 10,) * 2, data_wait=((0.0,) * 10,) * 2)
    return launch_record(CELL, signals=signals.model_copy(update=changes))


def launch(kind: str, payload: AnyPayload) -> LaunchRecord:
    return launch_record(CELL, cell_id=CELLS[kind].id, payload=payload)


def swept(*ranks: int, **changes: Any) -> LaunchRecord:
    """An all-reduce on each rank, with these changes."""
    sample: dict[str, Any] = {
        "operation": "all_reduce",
        "dtype": "fp32",
        "payload_bytes": 1024,
        "elements": 256,
        "in_place": True,
        "mean_seconds": 0.01,
        "call_seconds": (0.01, 0.02, 0.03),
        "wrong_elements": 0,
        "host_load": loaded(1.0),
        **changes,
    }
    made = (
        CollectivesRank(**rank_identity(rank, 2), samples=(CollectiveSample(**sample),))
        for rank in ranks or (0, 1)
    )
    return launch("collectives", CollectivesResult(ranks=tuple(made)))


def rated(**changes: Any) -> LaunchRecord:
    """A product and a copy on each rank."""
    product = MatmulSample(
        dtype="fp32", m=128, n=32, k=32, warm_seconds=(0.1, 0.1), cold_seconds=(0.2,)
    )
    measured: dict[str, Any] = {
        "matmuls": (product,),
        "copies": (CopySample(kind="device", payload_bytes=1024, seconds=(0.1,)),),
        "host_load": loaded(1.0),
        **changes,
    }
    ranks = tuple(HardwareRank(**rank_identity(rank, 2), **measured) for rank in range(2))
    return launch("hardware", HardwareResult(ranks=ranks))


def stored(**changes: Any) -> LaunchRecord:
    """A peak of 50 bytes on each rank."""
    parts = MemoryParts(parameters=10, buffers=0, gradients=10, optimizer_states=20, activations=5)
    ranks = tuple(
        MemoryRank(**rank_identity(rank, 2), parts=parts, peak_bytes=50, **changes)
        for rank in range(2)
    )
    return launch("memory", MemoryResult(ranks=ranks))


def checkpointed(**changes: Any) -> LaunchRecord:
    """A save and a load on each rank, with these changes of them."""
    save = {"payload_bytes": 50, "write_seconds": 0.1, "write_cpu_seconds": 0.1}
    load = {"payload_bytes": 50, "read_seconds": 0.1, "read_cpu_seconds": 0.1, "seconds": 0.2}
    saves = {**save, "seconds": 0.2, "stop_seconds": 0.3, **changes.get("save", {})}
    loads = {**load, "restored": True, **changes.get("load", {})}
    ranks = tuple(
        CheckpointRank(
            **rank_identity(rank, 2),
            place="/data",
            state_bytes=100,
            saves=(SaveSample.model_validate(saves),),
            loads=(LoadSample.model_validate(loads),),
        )
        for rank in range(2)
    )
    return launch("checkpoint", CheckpointResult(ranks=ranks))


APART = "it has not the records of 2 ranks that ran together"
CASES: dict[str, tuple[Callable[[], LaunchRecord], str]] = {
    "a rank twice": (lambda: with_ranks({}, {"rank": 0}), APART),
    "a rank too many": (lambda: with_ranks({}, {"rank": 7}), APART),
    "another world size": (lambda: with_ranks({"world_size": 8}, {"world_size": 8}), APART),
    "other batches": (lambda: with_ranks({}, {"batches": (1.0,) * 9}), APART),
    "steps of fewer ranks": (lambda: with_rank_steps(**short_columns()), APART),
    "signals of fewer ranks": (lambda: with_signals(compute=((0.05,) * 10,)), APART),
    "a rank too few": (lambda: swept(0), APART),
    "more samples": (
        lambda: with_ranks({"samples_per_step": 80}, {}),
        "rank 0: 80 samples of a step, 8 of its cell",
    ),
    "fewer samples": (
        lambda: with_ranks({}, {"samples_per_step": 4}),
        "rank 1: 8 samples of its cell, 4 of a step",
    ),
    "more than the measurement took": (
        lambda: with_ranks({"host_load": loaded(1.0)}, {}),
        "rank 0: 10 seconds of batches, 1 of the measurement",
    ),
    "a launch of no time": (
        lambda: launch_record(CELL, seconds=0.001),
        "rank 0: 12 seconds of ranks, 0.001 of the launch",
    ),
    "batches of a tenth": (
        lambda: with_ranks({"batches": (0.1,) * 10}, {"batches": (0.1,) * 10}),
        "steps: 10 seconds of steps, 1 of their batches",
    ),
    "fewer steps": (
        lambda: with_rank_steps(count=(2, 2)),
        "steps: 10 seconds of batches, 0.2 of their steps",
    ),
    "phases of other steps": (
        lambda: with_rank_steps(mean_forward=(0.3, 0.3)),
        "half of its phases, 0.1 of a step",
    ),
    "a phase below zero": (
        lambda: with_rank_steps(mean_forward=(-0.3, 0.3)),
        "half of its phases, 0.1 of a step",
    ),
    "p50 above p95": (
        lambda: with_digest(p50=0.2),
        "steps: 0.2 seconds of a shorter step, 0.1 of a longer one",
    ),
    "a mean beyond the maximum": (
        lambda: with_digest(mean=9.0),
        "steps: 9 seconds of a shorter step, 0.1 of a longer one",
    ),
    "compute longer than any step": (
        lambda: with_signals(compute=((3.0,) * 10, (0.05,) * 10)),
        "steps: 3 seconds of a part, 0.1 of the longest step",
    ),
    "a transfer longer than any step": (
        lambda: with_signals(transfer=(2.0,) * 10),
        "steps: 2 seconds of a part, 0.1 of the longest step",
    ),
    "an exchange longer than any step": (
        lambda: with_signals(exposed_p50=1.0, exposed_p95=2.0),
        "steps: 2 seconds of a part, 0.1 of the longest step",
    ),
    "calls longer than the time": (
        lambda: swept(mean_seconds=0.5),
        "rank 0: 1.56 seconds of calls, 1 of the measurement",
    ),
    "products longer than the time": (
        lambda: rated(host_load=loaded(0.1)),
        "rank 0: 0.5 seconds of products and copies, 0.1 of the measurement",
    ),
    "less reserved than allocated": (
        lambda: stored(reserved_bytes=40),
        "rank 0: 50 bytes allocated, 40 reserved",
    ),
    "a write longer than the save": (
        lambda: checkpointed(save={"write_seconds": 0.25}),
        "rank 0: 0.25 seconds of a write, 0.2 of its save",
    ),
    "a stop shorter than the save": (
        lambda: checkpointed(save={"stop_seconds": 0.15}),
        "rank 0: 0.2 seconds of a save, 0.15 without training",
    ),
    "a read longer than the load": (
        lambda: checkpointed(load={"read_seconds": 0.25}),
        "rank 0: 0.25 seconds of a read, 0.2 of its load",
    ),
}


def short_columns() -> dict[str, Any]:
    """Columns of steps of one rank."""
    digest = launch_record(CELL).payload.steps  # type: ignore[union-attr]
    return dict(RankSteps.of([digest]))  # type: ignore[list-item]


def run_of(record: LaunchRecord) -> CellRun:
    """A run of the cell that the record is of."""
    cell = next((cell for cell in CELLS.values() if cell.id == record.cell_id), CELL)
    return CellRun(PlannedCell(cell=cell), (record,))


@pytest.mark.parametrize("case", CASES)
def test_a_part_beyond_its_whole_makes_the_cell_invalid_with_the_reason(case: str) -> None:
    make, said = CASES[case]
    summary = summarize_any(run_of(make()))
    assert summary.state is State.INVALID
    assert summary.reason.startswith("the record contradicts itself (launch 0: ")
    assert said in summary.reason
    assert getattr(summary, "figures", None) is None


SOUND: dict[str, Callable[[], LaunchRecord]] = {
    "training": lambda: launch_record(CELL),
    "after an error of torchrun": lambda: launch_record(CELL, exit_code=1),
    "with signals": with_signals,
    "hardware": rated,
    "collectives": swept,
    "memory": stored,
    "checkpoint": checkpointed,
    "collectives of earlier versions": lambda: swept(host_load=None),
    "hardware of earlier versions": lambda: rated(host_load=None),
}


@pytest.mark.parametrize("case", SOUND)
def test_a_sound_record_is_possible(case: str) -> None:
    assert impossible(run_of(SOUND[case]())) is None


def test_a_failed_launch_shows_no_figure_and_is_not_judged() -> None:
    record = launch_record(
        CELL, state=State.CRASHED, reason="rank 0 crashed", ranks=[rank_record(CELL, 7)]
    )
    assert impossible(run_of(record)) is None


def test_each_cell_of_the_factories_is_sound() -> None:
    for cell in cells(gpu_counts=[1, 2, 4], models=["tiny-resnet", "tiny-decoder"]):
        run = CellRun(PlannedCell(cell=cell), (launch_record(cell), launch_record(cell, 1)))
        assert impossible(run) is None


def test_ranks_of_several_nodes_may_have_equal_places() -> None:
    elsewhere = {"node_rank": 1, "hostname": "node-2", "local_rank": 0, "pid": 100}
    record = with_ranks({}, elsewhere, nodes=launch_nodes("node-1", "node-2"))
    assert impossible(run_of(record)) is None
