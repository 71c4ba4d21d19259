from __future__ import annotations

import math
import statistics
from dataclasses import replace
from typing import Any

import pytest

from tests.factories import (
    cells,
    environment,
    failed_record,
    launch_record,
    rank_record,
    run,
    summarize_cell,
    training_result,
)
from torchscale.analysis.summary.run import summarize
from torchscale.analysis.training.flags import Flag, other_processes_share
from torchscale.report.document import Bullets
from torchscale.report.formats.report_export import cell_export, report_export
from torchscale.report.sections.compute import compute_section
from torchscale.report.sections.one_cell import cell_rows, launches_text
from torchscale.schema.launch.documents import DocumentUse
from torchscale.schema.launch.rank import FlopCount, HostLoad
from torchscale.schema.launch.record import LaunchRecord
from torchscale.schema.launch.steps import BatchTimes, RankSteps, StopRule, Warmup
from torchscale.schema.launch.telemetry import GpuUse, Telemetry
from torchscale.schema.run.content import CellRun
from torchscale.schema.run.experiment_file import PlannedCell, Session
from torchscale.schema.state import State

ONE, TWO = cells()


def flags_of(record: LaunchRecord) -> tuple[Flag, ...]:
    return summarize_cell(CellRun(PlannedCell(cell=TWO), (record,))).flags


def test_throughput_is_global_samples_over_the_slowest_ranks_wall_time() -> None:
    """Two ranks of 8 samples, ten batches of ten steps; rank 1 takes 2 s a batch: 100 · 16 ÷ 20 s =
    80/s."""
    ranks = [rank_record(TWO, 0, [1.0] * 10), rank_record(TWO, 1, [2.0] * 10)]
    summary = summarize_cell(CellRun(PlannedCell(cell=TWO), (launch_record(TWO, ranks=ranks),)))
    assert summary.figures is not None
    assert summary.figures.samples_per_second == pytest.approx(80.0)
    assert summary.figures.samples_per_second_per_device == pytest.approx(40.0)
    assert summary.figures.tokens_per_second is None
    assert summary.figures.measured_steps == 100
    assert summary.figures.peak_memory_bytes == 201


def test_tokens() -> None:
    ranks = [rank_record(TWO, rank, tokens_per_step=8 * 64) for rank in range(2)]
    summary = summarize_cell(CellRun(PlannedCell(cell=TWO), (launch_record(TWO, ranks=ranks),)))
    assert summary.figures is not None
    assert summary.figures.tokens_per_second == pytest.approx(160.0 * 64)


def test_tokens_and_flops_of_documents_are_without_their_padding() -> None:
    """A step of 80 ms of 2 samples with 64 tokens of room each: of 128 tokens 96 are computed and 72
    are real, in documents of 40 and 32. Attention is half of the operations of a full sample."""
    content: dict[str, Any] = {
        "models": {"name": "tiny-decoder", "seq_len": 64},
        "batch_sizes": 2,
        "gpu_counts": [1],
        "data": {"lengths": {"median": 40, "sigma": 1.0}},
    }
    (cell,) = cells(**content)
    use = DocumentUse(
        real_tokens_per_step=72.0,
        computed_tokens_per_step=96.0,
        document_pairs_per_step=40.0**2 + 32.0**2,
    )
    flops = FlopCount(forward=1e6, backward=2e6, attention_share=0.5)
    ranks = [rank_record(cell, batches=[0.8] * 10, documents=use, flops=flops)]
    launches = {cell.id: [launch_record(cell, batches=[0.8] * 10, ranks=ranks)]}
    (found,) = summarize(run(launches, **content)).cells
    assert found.figures is not None and found.figures.documents is not None
    assert found.figures.samples_per_second == pytest.approx(25.0)
    assert found.figures.tokens_per_second == pytest.approx(72 / 0.08)
    assert found.figures.documents.padding_share == pytest.approx(0.25)
    assert found.compute is not None
    work = 3e6 * (0.5 * 72 / 64 + 0.5 * (40**2 + 32**2) / 64**2)
    assert found.compute.flops_per_step == pytest.approx(work)
    assert found.compute.intensity is None


