"""Copies by the device, from both recorders alike: what they move, how fast, what hides them, what
they cost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.features.trace.readers.builders import NsysExport, host, kernel, kineto, step
from torchscale.features.trace.analysis.analyze import analyze_trace
from torchscale.features.trace.readers.recordings import read_recordings
from torchscale.report.text.profile import rank_shares
from torchscale.schema.profiles.analysis import ProfileAnalysis
from torchscale.schema.profiles.finding import Finding, FindingKind

STEPS = 24
PINNED, PAGEABLE, BACK, WITHIN, PEER = (1, 1, 2), (1, 0, 2), (2, 2, 1), (8, 2, 2), (10, 2, 2)
NAMES = {
    PINNED: "Memcpy HtoD (Pinned -> Device)",
    PAGEABLE: "Memcpy HtoD (Pageable -> Device)",
    BACK: "Memcpy DtoH (Device -> Pinned)",
    WITHIN: "Memcpy DtoD (Device -> Device)",
    PEER: "Memcpy PtoP (Device -> Device)",
}
Copies = list[tuple[tuple[int, int, int], int, int, int]]
"""Kind, start and length in microseconds of the step, bytes."""


def by_nsys(directory: Path, copies: Copies) -> ProfileAnalysis:
    """Steps of 1 ms with a kernel from 600 to 900 µs."""
    export = NsysExport()
    for number in range(STEPS):
        at = number * 1_000_000
        export.range(1, f"step {number}", at, at + 1_000_000)
        export.call(1, "cudaLaunchKernel_v7000", at + 1000, at + 2000, number + 1)
        export.kernel(1, "gemm", at + 600_000, at + 900_000, number + 1)
        for kinds, start, length, size in copies:
            export.copy(1, at + 1000 * start, at + 1000 * (start + length), size, kinds)
    return analyze_trace(read_recordings([export.write(directory / "run.sqlite")]))


def by_torch_profiler(directory: Path, copies: Copies) -> ProfileAnalysis:
    """The same."""
    events = []
    for number in range(STEPS):
        at = number * 1000.0
        events.append(step(number, at, 1000))
        events.append(host("cuda_runtime", "cudaLaunchKernel", at + 1, 1, correlation=number + 1))
        events.append(kernel("gemm", at + 600, 300, link=number + 1))
        for kinds, start, length, size in copies:
            event = kernel(NAMES[kinds], at + start, length, stream=13, bytes=size)
            events.append({**event, "cat": "gpu_memcpy"})
    path = directory / "rank0.json"
    path.write_text(kineto(events, world_size=1))
    return analyze_trace(read_recordings([path]))


RECORDERS = pytest.mark.parametrize(
    "recorded", [by_nsys, by_torch_profiler], ids=["nsys", "torch.profiler"]
)
Recorded = Callable[[Path, Copies], ProfileAnalysis]


def finding(analysis: ProfileAnalysis, kind: FindingKind) -> Finding | None:
    return next((item for item in analysis.findings if item.kind is kind), None)


@RECORDERS
def test_a_step_that_mostly_copies_is_copy_bound(recorded: Recorded, tmp_path: Path) -> None:
    analysis = recorded(tmp_path, [(PINNED, 50, 500, 10_000_000), (PINNED, 600, 100, 2_000_000)])
    (rank,) = analysis.per_rank
    assert rank.copy_seconds == pytest.approx(600e-6 * (STEPS - 1))
    assert rank.exposed_copy_seconds == pytest.approx(500e-6 * (STEPS - 1))
    found = finding(analysis, FindingKind.COPY_BOUND)
    assert found is not None
    assert found.cost_seconds == pytest.approx(500e-6)
    assert found.cost_percent == pytest.approx(50)
    assert "500 µs a step" in found.summary
    assert "most of it host to device" in found.summary
    # 12 MB in 600 µs; a sixth of the copies' time under the kernel.
    assert found.evidence == (
        "host to device: 11.4 MiB a step at 20.0 GB/s, 600 µs a step, pinned, 17 % of it under "
        "compute",
        "copies run 60.0 % of the time",
    )
    assert "prefetch" in found.advice


@RECORDERS
def test_shares_of_a_rank_add_up(recorded: Recorded, tmp_path: Path) -> None:
    analysis = recorded(tmp_path, [(PINNED, 50, 500, 10_000_000), (WITHIN, 800, 150, 1000)])
    shares = rank_shares(analysis.per_rank[0])[:8]
    assert shares[:5] == [pytest.approx(0.3), None, None, None, pytest.approx(0.55)]
    assert sum(share for share in shares if share is not None) == pytest.approx(1)


@RECORDERS
def test_copies_under_compute_cost_nothing(recorded: Recorded, tmp_path: Path) -> None:
    analysis = recorded(tmp_path, [(PINNED, 600, 300, 10_000_000), (PINNED, 100, 15, 1000)])
    assert analysis.per_rank[0].exposed_copy_seconds == pytest.approx(15e-6 * (STEPS - 1))
    assert finding(analysis, FindingKind.COPY_BOUND) is None, "1.5 % of the step is below the floor"


@RECORDERS
@pytest.mark.parametrize(
    ("kinds", "route", "advice"),
    [
        (BACK, "device to host", "keep activations"),
        (WITHIN, "within the device", "contiguous()"),
        (PEER, "between devices", "topo -p2p"),
    ],
)
def test_the_advice_is_of_the_costliest_route(
    recorded: Recorded, kinds: tuple[int, int, int], route: str, advice: str, tmp_path: Path
) -> None:
    found = finding(
        recorded(tmp_path, [(kinds, 50, 300, 1_000_000), (PINNED, 400, 50, 1000)]),
        FindingKind.COPY_BOUND,
    )
    assert found is not None
    assert found.evidence[0].startswith(route)
    assert found.evidence[1].startswith("host to device")
    assert advice in found.advice


@RECORDERS
def test_memory_that_is_not_pinned_is_named_once(recorded: Recorded, tmp_path: Path) -> None:
    analysis = recorded(tmp_path, [(PAGEABLE, 50, 300, 1_000_000), (BACK, 400, 15, 1000)])
    assert finding(analysis, FindingKind.PAGEABLE_COPIES) is not None
    assert finding(analysis, FindingKind.COPY_BOUND) is None


@RECORDERS
def test_what_is_pinned_is_counted_apart_from_what_is_not(
    recorded: Recorded, tmp_path: Path
) -> None:
    analysis = recorded(tmp_path, [(PAGEABLE, 50, 250, 1_000_000), (BACK, 400, 150, 1000)])
    costs = {item.kind: item.cost_seconds for item in analysis.findings}
    assert costs[FindingKind.PAGEABLE_COPIES] == pytest.approx(250e-6)
    assert costs[FindingKind.COPY_BOUND] == pytest.approx(150e-6)
    found = finding(analysis, FindingKind.COPY_BOUND)
    assert found is not None
    assert "most of it device to host" in found.summary


def test_a_recording_without_steps_or_sizes_says_what_it_knows(tmp_path: Path) -> None:
    export = NsysExport()
    export.tables = {
        **export.tables,
        "CUPTI_ACTIVITY_KIND_MEMCPY": export.tables["CUPTI_ACTIVITY_KIND_MEMCPY"].replace(
            "bytes INTEGER NOT NULL, ", ""
        ),
    }
    export.kernel(1, "gemm", 0, 100_000)
    export.copy(1, 100_000, 1_000_000, 0, PINNED)
    found = finding(
        analyze_trace(read_recordings([export.write(tmp_path / "run.sqlite")])),
        FindingKind.COPY_BOUND,
    )
    assert found is not None
    assert found.confidence.value == "low"
    assert found.summary.startswith("the device copies for 900 µs without computing")
    assert found.evidence[0] == "host to device: 900 µs, pinned, 0 % of it under compute"
