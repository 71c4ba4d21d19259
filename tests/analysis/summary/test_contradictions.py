from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from tests.factories import (
    VERSIONS,
    cells,
    launch_nodes,
    launch_record,
    rank_record,
    trained,
)
from torchscale.analysis.stats.series import digest
from torchscale.analysis.summary.contradictions import contradiction
from torchscale.analysis.summary.run import summarize_any
from torchscale.schema.launch.documents import DocumentUse
from torchscale.schema.launch.failure import FailureKind, RankFailure
from torchscale.schema.launch.hang import Autopsy
from torchscale.schema.launch.rank import HostLoad, MemoryUse
from torchscale.schema.launch.record import LaunchRecord
from torchscale.schema.launch.signals import RankSignals, SignalDigest
from torchscale.schema.launch.steps import BatchTimes, EpochSample, RankSteps, StepDigest
from torchscale.schema.node.environment import DeviceInfo
from torchscale.schema.run.content import CellRun
from torchscale.schema.run.experiment_file import PlannedCell
from torchscale.schema.state import State

CELL = cells(gpu_counts=[2])[0]


def cell_run(record: LaunchRecord) -> CellRun:
    return CellRun(PlannedCell(cell=CELL), (record,))


def with_ranks(*changes: Mapping[str, Any], **of_record: Any) -> LaunchRecord:
    return launch_record(
        CELL,
        ranks=[
            rank_record(CELL, **{"rank": place, **change}) for place, change in enumerate(changes)
        ],
        **of_record,
    )


def with_steps(**changes: Any) -> LaunchRecord:
    record = launch_record(CELL)
    steps = record.payload.steps  # type: ignore[union-attr]
    assert isinstance(steps, StepDigest)
    changed = steps.model_copy(update={"seconds": steps.seconds.model_copy(update=changes)})
    return launch_record(CELL, steps=changed)


FAILURE = RankFailure(
    rank=1, kind=FailureKind.ERROR, type="ValueError", message="x", traceback="", time=0.0
)
CASES: dict[str, tuple[Callable[[], LaunchRecord], str]] = {
    "a rank twice": (lambda: with_ranks({}, {"rank": 0}), "rank 0 is in it 2 times"),
    "a rank too many": (lambda: with_ranks({}, {"rank": 7}), "rank 7 of 2 ranks"),
    "another world size": (
        lambda: with_ranks({"world_size": 8}, {"world_size": 8}),
        "ran among 8 ranks, its cell has 2",
    ),
    "more samples": (
        lambda: with_ranks({"samples_per_step": 80}, {}),
        "trained 80 samples a step, its cell has 8",
    ),
    "batches of a tenth": (
        lambda: with_ranks({"batches": (0.1,) * 10}, {"batches": (0.1,) * 10}),
        "the steps in them 10 s",
    ),
    "more than the measurement took": (
        lambda: with_ranks(
            {"host_load": rank_record(CELL).host_load.model_copy(update={"wall_seconds": 1.0})}, {}
        ),
        "its batches took 10 s, the measurement 1 s",
    ),
    "a clock that goes slower": (
        lambda: with_ranks(
            {"host_load": rank_record(CELL).host_load.model_copy(update={"wall_seconds": 1000.0})},
            {},
        ),
        "its batches took 10 s of a measurement of 1000 s",
    ),
    "a loss that is not finite": (
        lambda: with_ranks({"losses_finite": False}, {}),
        "a loss of rank 0 was not finite",
    ),
    "other parameters": (
        lambda: with_ranks({}, {"parameters_equal": False}),
        "rank 1 held other parameters",
    ),
    "nothing trained": (
        lambda: with_ranks({"parameters_changed": False}, {}),
        "no parameter of rank 0 changed",
    ),
    "a failure": (lambda: launch_record(CELL, failures=(FAILURE,)), "rank 1 failed (ValueError)"),
    "a launch of no time": (
        lambda: launch_record(CELL, seconds=0.001),
        "it took 0.001 s, and its warm-up and batches 12 s",
    ),
    "NCCL on a CPU": (
        lambda: with_ranks({"backend": "nccl"}, {}),
        "computed on a CPU and communicated by nccl",
    ),
    "p50 above p95": (lambda: with_steps(p50=0.2), "p50 0.2 s is above p95 0.1 s"),
    "a mean beyond the maximum": (lambda: with_steps(mean=9.0), "mean 9 s is not between"),
    "values in no order": (
        lambda: with_steps(values=(0.2, 0.1)),
        "not those of 100 steps in ascending order",
    ),
    "fewer steps": (
        lambda: launch_record(CELL, rank_steps=RankSteps.of([short()] * 2)),
        "measured 100 steps, and has the times of 2",
    ),
}