def test_stalls_count_in_throughput_but_hardly_in_the_median() -> None:
    stalled = launch_record(TWO, batches=[1.0] * 9 + [11.0])
    summary = summarize_cell(CellRun(PlannedCell(cell=TWO), (stalled,)))
    assert summary.figures is not None
    assert summary.figures.samples_per_second == pytest.approx(100 * 16 / 20)
    assert summary.figures.steps.p50 == pytest.approx(0.1)
    assert summary.figures.steps.p99 == pytest.approx(1.1)


def test_efficiency_by_hand() -> None:
    """One device 80/s; two devices 128/s: 128 ÷ (2 · 80) = 0.8."""
    launches = {ONE.id: [launch_record(ONE)], TWO.id: [launch_record(TWO, batches=[1.25] * 10)]}
    one, two = summarize(run(launches)).cells
    assert one.efficiency is not None
    assert two.efficiency is not None
    assert one.efficiency.value == 1.0
    assert two.efficiency.value == pytest.approx(0.8)
    assert two.efficiency.baseline_world_size == 1
    assert two.efficiency.interval is None
    assert two.efficiency.grade is None, "one launch a side: nothing is known of the noise"


def test_without_a_measured_baseline_there_is_no_efficiency() -> None:
    launches = {ONE.id: [failed_record(ONE, State.OOM, "no memory")], TWO.id: [launch_record(TWO)]}
    one, two = summarize(run(launches)).cells
    assert (one.state, one.figures, one.efficiency) == (State.OOM, None, None)
    assert two.figures is not None
    assert two.efficiency is None


def test_an_efficiency_carries_the_flags_of_both_cells() -> None:
    shaky = launch_record(
        ONE,
        ranks=[
            rank_record(
                ONE,
                warmup=Warmup(
                    steps=1, seconds=1, steady=False, batches=BatchTimes(steps=(), seconds=())
                ),
            )
        ],
    )
    _, two = summarize(run({ONE.id: [shaky], TWO.id: [launch_record(TWO)]})).cells
    assert two.flags == ()
    assert two.efficiency is not None
    assert two.efficiency.flags == (Flag.NOT_STEADY,)


def test_an_efficiency_interval_needs_launches_on_both_sides() -> None:
    def three(cell_index: int, seconds: list[float]) -> list[LaunchRecord]:
        cell = (ONE, TWO)[cell_index]
        return [launch_record(cell, index, [value] * 10) for index, value in enumerate(seconds)]

    found = summarize(
        run(
            {ONE.id: three(0, [1.0, 1.01, 0.99]), TWO.id: three(1, [1.25, 1.26, 1.24])},
            benchmark={"repeats": 3},
        )
    ).cells[1]
    assert found.efficiency is not None
    assert found.efficiency.interval is not None
    low, high = found.efficiency.interval
    assert low < found.efficiency.value < high
    assert high - low < 0.1
    assert found.figures is not None
    # The mean of three logarithms: t(0.975, 2) = 4.3027, their standard deviation over the root of
    # 3.
    logs = [math.log(value) for value in (1.25, 1.26, 1.24)]
    expected = math.expm1(4.3027 * statistics.stdev(logs) / math.sqrt(3))
    assert found.figures.run_half_width == pytest.approx(expected, rel=1e-4)
    assert found.efficiency.grade is None, "the interval contains 80 %"


