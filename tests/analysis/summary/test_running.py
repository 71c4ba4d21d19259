"""The summary that follows a run: equal to summarizing everything again, for a fraction of the
work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.factories import (
    experiment,
    experiment_file,
    launch_record,
    machine,
    rank_record,
    trained,
)
from tests.report.test_machine import record as record_of_any_kind
from torchscale.analysis.summary import running
from torchscale.analysis.summary.run import assemble, summarize, summarize_any
from torchscale.analysis.summary.running import RunningSummary, SeparateCells
from torchscale.plan.expand import make_plan
from torchscale.schema.cells.collectives import CollectivesCell, CollectivesResult, NcclLog
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.launch.rank import FlopCount
from torchscale.schema.launch.record import LaunchRecord, payload
from torchscale.schema.launch.telemetry import GpuUse, Telemetry
from torchscale.schema.node.environment import DeviceInfo
from torchscale.schema.run.content import CellRun, Run
from torchscale.schema.run.experiment_file import ExperimentFile
from torchscale.schema.state import State

REPEATS = 2
TELEMETRY = Telemetry(seconds=10.0, readings=10, gpus=(GpuUse(uuid="GPU-1", throttle_reasons=()),))


def all_kinds() -> ExperimentFile:
    """Two models at up to four devices, two batch sizes, and every kind of cell of the machine."""
    kinds = ["hardware", "collectives", "memory", "training"]
    config = experiment(
        models=["tiny-resnet", "tiny-gpt2"],
        batch_sizes=[8, 16],
        gpu_counts=[1, 2, 4],
        measure=kinds,
        hardware={"link_bytes_per_second": 1e9},
        benchmark={"repeats": REPEATS},
    )
    return experiment_file(config, make_plan(config, machine(gpus=4, cores=8)).cells)


EXPERIMENT = all_kinds()
PLACES = range(len(EXPERIMENT.plan))
Launches = Mapping[int, Mapping[int, LaunchRecord]]


def not_run(file: ExperimentFile) -> SeparateCells:
    runs = [CellRun(entry, ()) for entry in file.plan]
    machine_runs = [run for run in runs if not isinstance(run.planned.cell, TrainingCell)]
    return SeparateCells(
        tuple(summarize_any(run, REPEATS) for run in runs), tuple(machine_runs), ("a problem",)
    )


def whole_run(file: ExperimentFile, launches: Launches) -> Run:
    runs = [cell_run(file, place, launches) for place in range(len(file.plan))]
    return Run("run", file, tuple(runs), ("a problem",))


def cell_run(file: ExperimentFile, place: int, launches: Launches) -> CellRun:
    records = launches.get(place, {})
    return CellRun(file.plan[place], tuple(records[index] for index in sorted(records)))


def launch_of(
    place: int, launch: int, state: State, seconds: float, flops: float | None
) -> LaunchRecord:
    cell = EXPERIMENT.plan[place].cell
    if isinstance(cell, TrainingCell):
        count = (
            None
            if flops is None
            else FlopCount(forward=flops, backward=2e9, sample_bytes=1e8, fixed_bytes=1e8)
        )
        ranks = [
            rank_record(cell, rank, [seconds] * 10, flops=count if rank == 0 else None)
            for rank in range(cell.world_size)
        ]
        record = launch_record(cell, batches=[seconds] * 10, ranks=ranks)
    else:
        record = record_of_any_kind(cell, TELEMETRY)
    changes: dict[str, Any] = {
        "launch": launch,
        "state": state,
        "reason": "" if state is State.OK else "it failed",
    }
    if isinstance(cell, CollectivesCell):
        # With NCCL the verdict on a link depends on the algorithm that another cell logs.
        measured = payload(record, CollectivesResult)
        gpu = DeviceInfo(kind="cuda", index=0, name="NVIDIA H100")
        common = {"backend": "nccl", "device": gpu, "world_size": cell.world_size}
        on_nccl = tuple(
            measured.ranks[rank % 2].model_copy(
                update={**common, "rank": rank, "local_rank": rank, "pid": 100 + rank, "pairs": ()}
            )
            for rank in range(cell.world_size)
        )
        choices = (("all_reduce", 1024 << 4, "Ring" if seconds < 1 else "NVLS", "LL"),)
        log = NcclLog(choices=choices) if cell.logs_choices else None
        changes["payload"] = CollectivesResult(ranks=on_nccl, nccl_log=log)
    return record.model_copy(update=changes)


launches_in_any_order = st.lists(
    st.builds(
        lambda place, launch, state, seconds, flops: (
            place,
            launch,
            launch_of(place, launch, state, seconds, flops),
        ),
        st.sampled_from(PLACES),
        st.integers(0, REPEATS - 1),
        st.sampled_from([State.OK, State.OK, State.OK, State.OOM, State.CRASHED]),
        st.sampled_from([0.5, 1.0, 1.7, 3.0]),
        st.sampled_from([None, 1e9, 2e9]),
    ),
    max_size=60,
)


@settings(max_examples=30)
@given(launches_in_any_order)
def test_it_equals_summarizing_everything_again(
    order: Sequence[tuple[int, int, LaunchRecord]],
) -> None:
    running_summary = RunningSummary("run", EXPERIMENT, not_run(EXPERIMENT))
    launches: dict[int, dict[int, LaunchRecord]] = {}
    for place, launch, record in order:
        launches.setdefault(place, {})[launch] = record
        running_summary.update(cell_run(EXPERIMENT, place, launches))
        assert running_summary.summary == summarize(whole_run(EXPERIMENT, launches))
    assert running_summary.summary == summarize(whole_run(EXPERIMENT, launches))


def test_it_goes_on_from_what_was_measured_before() -> None:
    launches = {place: {0: launch_of(place, 0, State.OK, 0.5, 1e9), 1: launch_of(place, 1, State.OK, 1.1, None)}
                for place in PLACES}  # fmt: skip
    before = {place: launches[place] for place in PLACES if place % 2}
    run = whole_run(EXPERIMENT, before)
    separate = SeparateCells(
        tuple(summarize_any(one, REPEATS, run) for one in run.cells),
        tuple(one for one in run.cells if not isinstance(one.planned.cell, TrainingCell)),
        run.problems,
    )
    running_summary = RunningSummary("run", EXPERIMENT, separate)
    assert running_summary.summary == summarize(run)
    for place in PLACES:
        if place not in before:
            running_summary.update(cell_run(EXPERIMENT, place, launches))
    assert running_summary.summary == summarize(whole_run(EXPERIMENT, launches))
    assert any(
        cell.compute is not None and cell.compute.mfu is not None
        for cell in running_summary.summary.cells
    )
    assert any(cell.efficiency is not None for cell in running_summary.summary.cells)
    assert any(
        one.verdict is not None and one.verdict.share for one in running_summary.summary.collectives
    )


def test_a_cell_is_shown_by_its_launches_so_far() -> None:
    running_summary = RunningSummary("run", EXPERIMENT, not_run(EXPERIMENT))
    place = next(place for place in PLACES if isinstance(EXPERIMENT.plan[place].cell, TrainingCell))
    record = launch_of(place, 0, State.OK, 1.0, None)
    so_far = running_summary.update(CellRun(EXPERIMENT.plan[place], (record,)))
    assert so_far.state is State.PARTIAL
    assert so_far == summarize_any(CellRun(EXPERIMENT.plan[place], (record,)), REPEATS)
    assert running_summary.summary.in_plan_order[place].state is State.PARTIAL
    assert so_far.reason == "1 of 2 launches"


def test_a_launch_costs_its_cell_and_its_series(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each launch summarizes one cell, and assembles no more than the cells of one series, but for
    the one launch of a model that counts its operations."""
    config = experiment(batch_sizes=list(range(1, 51)), gpu_counts=[1, 2, 4])
    file = experiment_file(config, make_plan(config, machine(gpus=4, cores=8)).cells)
    running_summary = RunningSummary("run", file, not_run(file))
    summarized: list[str] = []
    assembled: list[int] = []

    def counting_summarize(run: CellRun, *arguments: Any) -> Any:
        summarized.append(run.planned.cell.id)
        return summarize_any(run, *arguments)

    def counting_assemble(name: str, experiment: ExperimentFile, cells: Sequence[Any]) -> Any:
        assembled.append(len(cells))
        return assemble(name, experiment, cells)

    monkeypatch.setattr(running, "summarize_any", counting_summarize)
    monkeypatch.setattr(running, "assemble", counting_assemble)
    count = FlopCount(forward=1e9, backward=2e9, sample_bytes=1e8, fixed_bytes=1e8)
    last = len(file.plan) - 1
    for place, entry in enumerate(file.plan):
        cell = trained(entry)
        ranks = [
            rank_record(cell, rank, flops=count if place == last else None)
            for rank in range(cell.world_size)
        ]
        running_summary.update(CellRun(entry, (launch_record(cell, ranks=ranks),)))
    assert summarized == [entry.cell.id for entry in file.plan]
    assert max(assembled[:-1]) == 3, "a series of three counts"
    assert assembled[-1] == len(file.plan), "a model whose operations are known by now"
