"""CPU ranks in an export: what the worker marks becomes the same trace as torch.profiler's."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.features.trace.readers.builders import NsysExport
from torchscale.errors import TraceError
from torchscale.features.trace.analysis.analyze import analyze_trace
from torchscale.features.trace.readers.recordings import read_recordings
from torchscale.features.trace.span import SpanKind
from torchscale.schema.profiles.nvtx_names import CollectiveName

STEPS, STEP_NS = 24, 10_000_000
GROUP = "0 [0, 1]"


def two_ranks(late_ns: int = 3_000_000) -> NsysExport:
    """Steps of 10 ms: 1 ms of data, 3 ms of forward pass (rank 1: ``late_ns`` more), an all-reduce
    that begins at its end and that all leave at 9 ms, with the backward pass beside it for 1 ms."""
    export = NsysExport()
    for rank in (0, 1):
        pid = rank + 1
        for step in range(STEPS):
            at = step * STEP_NS
            export.mark(pid, f"torchscale.rank {rank}/2", at)
            export.range(pid, f"torchscale.step {step}", at, at + STEP_NS - 1000, by_id=True)
            export.range(pid, "torchscale.data_wait", at, at + 1_000_000)
            called = at + 4_000_000 + late_ns * rank
            export.range(pid, "torchscale.forward", at + 1_000_000, called, by_id=True, kind=60)
            name = CollectiveName("allreduce_", 4096, GROUP, step + 1, -1).text
            export.range(pid, name, called, at + 9_000_000, by_id=True, kind=60)
            export.range(
                pid, "torchscale.backward", called, called + 1_000_000, by_id=True, kind=60
            )
            export.range(
                pid, "torchscale.optimizer", at + 9_000_000, at + 9_900_000, by_id=True, kind=60
            )
        outside = CollectiveName("barrier", 0, GROUP, STEPS + 1, -1).text
        if rank == 0:  # the recording ended before the other left it
            export.range(pid, outside, STEPS * STEP_NS, STEPS * STEP_NS + 1000)
    return export


def test_steps_phases_collectives_and_waits(tmp_path: Path) -> None:
    trace = read_recordings([two_ranks().write(tmp_path / "run.sqlite", shuffle=True)])
    first = trace.ranks[0]
    assert (first.on_device, first.backend, first.world_size, len(first.steps)) == (
        False,
        "gloo",
        2,
        STEPS,
    )
    assert set(first.names) >= {"forward", "backward", "optimizer"}
    assert first.spans.of(SpanKind.OPERATOR).sum() == 3 * STEPS
    assert (first.collectives.ops, first.collectives.groups) == (("all_reduce",), (GROUP,))
    assert first.collectives.sequence.tolist() == list(range(1, STEPS + 1)), (
        "barriers outside of steps are left out"
    )
    analysis = analyze_trace(trace)
    counted = STEPS - 1
    # Rank 0 waits from 5 ms, when its backward pass is done, until rank 1 comes at 7 ms.
    assert analysis.per_rank[0].sync_stall_seconds == pytest.approx(2e-3 * counted)
    assert analysis.per_rank[1].sync_stall_seconds == 0
    assert analysis.collectives[0].wait_seconds == pytest.approx(1.5e-3)
    straggler = next(finding for finding in analysis.findings if finding.kind.value == "straggler")
    assert straggler.rank == 1
    assert analysis.per_rank[0].idle.input_seconds == pytest.approx(1e-3 * counted)
    assert analysis.window.reasons == ()


def test_nobody_is_named_where_ranks_are_alike(tmp_path: Path) -> None:
    analysis = analyze_trace(read_recordings([two_ranks(0).write(tmp_path / "run.sqlite")]))
    assert analysis.sync_stall_percent == 0
    assert all(finding.rank is None for finding in analysis.findings)


def test_messages_between_stages_name_both_ranks(tmp_path: Path) -> None:
    export = two_ranks()
    for rank, op, peer in ((0, "send", 1), (1, "recv_", 0)):
        for step in range(STEPS):
            at = step * STEP_NS + 9_100_000
            export.range(rank + 1, CollectiveName(op, 64, GROUP, -1, peer).text, at, at + 500_000)
    collectives = read_recordings([export.write(tmp_path / "run.sqlite")]).ranks[1].collectives
    messages = collectives.point_to_point
    assert set(collectives.peer[messages].tolist()) == {0}
    assert set(collectives.direction[messages].tolist()) == {-1}


@pytest.mark.parametrize(
    "text",
    [
        "c10d::allreduce_",
        "c10d::allreduce_, bytes = many, group = 0 [0, 1], sequence = 1, peer = -1",
        "c10d::allreduce_, bytes = 99999999999999999999, group = 0, sequence = 1, peer = -1",
        "c10d::, bytes = 1, group = 0, sequence = 1, peer = -1",
    ],
)
def test_a_range_that_only_looks_like_a_collective_is_none(text: str, tmp_path: Path) -> None:
    assert CollectiveName.parse(text) is None
    export = two_ranks()
    export.range(1, text, 4_500_000, 4_600_000)
    assert (
        len(read_recordings([export.write(tmp_path / "run.sqlite")]).ranks[0].collectives) == STEPS
    )


@pytest.mark.parametrize("group", ["0 [0, 1]", "mesh, sequence = 3 [0]", ""])
def test_a_collective_is_read_as_it_was_written(group: str) -> None:
    name = CollectiveName("_allgather_base_", 12, group, 3, 4)
    assert CollectiveName.parse(name.text) == name


def test_neither_kernels_nor_marked_ranks(tmp_path: Path) -> None:
    export = NsysExport()
    export.range(1, "step 3", 0, 100)
    with pytest.raises(TraceError, match="no CUDA kernels were recorded") as caught:
        read_recordings([export.write(tmp_path / "run.sqlite")])
    assert "--tool kineto" in (caught.value.hint or "")
