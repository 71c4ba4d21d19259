from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.factories import cells, launch_record, rank_record, trained
from torchscale.analysis.stats.series import digest
from torchscale.analysis.summary.contradictions import contradiction
from torchscale.analysis.summary.run import summarize_any
from torchscale.schema.launch.failure import FailureKind, RankFailure
from torchscale.schema.launch.record import LaunchRecord
from torchscale.schema.launch.steps import RankSteps, StepDigest
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


def short() -> StepDigest:
    return StepDigest(
        seconds=digest([5.0, 5.0]),
        mean_data_wait=0,
        mean_forward=0,
        mean_backward=0,
        mean_optimizer=0,
    )


@pytest.mark.parametrize("case", CASES)
def test_a_record_that_contradicts_itself_is_invalid_with_the_reason(case: str) -> None:
    make, said = CASES[case]
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