def with_cell_steps(group: Sequence[float], *ranks: Sequence[float]) -> LaunchRecord:
    """Two ranks with these steps, whose batches are these steps, and a digest of the group's."""
    made = [
        rank_record(CELL, place).model_copy(
            update={"batches": BatchTimes(steps=(1,) * len(steps), seconds=tuple(steps))}
        )
        for place, steps in enumerate(ranks)
    ]
    of_ranks = RankSteps.of([steps_of(steps) for steps in ranks])
    walls = [
        rank.model_copy(update={"host_load": loaded(rank.batches.total_seconds)}) for rank in made
    ]
    return launch_record(
        CELL, ranks=walls, steps=steps_of(group), rank_steps=of_ranks, seconds=100.0
    )


def loaded(seconds: float) -> HostLoad:
    return rank_record(CELL).host_load.model_copy(update={"wall_seconds": seconds})


def steps_of(seconds: Sequence[float], **phases: float) -> StepDigest:
    return StepDigest(
        seconds=digest(seconds),
        **{
            "mean_data_wait": 0.0,
            "mean_forward": 0.0,
            "mean_backward": 0.0,
            "mean_optimizer": 0.0,
            **phases,
        },
    )


def with_signals(**changes: Any) -> LaunchRecord:
    """Of two ranks and ten batches of steps of 0.1 s."""
    signals = SignalDigest(compute=((0.05,) * 10,) * 2, data_wait=((0.0,) * 10,) * 2)
    return launch_record(CELL, signals=signals.model_copy(update=changes))


def with_rank_signals(seconds: float, wall: float) -> LaunchRecord:
    signals = RankSignals(
        unsynchronized_seconds=(seconds,) * 4,
        unsynchronized_wall_seconds=wall,
        collections=0,
        collection_seconds=0.0,
        longest_collection_seconds=0.0,
        page_faults=0,
    )
    return with_ranks({"signals": signals}, {})


def with_setup(**changes: float) -> LaunchRecord:
    setup = rank_record(CELL).setup
    assert setup is not None
    return with_ranks({"setup": setup.model_copy(update=changes)}, {})


def with_warmup(**changes: Any) -> LaunchRecord:
    return with_ranks({"warmup": rank_record(CELL).warmup.model_copy(update=changes)}, {})


