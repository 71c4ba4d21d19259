"""Whose events a trace holds: ranks merged into one file, several devices, other accelerators, old
torch."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from tests.features.trace.readers.builders import host, kernel, kineto, step
from torchscale.errors import TraceError
from torchscale.features.trace.analysis.analyze import analyze_trace
from torchscale.features.trace.readers.kineto.reader import read_kineto
from torchscale.features.trace.readers.recordings import find_recordings, read_recordings
from torchscale.features.trace.span import RankTrace, SpanKind, Trace
from torchscale.schema.profiles.finding import FindingKind

STEPS = 24
PERIOD = 20_000.0


def rank_events(late: float = 0.0, device: int = 0, pid: int = 10) -> list[dict[str, Any]]:
    """A rank whose kernel takes ``late`` µs more before an all-reduce that ends at the same time on
    all ranks."""
    found = []
    for number in range(STEPS):
        origin = number * PERIOD
        link = 2 * number + 1
        found.append(step(number, origin, PERIOD))
        found.append(host("cpu_op", "aten::mm", origin + 5, 10, **{"External id": link}))
        found.append(host("cuda_runtime", "cudaLaunchKernel", origin + 6, 5, correlation=link))
        found.append(kernel("gemm", origin + 100, 8000 + late, link=link, device=device))
        found.append(host("cuda_runtime", "cudaLaunchKernel", origin + 12, 5, correlation=link + 1))
        start = origin + 8200 + late
        found.append(
            kernel(
                "ncclDevKernel_AllReduce_Sum_f32(x)",
                start,
                origin + 18_000 - start,
                20,
                link + 1,
                device=device,
                **{"Collective name": "allreduce", "In msg nelems": 1000, "dtype": "Float"},
            )
        )
    return [{**one, "pid": device if one["cat"] == "kernel" else pid} for one in found]


def named(events: list[dict[str, Any]], form: str) -> list[dict[str, Any]]:
    """As tools that merge the files of ranks write them."""
    return [{**event, "pid": form.format(event["pid"])} for event in events]


def read(text: str, source: str = "merged.json") -> list[RankTrace]:
    return read_kineto(io.BytesIO(text.encode()), source)


def stragglers(ranks: list[RankTrace]) -> list[int | None]:
    analysis = analyze_trace(Trace(tuple(ranks), "torch.profiler"))
    return [one.rank for one in analysis.findings if one.kind is FindingKind.STRAGGLER]


@pytest.mark.parametrize(
    ("forms", "numbers"),
    [
        (("[TP00] {}", "[TP01] {}"), (0, 1)),
        (("[TP01-PP00] {}", "[TP00-PP00] {}"), (1, 0)),
        (("rank 3: {}", "rank 2: {}"), (3, 2)),
        (("Rank2/{}", "Rank5/{}"), (2, 5)),
        (("[DP0-TP1] {}", "[DP1-TP0] {}"), (0, 1)),
        (("[TP01-PP00] {}", "[TP00-PP01] {}"), (0, 1)),
        (("[TP04] {}", "[TP05] {}"), (4, 5)),
    ],
)
def test_ranks_that_were_merged_into_one_file_are_several(
    forms: tuple[str, str], numbers: tuple[int, int]
) -> None:
    parts = [
        named(rank_events(late), form) for form, late in zip(forms, (0.0, 4000.0), strict=True)
    ]
    ranks = read(kineto([*parts[0], *parts[1]], rank=None))
    assert tuple(rank.rank for rank in ranks) == numbers
    assert [int(rank.spans.of(SpanKind.COMPUTE).sum()) for rank in ranks] == [STEPS, STEPS]
    assert [len(rank.collectives) for rank in ranks] == [STEPS, STEPS]
    late = [numbers[1]] if max(numbers) == 1 else []  # others of the job may be later still
    assert stragglers(sorted(ranks, key=lambda rank: rank.rank)) == late
    assert "2 ranks in one file" in ranks[0].notes[0]
    assert f"is rank {numbers[0]}" in ranks[0].notes[0]


def test_launches_of_merged_ranks_belong_to_their_own_kernels() -> None:
    """Their correlation ids are the same."""
    merged = [*named(rank_events(), "[TP00] {}"), *named(rank_events(4000.0), "[TP01] {}")]
    alone = read(kineto(rank_events(4000.0)), "rank1.json")[0]
    last = read(kineto(merged))[1]
    for column in ("start", "end", "link"):
        assert sorted(getattr(last.spans, column)) == sorted(getattr(alone.spans, column))


def test_processes_without_names_of_ranks_are_refused() -> None:
    merged = [*rank_events(pid=10), *rank_events(4000.0, device=1, pid=11)]
    with pytest.raises(TraceError, match=r"2 processes \(10, 11\)"):
        read(kineto(merged))


def test_a_stray_event_of_another_process_does_not_matter() -> None:
    events = [*rank_events(), {**host("cpu_op", "aten::add", 3.0, 1.0), "pid": 77}]
    assert len(read(kineto(events))) == 1


def test_devices_of_one_process_are_ranks_of_it() -> None:
    second = [event for event in rank_events(4000.0, device=1) if event["cat"] == "kernel"]
    ranks = read(kineto([*rank_events(), *second], world_size=1))
    assert [rank.rank for rank in ranks] == [0, 1]
    assert [rank.world_size for rank in ranks] == [2, 2]
    assert stragglers(ranks) == [1]
    assert "device 1 is rank 1" in ranks[0].notes[0]


def test_devices_of_one_rank_of_several_are_refused_by_name() -> None:
    second = [event for event in rank_events(device=3) if event["cat"] == "kernel"]
    with pytest.raises(TraceError, match=r"2 devices \(0, 3\) in the recording of a rank"):
        read(kineto([*rank_events(), *second], world_size=8))


def test_a_fill_on_another_device_makes_no_rank() -> None:
    stray = {**kernel("Memset (Device)", 5.0, 2.0, device=1), "cat": "gpu_memset", "pid": 1}
    (rank,) = read(kineto([*rank_events(), stray], world_size=8))
    assert int(rank.spans.of(SpanKind.COPY).sum()) == 1


OLD = {
    "cpu_op": "Operator",
    "user_annotation": "Operator",
    "kernel": "Kernel",
    "cuda_runtime": "Runtime",
}


def test_torch_before_1_12_is_read_and_said() -> None:
    new = read(kineto(rank_events()))[0]
    old_events = [
        {**event, "cat": OLD[event["cat"]], "tid": f"stream {event['tid']} "}
        for event in rank_events()
    ]
    old = read(kineto(old_events))[0]
    assert old.spans.start.tolist() == new.spans.start.tolist()
    assert old.spans.kind.tolist() == new.spans.kind.tolist()
    assert len(old.steps) == STEPS
    assert "before 1.12" in old.notes[0]
    assert new.notes == ()


@pytest.mark.parametrize(
    ("device", "runtime", "launch"),
    [
        ("mtia_ccp_events", "mtia_runtime", "runFunction - job_prep_and_submit_for_execution"),
        ("kernel", "xpu_runtime", "urEnqueueKernelLaunch"),
        ("kernel", "privateuse1_runtime", "aclrtLaunchKernel"),
        ("kernel", "cuda_driver", "cuLaunchKernelEx"),
        ("kernel", "cuda_runtime", "hipGraphLaunch"),
    ],
)
def test_device_events_of_other_accelerators_are_the_work(
    device: str, runtime: str, launch: str
) -> None:
    events = []
    for number in range(3):
        origin = 1000.0 * number
        events += [
            step(number, origin, 1000.0),
            host("cpu_op", "aten::linear", origin + 5, 950.0),
            host(runtime, launch, origin + 10, 930.0, correlation=number + 1),
            {**kernel("fc-dtype_Float", origin + 400, 100.0, link=number + 1), "cat": device},
        ]
    (rank,) = read(kineto(events, world_size=1))
    analysis = analyze_trace(Trace((rank,), "torch.profiler"))
    share = analysis.per_rank[0].compute_seconds / analysis.per_rank[0].window_seconds
    assert share == pytest.approx(0.1)
    assert analysis.per_rank[0].idle.host_bound_seconds is not None


def test_dma_of_mtia_is_copying() -> None:
    dma = {**kernel("dma_request", 500.0, 30.0), "cat": "mtia_ccp_events"}
    work = {**kernel("fc", 100.0, 300.0), "cat": "mtia_ccp_events"}
    (rank,) = read(kineto([step(0, 0.0, 1000.0), work, dma], world_size=1))
    assert [int(rank.spans.of(kind).sum()) for kind in (SpanKind.COMPUTE, SpanKind.COPY)] == [1, 1]


def test_device_events_that_are_not_read_are_named_and_give_no_share() -> None:
    events = [
        step(0, 0.0, 1000.0),
        host("cpu_op", "aten::linear", 5.0, 950.0),
        host("xyz_runtime", "xyzLaunchKernel", 10.0, 5.0, correlation=1),
        {**kernel("k", 100.0, 50.0, link=1), "cat": "xyz_device_events"},
    ]
    with pytest.raises(TraceError, match=r"not read: xyz_device_events \(1\)"):
        read(kineto(events, world_size=1))
    with pytest.raises(TraceError, match="no event of the device"):
        read(kineto(events[:3], world_size=1))


@pytest.mark.parametrize("category", ["hpu_op", "npu_kernel", "mtia_insight", "collective_comm"])
def test_other_events_of_accelerators_give_no_share_of_the_host(category: str) -> None:
    events = [host("cpu_op", "aten::linear", 5.0, 950.0), host(category, "k", 10.0, 50.0)]
    with pytest.raises(TraceError, match=rf"not read: {category} \(1\)"):
        read(kineto(events, world_size=1))
    (rank,) = read(kineto([*events, kernel("gemm", 10.0, 50.0)], world_size=1))
    assert rank.notes == (f"merged.json: not read: events of {category} (1)",)


def test_tasks_of_an_npu_are_named() -> None:
    task = {"ph": "X", "name": "MatMulV2", "pid": 5, "tid": 2, "ts": "12.5", "dur": 3.0}
    task["args"] = {"Task Type": "AI_CORE"}
    with pytest.raises(TraceError, match=r"tasks of an Ascend NPU \(1\)"):
        read(kineto([host("cpu_op", "aten::mm", 1.0, 2.0), task], world_size=1))


def test_other_categories_are_named_once() -> None:
    other = [{**host("my_tool", f"x{number}", 1.0, 1.0)} for number in range(5)]
    (rank,) = read(kineto([*rank_events(), *other], world_size=1))
    assert rank.notes == ("merged.json: not read: events of my_tool (5)",)


def test_kernels_that_an_operator_of_communication_launched_communicate() -> None:
    events = []
    for number in range(3):
        origin = 1000.0 * number
        ids = {"External id": 50 + number}
        events += [
            step(number, origin, 1000.0),
            host("cpu_op", "vllm::all_reduce", origin, 50.0, **ids),
            kernel("exchange<4>(x)", origin + 100, 200.0, **ids),
            kernel("void at::native::fill_kernel(x)", origin + 300, 10.0, **ids),
            kernel("exchange<4>(x)", origin + 400, 70.0),
        ]
    (rank,) = read(kineto(events, world_size=2))
    assert rank.collectives.ops == ("all_reduce",)
    assert (rank.collectives.end - rank.collectives.start).tolist() == [200_000] * 3
    assert int(rank.spans.of(SpanKind.COMPUTE).sum()) == 6


def test_labels_of_any_kind_do_no_harm() -> None:
    for pid in ("Spans", "[]", "[x] ", "rank", "[TP999999999999] 1", "\n", "rank 1 rank 2", ""):
        text = kineto([{**event, "pid": pid} for event in rank_events()])
        (rank,) = read(text)
        assert len(rank.collectives) == STEPS
    json.loads(text)


def test_ranks_of_several_dimensions_are_numbered_as_launchers_do() -> None:
    """Stages of a pipeline outermost, tensor parallelism innermost, whatever order a label has."""
    labels = [f"[TP0{tp}-DP00-PP0{pp}] {{}}" for tp in range(2) for pp in range(2)]
    events = [event for form in labels for event in named(rank_events(), form)]
    assert [rank.rank for rank in read(kineto(events, rank=None))] == [0, 2, 1, 3]


def test_ranks_beyond_the_first_node_are_of_a_larger_job() -> None:
    events = [*named(rank_events(), "[TP04] {}"), *named(rank_events(), "[TP05] {}")]
    assert [rank.world_size for rank in read(kineto(events, rank=None))] == [6, 6]


def test_two_merged_files_of_one_job_are_refused_with_what_to_do(tmp_path: Path) -> None:
    for stage in range(2):
        events = [*named(rank_events(), "[TP00] {}"), *named(rank_events(), "[TP01] {}")]
        (tmp_path / f"pp{stage}.json").write_text(kineto(events, rank=None))
    with pytest.raises(TraceError, match="rank 0 is there more than once") as caught:
        read_recordings(find_recordings([tmp_path]))
    assert "merge all ranks" in (caught.value.hint or "")


def test_a_byte_order_mark_is_none_of_the_trace() -> None:
    for text in (kineto(rank_events()), json.dumps(rank_events())):
        (rank,) = read("\ufeff" + text)
        assert len(rank.collectives) == STEPS
