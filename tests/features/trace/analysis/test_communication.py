"""Communication that is not NCCL's: custom kernels, copy engines, one rank of several; and what is not
recognized."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.features.trace.readers.builders import NsysExport, host, kernel, kineto, read_rank, step
from torchscale.errors import TraceError
from torchscale.features.trace.analysis.analyze import analyze_trace
from torchscale.features.trace.readers.recordings import find_recordings, read_recordings
from torchscale.features.trace.span import Trace
from torchscale.report.text.profile import RANK_HEADINGS, rank_columns, rank_shares, split_line
from torchscale.schema.profiles.analysis import ProfileAnalysis
from torchscale.schema.profiles.finding import Confidence, Finding, FindingKind

STEPS, PERIOD = 29, 1000.0
RECORDED = Path(__file__).parents[3] / "data" / "symmetric_memory"
CUSTOM = "void acme::cross_device_reduce_2stage<__nv_bfloat16, 8>(RankData*)"


def rank(late: float, name: str, at_once: float = 0.0) -> list[dict[str, Any]]:
    """Steps of 500 µs of compute and ``late`` more, then a kernel ``name`` until 900 µs, under which
    there are ``at_once`` µs of compute."""
    events = []
    for number in range(STEPS):
        origin = number * PERIOD
        link = 3 * number + 1
        events += [
            step(number, origin, PERIOD),
            host("cuda_runtime", "cudaLaunchKernel", origin + 1, 2.0, correlation=link),
            host("cuda_runtime", "cudaLaunchKernel", origin + 4, 2.0, correlation=link + 1),
            kernel("gemm", origin + 50, 500 + late, link=link),
            kernel(name, origin + 550 + late, 350 - late, 20, link + 1),
        ]
        if at_once:
            events.append(kernel("gemm", origin + 700, at_once, 8))
    return events


def trace(
    ranks: Sequence[Sequence[dict[str, Any]]], size: int | None = None, **header: Any
) -> Trace:
    size = size or len(ranks)
    return Trace(
        tuple(
            read_rank(
                io.BytesIO(kineto(events, number, size, **header).encode()), f"rank{number}.json"
            )
            for number, events in enumerate(ranks)
        ),
        "torch.profiler",
    )


def found(analysis: ProfileAnalysis, kind: FindingKind) -> Finding | None:
    return next((one for one in analysis.findings if one.kind is kind), None)


@pytest.mark.parametrize(
    "name", [CUSTOM, "multimem_all_reduce_kernel<float>(x)", "oneccl_reduce_base<float>"]
)
@pytest.mark.parametrize("backend", ["nccl", "xccl", "gloo"])
def test_a_straggler_is_found_whatever_kernel_waits_for_it(name: str, backend: str) -> None:
    late = (0.0, 0.0, 200.0, 0.0)
    custom = analyze_trace(trace([rank(one, name) for one in late], backend=backend))
    known = analyze_trace(trace([rank(one, "ncclDevKernel_AllReduce(x)") for one in late]))
    assert custom.sync_stall_percent == pytest.approx(known.sync_stall_percent)
    straggler = found(custom, FindingKind.STRAGGLER)
    assert straggler is not None
    assert straggler.rank == 2
    assert [one.compute_seconds for one in custom.per_rank] == pytest.approx(
        [one.compute_seconds for one in known.per_rank]
    )


def test_nsys_knows_them_too(tmp_path: Path) -> None:
    export = NsysExport()
    for number in range(4):
        export.mark(number + 1, f"torchscale.rank {number}/4", 0)
        link = 100 * number
        for one in range(STEPS):
            origin = one * 1_000_000
            export.range(number + 1, f"torchscale.step {one}", origin, origin + 1_000_000)
            late = 200_000 * (number == 2)
            for name, start, end in (
                ("gemm", origin + 50_000, origin + 550_000 + late),
                (CUSTOM, origin + 550_000 + late, origin + 900_000),
            ):
                link += 1
                export.call(number + 1, "cudaLaunchKernel", origin + 1000, origin + 2000, link)
                export.kernel(number + 1, name, start, end, link)
    analysis = analyze_trace(read_recordings([export.write(tmp_path / "run.sqlite")]))
    straggler = found(analysis, FindingKind.STRAGGLER)
    assert straggler is not None
    assert straggler.rank == 2


def test_a_recording_whose_communication_is_not_known_is_refused_by_name() -> None:
    unknown = [rank(one, "void acme::nvls_push<8>(x)") for one in (0.0, 200.0)]
    with pytest.raises(TraceError, match="holds no kernel of communication") as caught:
        analyze_trace(trace(unknown))
    assert "acme::nvls_push" in (caught.value.hint or "")
    with pytest.raises(TraceError, match="its backend is hccl"):
        analyze_trace(trace([rank(0.0, "mystery")] * 2, backend="hccl"))


def test_kernels_that_look_like_communication_lower_the_confidence() -> None:
    events = [rank(one, "void acme::nvls_push<8>(x)") for one in (0.0, 200.0)]
    window = analyze_trace(trace(events, backend="gloo")).window
    assert window.confidence is Confidence.LOW
    assert any("acme::nvls_push<8>(x) (" in reason for reason in window.reasons)
    silent = analyze_trace(trace([rank(0.0, "mystery")] * 2, backend="gloo")).window
    assert any("ranks recorded no communication" in reason for reason in silent.reasons)
    alone = analyze_trace(trace([rank(0.0, "void acme::nvls_push<8>(x)")], backend="nccl")).window
    assert not any("communication" in reason for reason in alone.reasons)


def peer_copies(to_others: bool) -> list[dict[str, Any]]:
    events = []
    for number in range(STEPS):
        origin = number * PERIOD
        events += [step(number, origin, PERIOD), kernel("gemm", origin + 50, 500.0)]
        name = "Memcpy PtoP (Device -> Device)" if to_others else "Memcpy DtoD (Device -> Device)"
        copy = kernel(name, origin + 450, 300.0, 9, bytes=1 << 20)
        events.append({**copy, "cat": "gpu_memcpy"})
    return events


def test_copies_by_copy_engines_are_communication_that_waits_for_nobody() -> None:
    events = [peer_copies(to_others=True)] * 2
    analysis = analyze_trace(trace(events))
    for one in analysis.per_rank:
        share = one.exposed_communication_seconds / one.window_seconds
        assert share == pytest.approx(0.2)
        assert one.overlap == pytest.approx(1 / 3)
        assert one.exposed_copy_seconds == 0
        assert one.sync_stall_seconds is None
    cause = found(analysis, FindingKind.EXPOSED_COMMUNICATION)
    assert cause is not None
    assert cause.cost_percent == pytest.approx(20)
    assert found(analysis, FindingKind.STRAGGLER) is None
    within = analyze_trace(trace([peer_copies(to_others=False)], backend="gloo")).per_rank[0]
    assert within.communication_seconds == 0
    assert (within.exposed_copy_seconds or 0) / within.window_seconds == pytest.approx(0.2)


def test_one_rank_of_several_has_its_exposed_share_and_what_cannot_be_judged() -> None:
    analysis = analyze_trace(trace([rank(0.0, "ncclDevKernel_AllReduce(x)", 100.0)], size=4))
    (one,) = analysis.per_rank
    headings = [RANK_HEADINGS[place] for place in rank_columns(analysis.per_rank)]
    assert headings == [
        "rank", "compute", "exposed", "copies", "host-bound", "input", "other", "overlap", "blame",
    ]  # fmt: skip
    shares = dict(zip(RANK_HEADINGS[1:], rank_shares(one), strict=True))
    assert shares["exposed"] == pytest.approx(0.25)
    parts = [share for name, share in shares.items() if name not in ("overlap", "blame")]
    assert sum(share for share in parts if share is not None) == pytest.approx(1)
    cause = found(analysis, FindingKind.EXPOSED_COMMUNICATION)
    assert cause is not None
    assert cause.confidence is Confidence.LOW
    assert cause.cost_percent == pytest.approx(25)
    untold = {item.kind for item in analysis.abstentions if "one of 4 ranks" in item.reason}
    assert untold >= {
        FindingKind.STRAGGLER,
        FindingKind.LOAD_IMBALANCE,
        FindingKind.EXPOSED_COMMUNICATION,
    }
    assert "exposed 25.0 %" in split_line(analysis)


def test_a_rank_that_is_the_only_one_is_as_before() -> None:
    analysis = analyze_trace(trace([rank(0.0, "ncclDevKernel_AllReduce(x)")]))
    assert found(analysis, FindingKind.EXPOSED_COMMUNICATION) is None
    assert not any("ranks is here" in item.reason for item in analysis.abstentions)
    waits = analyze_trace(trace([rank(one, CUSTOM) for one in (0.0, 200.0)]))
    assert "exposed" not in [RANK_HEADINGS[place] for place in rank_columns(waits.per_rank)]


def test_work_in_the_step_that_is_left_out_is_said() -> None:
    first = [
        {**event, "dur": event["dur"] * (0.02 if event["ts"] > PERIOD else 1)}
        if event["cat"] == "kernel"
        else event
        for event in rank(0.0, "gemm")
    ]
    reasons = analyze_trace(trace([first], size=1)).window.reasons
    assert any("compute is in the first recorded step, which is left out" in one for one in reasons)
    usual = analyze_trace(trace([rank(0.0, "gemm")], size=1)).window.reasons
    assert not any("first recorded step" in one for one in usual)


@pytest.mark.parametrize(
    ("name", "ops"),
    [
        ("all_reduce", {"all_reduce": 24}),
        ("async_tensor_parallel", {"barrier": 108, "reduce_scatter": 12}),
    ],
)
def test_recordings_of_symmetric_memory(name: str, ops: dict[str, int]) -> None:
    """Of an H200 that two ranks share, each for a slice of time, so that their collectives do not
    end together."""
    read = read_recordings(find_recordings(sorted(RECORDED.glob(f"{name}_rank*"))))
    for one in read.ranks:
        counts = {op: int(one.collectives.are(op).sum()) for op in one.collectives.ops}
        assert counts == ops
    analysis = analyze_trace(read)
    assert analysis.sync_stall_percent is None
    for breakdown in analysis.per_rank:
        assert breakdown.exposed_communication_seconds > 0.6 * breakdown.window_seconds
        assert breakdown.compute_seconds < 0.01 * breakdown.window_seconds