@pytest.mark.parametrize(
    ("seconds", "grade"),
    [
        ([1.0, 1.001, 0.999], "excellent"),
        ([1.19, 1.191, 1.189], "good"),
        ([1.13, 1.15, 1.11], None),
    ],
)
def test_a_grade_is_given_where_the_whole_interval_has_it(
    seconds: list[float], grade: str | None
) -> None:
    launches = {
        cell.id: [launch_record(cell, index, [value] * 10) for index, value in enumerate(times)]
        for cell, times in ((ONE, [1.0, 1.001, 0.999]), (TWO, seconds))
    }
    found = summarize(run(launches, benchmark={"repeats": 3})).cells[1]
    assert found.efficiency is not None
    assert found.efficiency.grade == grade


def test_figures_of_several_launches_agree_with_each_other() -> None:
    """Launches of 80 and 160 samples/s: one mean for throughput, step, efficiency and the parts of
    lost time."""
    launches = {
        ONE.id: [launch_record(ONE, index, [1.0] * 10) for index in range(2)],
        TWO.id: [
            launch_record(TWO, index, [seconds] * 10) for index, seconds in enumerate((1.0, 2.0))
        ],
    }
    two = summarize(run(launches, benchmark={"repeats": 2})).cells[1]
    figures = two.figures
    assert figures is not None and two.efficiency is not None
    assert figures.launch_samples_per_second == pytest.approx((160, 80))
    assert figures.samples_per_second is not None
    assert figures.samples_per_second == pytest.approx(math.sqrt(160 * 80))
    assert figures.samples_per_second * figures.step_mean == pytest.approx(
        TWO.global_batch_size, rel=1e-12
    )
    assert two.efficiency.value == pytest.approx(figures.samples_per_second / 160)
    phases = figures.phases
    assert phases.compute is None
    parts = (phases.data_wait, phases.forward, phases.backward, phases.optimizer)
    total = sum(part for part in parts if part is not None)
    assert total == pytest.approx(figures.step_mean, rel=1e-9)
    assert figures.rank_step_means == pytest.approx((figures.step_mean,) * 2)
    assert figures.measured_steps == 200


def test_quantiles_are_over_all_steps_of_all_launches() -> None:
    """100 steps of 100 ms and 100 of 200 ms: the 60th percentile is 200 ms, whatever the launches'
    own medians are."""
    launches = [
        launch_record(TWO, index, [seconds] * 10) for index, seconds in enumerate((1.0, 2.0))
    ]
    summary = summarize_cell(CellRun(PlannedCell(cell=TWO), tuple(launches)))
    assert summary.figures is not None
    steps = summary.figures.steps
    assert (steps.count, steps.minimum, steps.maximum) == (200, 0.1, 0.2)
    assert steps.p50 == pytest.approx(0.15)  # between the 100th and the 101st
    assert steps.p95 == pytest.approx(0.2)
    assert len(steps.values) == 200


def test_states_of_a_cell() -> None:
    skipped = summarize_cell(CellRun(PlannedCell(cell=TWO, skip_reason="too few"), ()))
    assert (skipped.state, skipped.reason) == (State.SKIPPED, "too few")
    waiting = summarize_cell(CellRun(PlannedCell(cell=TWO), ()))
    assert (waiting.state, waiting.reason) == (State.WAITING, "not run yet")
    mixed = summarize_cell(
        CellRun(
            PlannedCell(cell=TWO),
            (launch_record(TWO), failed_record(TWO, State.TIMEOUT, "too slow", 1)),
        )
    )
    assert (mixed.state, mixed.reason, mixed.figures) == (State.TIMEOUT, "launch 2: too slow", None)
    partial = summarize_cell(CellRun(PlannedCell(cell=TWO), (launch_record(TWO),)), repeats=3)
    assert (partial.state, partial.reason) == (State.PARTIAL, "1 of 3 launches")
    assert partial.figures is not None, "what is done is shown"
    assert (partial.launches, partial.planned_launches) == (1, 3)


