"""Figures of recordings worked by hand, and of real ones against what others found in them."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.features.trace.readers.builders import SHARED, host, kernel, kineto, read_rank, step
from torchscale.config.choices import WindowChoice
from torchscale.errors import TraceError, UsageError
from torchscale.features.trace.analysis import pairing
from torchscale.features.trace.analysis.analyze import analyze_trace
from torchscale.features.trace.analysis.pairing import pair
from torchscale.features.trace.analysis.windows import StepRange
from torchscale.features.trace.readers.columns import (
    CollectiveRow,
    make_collectives,
    make_steps,
    no_spans,
)
from torchscale.features.trace.readers.recordings import find_recordings, read_recordings
from torchscale.features.trace.span import RankTrace, Trace
from torchscale.report.text.profile import split_line
from torchscale.schema.profiles.analysis import ProfileAnalysis, WindowKind
from torchscale.schema.profiles.finding import Confidence, CostBasis, FindingKind

STEPS = 25
PERIOD = 1000.0


def trace(ranks: Sequence[Sequence[dict[str, Any]]], **header: Any) -> Trace:
    return Trace(
        tuple(
            read_rank(
                io.BytesIO(kineto(events, rank, len(ranks), **header).encode()), f"rank{rank}.json"
            )
            for rank, events in enumerate(ranks)
        ),
        "torch.profiler",
    )


def training(
    late: Sequence[float],
    *,
    compute: float = 500.0,
    overlap: float = 0.0,
    data: float = 0.0,
    collective: str = "ncclDevKernel_AllReduce_Sum_f32",
    every: int = 1,
) -> Trace:
    """Steps of 1 ms on GPUs: compute, longer by ``late`` µs in every so manieth step, then an
    all-reduce that ends 100 µs after the last came. ``overlap`` µs of compute lie under it on every
    rank."""
    ranks = []
    for usual in late:
        events = []
        for number in range(STEPS):
            origin = number * PERIOD
            extra, latest = (usual, max(late)) if number % every == 0 else (0.0, 0.0)
            events.append(step(number, origin, PERIOD))
            if data:
                events.append(
                    host("user_annotation", "enumerate(DataLoader)#x.__next__", origin, data)
                )
            events.append(
                host(
                    "cuda_runtime", "cudaLaunchKernel", origin + data, 5, correlation=2 * number + 1
                )
            )
            events.append(
                kernel("gemm", origin + data + 10, compute + extra - 10, link=2 * number + 1)
            )
            arrival = origin + data + compute + extra
            finish = origin + data + compute + latest + 100
            events.append(kernel(collective, arrival, finish - arrival, stream=9))
            if overlap:
                events.append(kernel("gemm", finish - overlap, overlap, link=0))
        ranks.append(events)
    return trace(ranks)


def test_one_rank_alone_tells_how_its_time_divides() -> None:
    """A step of 1 ms: 100 µs of loader, then 490 µs of a kernel."""
    alone = split_line(analyze_trace(training([0.0], data=100.0)))
    assert alone.startswith(f"1 rank, {STEPS - 1} steps: compute 49.0 %, ")
    assert "input 10.0 %" in alone
    assert split_line(analyze_trace(training([0.0, 0.0]))).startswith("Sync stall time: ")


def test_stages_that_send_to_each_other_are_no_stragglers() -> None:
    """The same lateness through an all-reduce names the rank; through sends and receives it does
    not."""
    lateness = [0.0, 200.0]
    assert kinds(analyze_trace(training(lateness)))[FindingKind.STRAGGLER] == 1
    sent = analyze_trace(training(lateness, collective="ncclDevKernel_SendRecv"))
    assert FindingKind.STRAGGLER not in kinds(sent)
    assert sent.sync_stall_percent == pytest.approx(
        analyze_trace(training(lateness)).sync_stall_percent
    )


def kinds(analysis: ProfileAnalysis) -> dict[FindingKind, int | None]:
    return {finding.kind: finding.rank for finding in analysis.findings}


def test_waits_transfers_and_the_one_figure() -> None:
    analysis = analyze_trace(training([0.0, 0.0, 60.0, 20.0]))
    assert (analysis.window.kind, analysis.window.steps, analysis.window.first_step_left_out) == (
        "steps",
        24,
        True,
    )
    assert analysis.sync_stall_percent == pytest.approx((60 + 60 + 0 + 40) / 4000 * 100)
    third = analysis.per_rank[2]
    assert third.sync_stall_seconds == 0
    assert third.transfer_seconds == pytest.approx(24 * 100e-6)
    assert third.blame_percent == 100
    assert third.arrives_late_seconds == pytest.approx(60e-6)
    assert analysis.per_rank[0].compute_seconds == pytest.approx(24 * 490e-6)
    (collective,) = analysis.collectives
    assert (collective.op, collective.count, collective.last_rank, collective.last_percent) == (
        "all_reduce",
        24,
        2,
        100,
    )
    assert collective.wait_seconds == pytest.approx(40e-6)
    straggler = next(item for item in analysis.findings if item.kind is FindingKind.STRAGGLER)
    assert straggler.rank == 2
    assert straggler.cost_seconds == pytest.approx(40e-6)  # the next rank still comes 20 µs late
    assert straggler.cost_basis is CostBasis.REPLAY
    assert straggler.confidence is Confidence.MEDIUM


def test_a_rank_that_is_late_in_every_fourth_step_has_its_period() -> None:
    findings = analyze_trace(training([0.0, 200.0, 0.0], every=4)).findings
    (straggler,) = [item for item in findings if item.kind is FindingKind.STRAGGLER]
    assert (straggler.rank, straggler.period_steps) == (1, 4)
    assert straggler.summary.startswith("every 4 steps rank 1 takes 200 µs longer")
    assert not {FindingKind.SYNC_VARIANCE, FindingKind.PAUSES} & {item.kind for item in findings}


def test_compute_under_communication_hides_it() -> None:
    analysis = analyze_trace(training([0.0, 0.0], overlap=80.0))
    rank = analysis.per_rank[0]
    assert rank.overlap == pytest.approx(0.8)
    assert rank.exposed_communication_seconds == pytest.approx(24 * 20e-6)
    assert analysis.sync_stall_percent == 0
    assert kinds(analysis).get(FindingKind.EXPOSED_COMMUNICATION, "absent") == "absent"


def test_the_parts_of_a_window_add_up() -> None:
    for analysis in (
        analyze_trace(training([0.0, 30.0], data=100.0)),
        analyze_trace(training([5.0, 0.0, 0.0])),
    ):
        for rank in analysis.per_rank:
            assert rank.copy_seconds is not None
            parts = (
                rank.compute_seconds + rank.exposed_communication_seconds + rank.idle.total_seconds
            )
            assert parts == pytest.approx(rank.window_seconds)
            idle = (rank.idle.host_bound_seconds, rank.idle.input_seconds, rank.idle.other_seconds)
            assert sum(part or 0.0 for part in idle) == pytest.approx(rank.idle.total_seconds)


def test_idle_is_told_apart() -> None:
    rank = analyze_trace(training([0.0, 0.0], data=150.0)).per_rank[0]
    # The kernel comes 10 µs after its launch, which came once the data was there: 240 µs of the gap
    # before it are late.
    assert rank.idle.input_seconds == pytest.approx(24 * 150e-6, rel=0.01)
    assert rank.idle.host_bound_seconds == pytest.approx(23 * 250e-6 + 10e-6, rel=0.05)


def test_a_slow_loader_is_named_and_only_where_it_is_slow() -> None:
    analysis = analyze_trace(training([0.0, 0.0], data=150.0))
    assert kinds(analysis)[FindingKind.INPUT_PIPELINE] is None
    finding = next(item for item in analysis.findings if item.kind is FindingKind.INPUT_PIPELINE)
    assert finding.cost_seconds == pytest.approx(150e-6, rel=0.01)


def test_few_collectives_name_nobody() -> None:
    whole = training([0.0, 100.0])
    events = [
        [item for number in range(3) for item in _step(number, late)] for late in (0.0, 100.0)
    ]
    analysis = analyze_trace(trace(events))
    assert analysis.window.confidence is Confidence.LOW
    assert all(finding.rank is None for finding in analysis.findings)
    assert any(item.kind is FindingKind.STRAGGLER for item in analysis.abstentions)
    assert FindingKind.STRAGGLER in kinds(analyze_trace(whole))


def _step(number: int, late: float) -> list[dict[str, Any]]:
    origin = number * PERIOD
    return [
        step(number, origin, PERIOD),
        kernel("gemm", origin, 500 + late),
        kernel("ncclDevKernel_AllReduce_Sum_f32", origin + 500 + late, 200 - late, stream=9),
    ]


def test_unequal_counts_are_not_compared() -> None:
    ranks = [[item for number in range(STEPS) for item in _step(number, 0.0)] for _ in range(2)]
    ranks[1].append(kernel("ncclDevKernel_AllReduce_Sum_f32", 24 * PERIOD + 900, 10, stream=9))
    analysis = analyze_trace(trace(ranks))
    assert analysis.sync_stall_percent is None
    assert "different numbers of collectives" in analysis.window.reasons[0]


def test_sequence_numbers_pair_what_order_would_not() -> None:
    ranks = [[item for number in range(STEPS) for item in _step(number, 0.0)] for _ in range(2)]
    for events in ranks:
        number = 0
        for event in events:
            if event["name"].startswith("nccl"):
                event["args"] |= {"Process Group Name": "0", "Seq": number}
                number += 1
    ranks[1] = [
        event for event in ranks[1] if event["args"].get("Seq") != 0
    ]  # it was not recorded there
    analysis = analyze_trace(trace(ranks))
    assert analysis.sync_stall_percent == 0
    assert analysis.collectives[0].count == 24


def test_clocks_of_several_hosts_are_brought_together_or_nothing_is_said() -> None:
    shift = 3_000_000_000  # 3 s
    one, other = training([0.0, 50.0]).ranks
    moved = read_rank(io.BytesIO(_moved(shift, [0.0, 50.0]).encode()), "rank1.json")
    analysis = analyze_trace(Trace((one, moved), "torch.profiler"))
    assert analysis.sync_stall_percent == pytest.approx(2.5)
    assert other.host == one.host != moved.host


def _moved(shift: int, late: Sequence[float]) -> str:
    from tests.features.trace.readers.builders import BASE_NS

    events = []
    for number in range(STEPS):
        origin = number * PERIOD
        events += [
            step(number, origin, PERIOD),
            kernel("gemm", origin + 10, 500 + late[1] - 10),
            kernel(
                "ncclDevKernel_AllReduce_Sum_f32",
                origin + 500 + late[1],
                100 + max(late) - late[1],
                stream=9,
            ),
        ]
    return kineto(events, 1, 2, host_name="node-2", baseTimeNanoseconds=BASE_NS + shift)


def test_clocks_that_do_not_agree_give_no_waits() -> None:
    """On one host no clock is moved: collectives that end 150 of their 300 µs apart cannot be
    compared."""
    events = [[item for number in range(STEPS) for item in _step(number, 0.0)] for _ in range(2)]
    for event in events[1]:
        if event["name"].startswith("nccl"):
            event["dur"] += 150
    analysis = analyze_trace(trace(events))
    assert analysis.sync_stall_percent is None
    assert "clocks do not agree: collectives end 0.15 ms apart" in analysis.window.reasons[0]
    assert analysis.per_rank[0].sync_stall_seconds is None
    assert all(finding.rank is None for finding in analysis.findings)


def test_nccl_without_a_kernel_of_it_is_an_error() -> None:
    events = [[step(0, 0, 100), kernel("gemm", 0, 50)] for _ in range(2)]
    with pytest.raises(TraceError, match="holds no kernel of communication"):
        analyze_trace(trace(events))
    with pytest.raises(TraceError, match="holds no kernel of communication"):
        analyze_trace(trace(events, backend="cpu:gloo,cuda:nccl"))
    with pytest.raises(TraceError, match="empty recording"):
        analyze_trace(trace([[], []]))
    with pytest.raises(TraceError, match="no step that all ranks share"):
        analyze_trace(trace([[kernel("ncclKernel", 0, 5)]] * 2), WindowChoice.STEPS)


def test_on_cpu_compute_is_operators_without_communication_in_them() -> None:
    ranks = []
    for late in (0.0, 2000.0):
        events = []
        for number in range(STEPS):
            origin = number * 20_000.0
            events.append(step(number, origin, 20_000))
            events.append(host("cpu_op", "aten::conv2d", origin, 4000 + late))
            events.append(host("cpu_op", "aten::empty", origin + 10, 1))
            last = "autograd::engine::evaluate_function: AccumulateGrad"
            events.append(host("cpu_op", last, origin + 4000 + late, 500))
            events.append(host("cpu_op", "c10d::allreduce_", origin + 4100 + late, 20))
            done = origin + 4100 + 2000 + 1000
            call = origin + 4110 + late
            events.append(host("user_annotation", "gloo:all_reduce", call, done - call, thread=2))
        ranks.append(events)
    analysis = analyze_trace(trace(ranks, backend="gloo"))
    first, second = analysis.per_rank
    assert first.compute_seconds == pytest.approx(24 * 4e-3)
    assert first.sync_stall_seconds == pytest.approx(24 * 2e-3)
    assert second.sync_stall_seconds == 0
    assert second.transfer_seconds == pytest.approx(24 * 1e-3)
    straggler = next(item for item in analysis.findings if item.kind is FindingKind.STRAGGLER)
    assert straggler.rank == 1
    assert "while no collective transfers" in " ".join(straggler.evidence)


def test_on_cpu_a_rank_that_a_transfer_slows_is_no_straggler() -> None:
    """Threads that transfer and operators share the cores: while the first bucket moves, one rank's
    backward takes 2 ms longer, and the other waits for its second bucket."""
    ranks = []
    for late in (0.0, 2000.0):
        events = []
        for number in range(STEPS):
            origin = number * 20_000.0
            events.append(step(number, origin, 20_000))
            events.append(host("cpu_op", "aten::conv2d", origin, 4000))
            events.append(host("cpu_op", "c10d::allreduce_", origin + 4000, 10))
            events.append(host("user_annotation", "gloo:all_reduce", origin + 4010, 2990, thread=2))
            events.append(host("cpu_op", "aten::mm", origin + 4010, 990 + late))
            events.append(host("cpu_op", "c10d::allreduce_", origin + 5000 + late, 10))
            second = origin + 5010 + late
            events.append(
                host("user_annotation", "gloo:all_reduce", second, origin + 8000 - second, thread=3)
            )
        ranks.append(events)
    analysis = analyze_trace(trace(ranks, backend="gloo"))
    assert analysis.per_rank[0].sync_stall_seconds == pytest.approx(24 * 2e-3)
    assert FindingKind.STRAGGLER not in kinds(analysis)
    reason = next(
        item.reason for item in analysis.abstentions if item.kind is FindingKind.STRAGGLER
    )
    assert (
        "rank 1 is 2.00 ms a step slower in training, but not while no collective transfers"
        in reason
    )


@pytest.mark.skipif(
    not (SHARED / "data" / "kineto").is_dir(), reason="the recorded traces are not here"
)
def test_eight_real_ranks() -> None:
    """Two independent computations gave 38.6 % over the device span and 35.4 % over the step's
    annotation; one step of eight collectives is too little to name anyone."""
    recorded = read_recordings([SHARED / "data" / "kineto" / "dlrm_8rank_v100.tar.gz"])
    steps, device = analyze_trace(recorded), analyze_trace(recorded, WindowChoice.DEVICE)
    assert steps.window.kind is WindowKind.STEPS
    assert steps.sync_stall_percent == pytest.approx(35.4, abs=0.05)
    assert device.sync_stall_percent == pytest.approx(38.6, abs=0.05)
    charges = [rank.blame_percent or 0.0 for rank in steps.per_rank]
    assert int(np.argmax(charges)) == 7
    assert charges[7] == pytest.approx(77, abs=2)
    assert steps.window.confidence is Confidence.LOW
    for finding in (*steps.findings, *device.findings):
        assert finding.rank is None
        assert finding.confidence is Confidence.LOW


@pytest.mark.skipif(
    not (SHARED / "data" / "kineto").is_dir(), reason="the recorded traces are not here"
)
def test_breakdown_and_overlap_are_those_of_holistic_trace_analysis() -> None:
    """Its version 0.5.0 on the same traces: microseconds idle, of compute, of everything, and
    overlap in percent."""
    theirs = json.loads((Path(__file__).parent / "dlrm_holistic_trace_analysis.json").read_text())
    recorded = read_recordings([SHARED / "data" / "kineto" / "dlrm_8rank_v100.tar.gz"])
    for rank, (idle, compute, window, overlap) in zip(
        analyze_trace(recorded, WindowChoice.DEVICE).per_rank, theirs, strict=True
    ):
        assert rank.idle.total_seconds == pytest.approx(idle * 1e-6, abs=1e-9)
        assert rank.compute_seconds == pytest.approx(compute * 1e-6, abs=1e-9)
        assert rank.window_seconds == pytest.approx(window * 1e-6, abs=1e-9)
        assert round((rank.overlap or 0.0) * 100, 2) == overlap


def collective(group: str, start: int, sequence: int) -> CollectiveRow:
    return CollectiveRow(start, start + 100, "all_reduce", group, 4096, sequence, lane=7)


def bare(rank: int, rows: Sequence[CollectiveRow]) -> RankTrace:
    """A rank on a device, of which collectives alone were recorded."""
    return RankTrace(
        rank=rank,
        host="n0",
        pid=1,
        on_device=True,
        backend="nccl",
        world_size=None,
        source=f"rank{rank}",
        names=(),
        spans=no_spans(),
        collectives=make_collectives(rows),
        steps=make_steps(()),
    )


def of_ranks(rows: Sequence[Sequence[CollectiveRow]]) -> Trace:
    return Trace(tuple(bare(rank, mine) for rank, mine in enumerate(rows)), "torch.profiler")


def test_a_recording_of_many_groups_is_analyzed_in_seconds() -> None:
    rows = [collective(f"group {number}", 1000 * number, number) for number in range(40_000)]
    began = time.process_time()
    assert len(analyze_trace(of_ranks([rows, rows])).collectives) == 40_000
    # Every group looked through the collectives of all.
    assert time.process_time() - began < 12


def test_collectives_with_one_number_are_told_apart_in_seconds() -> None:
    rows = [collective("g", 1000 * number, 1) for number in range(8000)]
    began = time.process_time()
    paired = pair(of_ranks([rows, rows])).paired
    starts = paired.start.reshape(-1, 2)
    assert starts[:, 0].tolist() == [1000 * number for number in range(8000)]
    assert (starts[:, 0] == starts[:, 1]).all()
    # Each counted from the first.
    assert time.process_time() - began < 5


def test_many_ranks_are_compared_in_seconds() -> None:
    count = 1500
    rows = [
        [collective("all", 1000 * number + rank, number) for number in range(10)]
        for rank in range(count)
    ]
    began = time.process_time()
    assert analyze_trace(of_ranks(rows)).per_rank[count - 1].blame_percent == 100
    # Each rank asked of every other whether it was the last.
    assert time.process_time() - began < 12


def test_more_collectives_and_ranks_than_fit_in_memory_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pairing, "_MAX_PAIRED", 40)
    rows = [collective("all", 1000 * number, number) for number in range(11)]
    said = r"44 collectives of 4 ranks, .* \(40\)"
    with pytest.raises(TraceError, match=said):
        pair(of_ranks([rows] * 4))


def test_steps_of_no_length_are_named() -> None:
    events = [*(step(number, 5.0, 0.0) for number in range(3)), kernel("gemm", 5.0, 2.0)]
    with pytest.raises(
        TraceError, match=r"rank0\.json: its steps begin and end at the same moment"
    ):
        analyze_trace(trace([events]))


def test_some_of_the_steps_are_analyzed() -> None:
    events = [
        event
        for number in range(10)
        for event in (
            step(number, 1000.0 * number, 1000.0),
            kernel("gemm", 1000.0 * number, 100.0 + 10 * number),
        )
    ]
    whole = trace([events])
    part = analyze_trace(whole, steps=StepRange.parse("4:6"))
    assert part.window.steps == 3
    assert part.per_rank[0].compute_seconds == pytest.approx((140 + 150 + 160) * 1e-6)
    first = analyze_trace(whole, steps=StepRange.parse(":2"))
    assert first.window.first_step_left_out
    assert first.window.steps == 2
    with pytest.raises(TraceError, match=r"--steps 11:: no such step .*") as error:
        analyze_trace(whole, steps=StepRange.parse("11:"))
    assert error.value.hint == "recorded steps: those that all ranks share are 0 to 9"
    with pytest.raises(TraceError, match="all that was recorded"):
        analyze_trace(whole, WindowChoice.DEVICE, steps=StepRange.parse("4:6"))


@pytest.mark.parametrize("text", ["", "5", "7:3", "a:b", "1:2:3"])
def test_what_is_no_range_of_steps_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="not a range of steps"):
        StepRange.parse(text)


def test_of_very_many_ranks_the_late_one_is_in_the_picture() -> None:
    rows = [
        [collective("all", 1000 * number + (50 * (rank == 77)), number) for number in range(10)]
        for rank in range(200)
    ]
    timeline = analyze_trace(of_ranks(rows)).timeline
    assert timeline is not None
    assert len(timeline.ranks) <= 64
    assert 77 in [rank.rank for rank in timeline.ranks]


def test_ranks_that_share_a_gpu_over_gloo_are_compared_by_its_collectives() -> None:
    """What two real ranks on one GPU left: kernels, and gloo's threads on the host."""
    recorded = Path(__file__).parents[3] / "data" / "gloo_on_gpu"
    found = analyze_trace(read_recordings(find_recordings([recorded])))
    assert found.window.steps == 25
    (straggler,) = (item for item in found.findings if item.kind is FindingKind.STRAGGLER)
    assert straggler.rank == 1
    first, second = found.per_rank
    assert (first.blame_percent, second.blame_percent) == pytest.approx((0.0, 100.0), abs=1.0)
    (collective,) = found.collectives
    assert (collective.op, collective.count) == ("all_reduce", 25)