GPU = DeviceInfo(kind="cuda", index=0, name="NVIDIA H100")
OTHER_TORCH = {"versions": VERSIONS.model_copy(update={"torch": "1.0.0"})}
AUTOPSY = Autopsy(cause="unknown", confidence="low", summary="rank 1 hangs")
MORE_CASES: dict[str, tuple[Callable[[], LaunchRecord], str]] = {
    "another device": (
        lambda: with_ranks({}, {"device": GPU}),
        "its ranks have different devices: cpu, cuda",
    ),
    "another backend": (
        lambda: with_ranks({}, {"backend": "mpi"}),
        "its ranks have different backends: gloo, mpi",
    ),
    "another torch": (
        lambda: with_ranks({}, OTHER_TORCH),
        "its ranks have different versions of torch: 1.0.0, ",
    ),
    "a host of its own": (
        lambda: with_ranks({}, {"hostname": "elsewhere"}),
        "rank 1 ran on elsewhere, others of its node on node-1",
    ),
    "a place twice": (
        lambda: with_ranks({}, {"local_rank": 0}),
        "two ranks of one node have local rank 0",
    ),
    "a process twice": (lambda: with_ranks({}, {"pid": 100}), "two ranks of one node have pid 100"),
    "a node too many": (
        lambda: with_ranks({}, {"node_rank": 1}),
        "its ranks ran on several nodes, and it is a launch on one",
    ),
    "nodes of other ranks": (
        lambda: launch_record(CELL, nodes=launch_nodes("a", "b", "c")),
        "3 ranks on its nodes, its cell has 2",
    ),
    "an explained failure": (
        lambda: launch_record(CELL, autopsy=AUTOPSY),
        "it is explained as a failure: rank 1 hangs",
    ),
    "another model": (
        lambda: with_ranks({}, {"parameters": 7}),
        "its ranks say different parameters of the model: 7, 1000",
    ),
    "other tokens": (
        lambda: with_ranks({"tokens_per_step": 80}, {"tokens_per_step": 800}),
        "its ranks say different tokens a step: 80, 800",
    ),
    "tokens of one rank": (
        lambda: with_ranks({"tokens_per_step": 80}, {}),
        "its ranks say different tokens a step: 0, 80",
    ),
    "tokens of no sample": (
        lambda: with_ranks({"tokens_per_step": 81}, {"tokens_per_step": 81}),
        "rank 0 trained 81 tokens a step, in 8 samples",
    ),
    "a first step longer than the warm-up": (
        lambda: with_setup(first_step_seconds=20.0),
        "its first step took 20 s of 2 s warm-up",
    ),
    "a warm-up of fewer steps": (
        lambda: with_warmup(steps=3),
        "batches of its warm-up have 20 steps in 2 s, all of it 3 in 2 s",
    ),
    "a shorter warm-up": (
        lambda: with_warmup(seconds=0.5),
        "batches of its warm-up have 20 steps in 2 s, all of it 20 in 0.5 s",
    ),
    "a start longer than the launch": (
        lambda: with_setup(import_seconds=100.0),
        "it took 17 s, and the start of rank 0 101.1 s",
    ),
    "memory of a GPU": (
        lambda: with_ranks({"memory": MemoryUse(peak_allocated_bytes=1)}, {}),
        "rank 0 computed on a CPU, and has memory of a GPU",
    ),
    "a peak below the start": (
        lambda: with_ranks(
            {"memory": MemoryUse(resident_before_bytes=9, resident_peak_bytes=1)}, {}
        ),
        "the peak of its memory is below what it had before",
    ),
    "more passes than time": (
        lambda: with_rank_signals(1.0, 2.0),
        "passes without synchronization took 4 s of 2 s",
    ),
    "a batch no step explains": (
        lambda: with_ranks({"batches": (0.5,) + (1.0,) * 8 + (1.5,)}, {}),
        "a batch of 10 steps took 0.5 s, and steps take 0.1 to 0.1 s",
    ),
    "phases of other steps": (
        lambda: launch_record(CELL, rank_steps=RankSteps.of([phased(0.3)] * 2)),
        "steps of rank 0: 0.1 s on the average, their phases 0.3 s",
    ),
    "phases of another group": (
        lambda: launch_record(CELL, steps=phased(0.3)),
        "steps: 0.1 s on the average, their phases 0.3 s",
    ),
    "steps of another group": (
        lambda: with_cell_steps([0.1] * 50, [0.1] * 100, [0.1] * 100),
        "50 steps of the group, 100 of its ranks",
    ),
    "a group without its longest step": (
        lambda: with_cell_steps([0.1] * 100, [0.1] * 99 + [0.2], [0.1] * 100),
        "the longest step took 0.1 s, that of its ranks 0.2 s",
    ),
    "a group faster than its ranks": (
        lambda: with_cell_steps([0.1] * 99 + [0.2], [0.2] * 100, [0.1] * 100),
        "steps of the group took 0.101 s on the average, those of its slowest rank 0.2 s",
    ),
    "a value beyond the maximum": (
        lambda: with_steps(values=(0.1, 9.0)),
        "its values are not between the shortest and the longest step",
    ),
    "blame of more than all": (
        lambda: with_signals(blame=(5.0, -4.0)),
        "blame holds shares that are not between 0 and 1",
    ),
    "an exchange longer than any step": (
        lambda: with_signals(exposed_p50=1.0, exposed_p95=2.0),
        "exposed_p95 of 2 s, the longest step took 0.11 s",
    ),
    "compute longer than any step": (
        lambda: with_signals(compute=((3.0,) * 10, (0.05,) * 10)),
        "compute of 3 s, the longest step took 0.11 s",
    ),
    "an epoch of more samples": (
        lambda: launch_record(
            CELL, epochs=(EpochSample(epoch=0, steps=3, seconds=1.0, samples=99),)
        ),
        "epoch 0 has 3 steps of 16 samples, and 99 samples",
    ),
}


def phased(seconds: float) -> StepDigest:
    return steps_of([0.1] * 100, mean_forward=seconds)


def short() -> StepDigest:
    return StepDigest(
        seconds=digest([5.0, 5.0]),
        mean_data_wait=0,
        mean_forward=0,
        mean_backward=0,
        mean_optimizer=0,
    )


@pytest.mark.parametrize("case", [*CASES, *MORE_CASES])
def test_a_record_that_contradicts_itself_is_invalid_with_the_reason(case: str) -> None:
    make, said = {**CASES, **MORE_CASES}[case]
    summary = summarize_any(cell_run(make()))
    assert summary.state is State.INVALID
    assert said in summary.reason
    assert getattr(summary, "figures", None) is None