def test_an_interrupted_launch_counts_as_one_that_has_not_run() -> None:
    stopped = failed_record(TWO, State.INTERRUPTED, "Ctrl-C", 1)
    partial = summarize_cell(
        CellRun(PlannedCell(cell=TWO), (launch_record(TWO), stopped)), repeats=3
    )
    assert (partial.state, partial.reason, partial.launches) == (
        State.PARTIAL,
        "1 of 3 launches",
        1,
    )
    assert partial.figures is not None and len(partial.facts.launches) == 1
    alone = summarize_cell(CellRun(PlannedCell(cell=TWO), (stopped,)), repeats=3)
    assert (alone.state, alone.reason, alone.figures) == (State.INTERRUPTED, "Ctrl-C", None)


def test_a_clean_launch_has_no_flags() -> None:
    assert flags_of(launch_record(TWO)) == ()


def test_noisy_if_anything_ended_it_short_of_its_target() -> None:
    wild = [1.0, 1.5] * 5
    capped = [rank_record(TWO, rank, wild, stop_rule=StopRule.MAX_STEPS) for rank in range(2)]
    asked = [rank_record(TWO, rank, wild, stop_rule=StopRule.MEASURE_STEPS) for rank in range(2)]
    calm = [rank_record(TWO, rank, stop_rule=StopRule.MAX_SECONDS) for rank in range(2)]
    short = [rank_record(TWO, rank, [1.0] * 3, stop_rule=StopRule.BUDGET) for rank in range(2)]
    assert Flag.NOISY in flags_of(launch_record(TWO, ranks=capped))
    assert Flag.NOISY in flags_of(launch_record(TWO, ranks=asked))
    assert Flag.NOISY not in flags_of(launch_record(TWO, ranks=calm))
    assert Flag.NOISY in flags_of(launch_record(TWO, ranks=short))


@pytest.mark.parametrize(("last", "flagged"), [(1.01, False), (1.03, True), (0.97, True)])
def test_drifting_above_two_percent(last: float, flagged: bool) -> None:
    batches = [1.0] * 6 + [last] * 3
    assert (Flag.DRIFTING in flags_of(launch_record(TWO, batches=batches))) is flagged


def test_scatter_is_no_drift() -> None:
    """Thirds of 1.0 and 1.033 on average, whose batches scatter by 10 %."""
    scattered = [0.9, 1.0, 1.1, 1.0, 1.0, 1.0, 0.93, 1.03, 1.14]
    assert Flag.DRIFTING not in flags_of(launch_record(TWO, batches=scattered))


def test_phases_that_do_not_add_up() -> None:
    steps = training_result(launch_record(TWO)).steps
    assert steps is not None
    assert steps.mean_forward is not None
    off = steps.model_copy(update={"mean_forward": steps.mean_forward + 0.05})
    assert flags_of(launch_record(TWO, rank_steps=RankSteps.of([off, off]))) == (
        Flag.PHASES_INCONSISTENT,
    )


def load(busy: float, own: float, *, pinned: bool, cores: int = 1) -> HostLoad:
    return HostLoad(
        wall_seconds=10.0, busy_seconds=busy, process_seconds=own, cores=cores, pinned=pinned
    )


def test_foreign_work_on_a_pinned_ranks_core() -> None:
    ranks = [
        rank_record(TWO, rank, host_load=load(10.0, 10.0 - 2 * rank, pinned=True))
        for rank in range(2)
    ]
    assert other_processes_share(ranks) == pytest.approx(0.2)
    assert flags_of(launch_record(TWO, ranks=ranks)) == (Flag.CONTENDED,)


def test_foreign_work_where_ranks_share_all_cores() -> None:
    ranks = [
        rank_record(TWO, rank, host_load=load(24.0, 10.0, pinned=False, cores=8))
        for rank in range(2)
    ]
    assert other_processes_share(ranks) == pytest.approx(4.0 / 80)


def test_foreign_work_on_one_of_several_hosts() -> None:
    """The other host's ranks do not use up what is busy here."""
    ranks = [
        rank_record(
            TWO, rank, hostname=f"h{rank}", host_load=load(busy, 10.0, pinned=False, cores=8)
        )
        for rank, busy in ((0, 24.0), (1, 10.0))
    ]
    assert other_processes_share(ranks) == pytest.approx(14.0 / 80)


def test_operations_counted_once_hold_for_all_cells_of_a_model() -> None:
    flops = FlopCount(forward=1e9, backward=2e9, sample_bytes=1e8, fixed_bytes=1e8)
    counted = launch_record(ONE, ranks=[rank_record(ONE, flops=flops)])
    summary = summarize(
        run(
            {ONE.id: [counted], TWO.id: [launch_record(TWO)]},
            hardware={"peak_flops": {"fp32": 1e12}},
        )
    )
    rates = [cell.compute.flops_per_second for cell in summary.cells if cell.compute is not None]
    assert rates == pytest.approx([8 * 3e9 / 0.1] * 2)  # 8 samples a device, a step of 0.1 s
    assert [
        cell.compute.mfu for cell in summary.cells if cell.compute is not None
    ] == pytest.approx([0.24] * 2)
    none = summarize(run())
    assert [cell.compute for cell in none.cells] == [None, None]


def test_energy_is_per_step_and_per_sample() -> None:
    use = GpuUse(uuid="GPU-1", energy_joules=5000.0, power_watts=500.0)
    record = launch_record(ONE, telemetry=Telemetry(seconds=10.0, readings=10, gpus=(use,)))
    figures = summarize_cell(CellRun(PlannedCell(cell=ONE), (record,))).figures
    assert figures is not None
    assert figures.joules_per_step == pytest.approx(50.0)  # over 100 steps
    assert figures.samples_per_joule == pytest.approx(8 / 50)
    without = summarize_cell(
        CellRun(PlannedCell(cell=ONE), (record, launch_record(ONE, 1)))
    ).figures
    assert without is not None
    assert without.joules_per_step is None  # one launch did not say


def test_launches_of_a_resumed_sweep_lie_in_two_sessions() -> None:
    """Two launches before the second command began, one after; of the other cell all after."""
    resumed = Session(started_at="2026-01-02", tool_version="0", environment=environment())
    times = ("2026-01-01T10", "2026-01-01T11", "2026-01-02T10")
    mixed = [launch_record(ONE, number, started_at=time) for number, time in enumerate(times)]
    content = run({ONE.id: mixed, TWO.id: [launch_record(TWO, started_at=times[-1])]})
    file = content.experiment.model_copy(update={"created_at": "2026-01-01", "later": (resumed,)})
    first, second = summarize(replace(content, experiment=file)).cells
    assert (first.launches, first.sessions, second.sessions) == (3, 2, 1)
    assert launches_text(first) == "3 in 2 sessions"
    assert cell_export(first).sessions == 2


def test_a_model_that_cannot_be_counted_says_why_in_every_cell_and_format() -> None:
    """Operations are counted once for a model: the other cells have their reason from there."""
    reason = "it does not run on the meta device: ValueError: no"
    first = launch_record(ONE, ranks=[rank_record(ONE, 0, flops_unknown=reason)])
    summary = summarize(run({ONE.id: [first], TWO.id: [launch_record(TWO)]}))
    texts = [summary.flops_unknown(cell) for cell in summary.cells]
    assert texts == [f"FLOPs unknown: {reason}"] * 2
    assert [cell.flops_unknown for cell in report_export(summary).cells] == texts
    assert ("MFU", texts[1]) in cell_rows(summary, summary.cells[1])
    (bullets,) = compute_section(summary).blocks
    assert bullets == Bullets((f"tiny ResNet: FLOPs unknown: {reason}.",))
    counted = FlopCount(forward=1.0, backward=2.0)
    known = launch_record(ONE, ranks=[rank_record(ONE, 0, flops=counted)])
    summary = summarize(run({ONE.id: [known], TWO.id: [launch_record(TWO)]}))
    assert [summary.flops_unknown(cell) for cell in summary.cells] == ["", ""]