def test_a_sound_record_is_none() -> None:
    assert contradiction(cell_run(launch_record(CELL))) is None
    assert (
        contradiction(cell_run(launch_record(CELL, exit_code=1))) is None
    )  # torchrun, after every rank had measured


def test_a_failed_launch_shows_no_figure_and_is_not_judged() -> None:
    record = launch_record(
        CELL, state=State.CRASHED, reason="rank 0 crashed", ranks=[rank_record(CELL, 1)]
    )
    assert contradiction(cell_run(record)) is None


def test_each_cell_of_the_factories_is_sound() -> None:
    for cell in cells(gpu_counts=[1, 2, 4], models=["tiny-resnet", "tiny-decoder"]):
        run = CellRun(PlannedCell(cell=cell), (launch_record(cell), launch_record(cell, 1)))
        assert contradiction(run) is None
        assert trained(run.planned) == cell


def test_the_length_of_a_sequence_is_known_of_our_models_alone() -> None:
    """Of a user's, the option may mean anything."""
    options = {"sequence_length": 16, "num_layers": 1, "hidden_size": 8, "num_heads": 1}
    for model, wrong in (("tiny-decoder", True), ("user:build", False)):
        (cell,) = cells(models=[{"name": model, **options}], gpu_counts=[1])
        for tokens, contradicts in ((16, False), (32, wrong)):
            ranks = [rank_record(cell, tokens_per_step=tokens * cell.per_device_batch_size)]
            run = CellRun(PlannedCell(cell=cell), (launch_record(cell, ranks=ranks),))
            assert (contradiction(run) is not None) is contradicts, (model, tokens)


@pytest.mark.parametrize(
    ("use", "told"),
    [
        ((60.0, 100.0, 2000.0), None),
        ((128.0, 128.0, 128.0 * 64), None),
        (None, "rank 0 has no documents, against what its cell asks for"),
        ((110.0, 100.0, 2000.0), "rank 0 trained 110 tokens of documents a step, computed 100"),
        ((60.0, 129.0, 2000.0), "and has room for 128"),
        ((60.0, 100.0, 59.0), "59 pairs of tokens a step are not of 60 tokens in documents"),
        ((60.0, 100.0, 60.0 * 65), "pairs of tokens a step are not of 60 tokens in documents"),
    ],
)
def test_tokens_of_documents_fit_their_samples(
    use: tuple[float, float, float] | None, told: str | None
) -> None:
    (cell,) = cells(
        models={"name": "tiny-decoder", "seq_len": 64},
        batch_sizes=2,
        gpu_counts=[1],
        data={"lengths": {"median": 40, "sigma": 1.0}},
    )
    documents = None
    if use is not None:
        documents = DocumentUse(
            real_tokens_per_step=use[0],
            computed_tokens_per_step=use[1],
            document_pairs_per_step=use[2],
        )
    record = launch_record(cell, ranks=[rank_record(cell, documents=documents)])
    found = contradiction(CellRun(PlannedCell(cell=cell), (record,)))
    assert found is None if told is None else told in (found or "")


def test_a_gpu_of_a_cell_for_cpus_and_memory_that_was_not_reserved() -> None:
    (cell,) = cells(gpu_counts=[1], device="cpu")
    gpu = CellRun(
        PlannedCell(cell=cell), (launch_record(cell, ranks=[rank_record(cell, device=GPU)]),)
    )
    assert contradiction(gpu) == "launch 0: rank 0 computed on cuda, its cell on cpu"
    (cell,) = cells(gpu_counts=[1])
    use = MemoryUse(peak_allocated_bytes=20, peak_reserved_bytes=10)
    record = launch_record(cell, ranks=[rank_record(cell, device=GPU, memory=use)])
    run = CellRun(PlannedCell(cell=cell), (record,))
    assert contradiction(run) == "launch 0: rank 0: more memory was allocated than reserved"


def test_what_differs_for_good_reasons_is_sound() -> None:
    """Ranks of several nodes have equal local ranks and pids; memory and times are their own."""
    elsewhere: dict[str, Any] = {
        "node_rank": 1,
        "hostname": "node-2",
        "local_rank": 0,
        "pid": 100,
        "threads": 4,
        "memory": MemoryUse(resident_before_bytes=1, resident_peak_bytes=9),
    }
    record = with_ranks({}, elsewhere, nodes=launch_nodes("node-1", "node-2"))
    assert contradiction(cell_run(record)) is None
    slower = with_cell_steps([0.2] * 50 + [0.3] * 50, [0.1] * 50 + [0.3] * 50, [0.2] * 100)
    assert contradiction(cell_run(slower)) is None
