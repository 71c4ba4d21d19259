"""What NCCL's and torch's ranges tell of a kernel: operation, communicator, bytes, partners; and
what stays unknown."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.features.trace.readers.builders import NsysExport
from torchscale.features.trace.analysis.analyze import analyze_trace
from torchscale.features.trace.analysis.stages import find_stages
from torchscale.features.trace.readers.recordings import read_recordings
from torchscale.features.trace.span import SpanKind, Trace

STEPS, STEP_NS = 24, 1_000_000
SEND_RECV = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096>)"
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096>)"


class Job:
    """An export of several ranks, built step by step; every kernel has its launch."""

    def __init__(self, ranks: int) -> None:
        self.export, self.ranks, self.link = NsysExport(), range(ranks), 0
        for rank in self.ranks:
            self.export.mark(rank + 1, f"torchscale.rank {rank}/{ranks}", 0)
            for step in range(STEPS):
                self.export.range(
                    rank + 1, f"torchscale.step {step}", step * STEP_NS, (step + 1) * STEP_NS
                )
                self.kernel(
                    rank,
                    "gemm",
                    step * STEP_NS + 50_000,
                    step * STEP_NS + 100_000,
                    step * STEP_NS + 1000,
                )

    def kernel(self, rank: int, name: str, start: int, end: int, called: int) -> None:
        """A kernel, and its launch at ``called``."""
        self.link += 1
        self.export.call(rank + 1, "cudaLaunchKernelExC_v11060", called, called + 2000, self.link)
        self.export.kernel(rank + 1, name, start, end, self.link)

    def group(
        self,
        rank: int,
        at: int,
        calls: Sequence[tuple[str, int]],
        communicator: int | None,
        size: int = 0,
        torch: str = "",
    ) -> int:
        """A group of sends and receives from ``at`` on; each call with its partner. Returns the
        moment within its end at which NCCL launches."""
        pid = rank + 1
        if torch:
            self.export.range(pid, torch, at, at + 30_000, by_id=True)
        self.export.nccl(pid, "ncclGroupStart", at + 1000, at + 1100)
        for number, (name, peer) in enumerate(calls):
            begin = at + 2000 + 200 * number
            self.export.nccl(
                pid, name, begin, begin + 100, communicator=communicator, size=size, peer=peer
            )
        self.export.nccl(pid, "ncclGroupEnd", at + 10_000, at + 20_000)
        return at + 12_000

    def read(self, directory: Path, without: Sequence[str] = ()) -> Trace:
        """The trace of its export."""
        return read_recordings([self.export.write(directory / "run.sqlite", without=without)])


def all_to_alls(torch: str = "", *, communicator: int | None = None) -> Job:
    """Two ranks exchange 1 MB with each other and themselves in every step; rank 1 arrives 20 µs
    late."""
    job = Job(2)
    for step in range(STEPS):
        origin = step * STEP_NS
        for rank in job.ranks:
            calls = [(name, peer) for peer in job.ranks for name in ("ncclSend", "ncclRecv")]
            called = job.group(rank, origin + 10_000, calls, communicator, 1_000_000, torch)
            job.kernel(rank, SEND_RECV, origin + 200_000 + 20_000 * rank, origin + 400_000, called)
    return job


@pytest.mark.parametrize(
    ("torch", "communicator"),
    [("nccl:all_to_all, op_id = 991144", None), ("", 0xFEDCBA9876543210), ("nccl:all_to_all", 7)],
    ids=["torch's range", "NCCL's payload", "both"],
)
def test_grouped_sends_and_receives_are_an_all_to_all(
    torch: str, communicator: int | None, tmp_path: Path
) -> None:
    trace = all_to_alls(torch, communicator=communicator).read(tmp_path)
    analysis = analyze_trace(trace)
    (summary,) = analysis.collectives
    assert (summary.op, summary.count) == ("all_to_all", STEPS - 1)
    assert summary.payload_bytes == (None if communicator is None else 2_000_000)
    assert summary.group == ("" if communicator is None else f"communicator {communicator:016x}")
    assert summary.wait_seconds == pytest.approx(10e-6)  # 20 µs on one of two ranks
    assert find_stages(trace.ranks).stages is None
    assert analysis.window.reasons == ()


def test_without_partners_a_group_may_be_either_and_nothing_is_concluded(tmp_path: Path) -> None:
    trace = all_to_alls().read(tmp_path)
    assert trace.ranks[0].collectives.ops == ("grouped_send_recv",)
    analysis = analyze_trace(trace)
    assert any(
        "all-to-alls or messages of a pipeline" in reason for reason in analysis.window.reasons
    )
    assert analysis.sync_stall_percent is None
    assert all(item.kind.value != "uneven_stages" for item in analysis.abstentions), (
        "it is not called a pipeline"
    )


def test_a_launch_before_the_recording_is_taken_for_what_the_others_are(tmp_path: Path) -> None:
    job = all_to_alls("nccl:all_to_all")
    for rank in job.ranks:
        job.export.kernel(rank + 1, SEND_RECV, -50_000, -40_000, 999_999)
    trace = job.read(tmp_path)
    assert {rank.collectives.ops for rank in trace.ranks} == {("all_to_all",)}


def test_messages_of_a_pipeline_have_their_way_and_global_partners(tmp_path: Path) -> None:
    """Ranks 1 and 3 of four are a pipeline; within its communicator they are 0 and 1."""
    job = Job(4)
    for step in range(STEPS):
        origin = step * STEP_NS
        for rank, name, peer in ((1, "ncclSend", 1), (3, "ncclRecv", 0)):
            job.export.nccl(
                rank + 1,
                name,
                origin + 10_000,
                origin + 20_000,
                communicator=5,
                size=4096,
                peer=peer,
            )
            job.kernel(rank, SEND_RECV, origin + 200_000, origin + 300_000, origin + 12_000)
    ranks = job.read(tmp_path).ranks
    first, second = (ranks[number].collectives for number in (1, 3))
    assert (first.ops, set(first.peer.tolist()), set(first.direction.tolist())) == (
        ("send_recv",),
        {3},
        {1},
    )
    assert (second.ops, set(second.peer.tolist()), set(second.direction.tolist())) == (
        ("send_recv",),
        {1},
        {-1},
    )
    assert set(first.payload_bytes.tolist()) == {4096}


@pytest.mark.parametrize(
    ("op", "text"), [("gather", "nccl:gather"), ("scatter", "nccl:scatter, seq = 3, op_id = 4")]
)
def test_gather_and_scatter_are_called_by_torchs_name(op: str, text: str, tmp_path: Path) -> None:
    job = Job(3)
    for rank in job.ranks:
        calls = [("ncclRecv", peer) for peer in (1, 2)] if rank == 0 else [("ncclSend", 0)]
        called = job.group(rank, 10_000, calls, 5, 1000, text)
        job.kernel(rank, SEND_RECV, 200_000, 300_000, called)
    assert [rank.collectives.ops for rank in job.read(tmp_path).ranks] == [(op,)] * 3


def test_calls_of_newer_nccl_name_their_operation_and_give_a_part(tmp_path: Path) -> None:
    job = Job(4)
    for rank in job.ranks:
        job.export.nccl(rank + 1, "ncclAlltoAll", 10_000, 20_000, communicator=5, size=1000)
        job.kernel(rank, SEND_RECV, 200_000, 300_000, 12_000)
    collectives = job.read(tmp_path).ranks[2].collectives
    assert (collectives.ops, collectives.payload_bytes.tolist()) == (("all_to_all",), [4000])


@pytest.mark.parametrize(
    ("call", "kernel", "payload"),
    [
        ("ncclAllReduce", "ncclDevKernel_AllReduce_Sum_f32", 1000),
        ("ncclBroadcast", "ncclDevKernel_Broadcast_RING_LL", 1000),
        ("ncclAllGather", "ncclDevKernel_AllGather_RING_LL", 3000),
        ("ncclReduceScatter", "ncclDevKernel_ReduceScatter_Sum_f32", 3000),
    ],
)
def test_sizes_are_those_of_the_whole_buffer(
    call: str, kernel: str, payload: int, tmp_path: Path
) -> None:
    job = Job(3)
    for rank in job.ranks:
        job.export.nccl(rank + 1, call, 10_000, 20_000, communicator=5, size=1000)
        job.kernel(rank, kernel, 200_000, 300_000, 12_000)
    assert job.read(tmp_path).ranks[0].collectives.payload_bytes.tolist() == [payload]


def test_several_operations_of_one_group_have_their_size_where_they_are_alike(
    tmp_path: Path,
) -> None:
    job = Job(2)
    for rank in job.ranks:
        for at, sizes in ((10_000, (512, 512)), (40_000, (512, 1024))):
            job.export.nccl(rank + 1, "ncclGroupStart", at, at + 100)
            for number, size in enumerate(sizes):
                begin = at + 200 * (number + 1)
                job.export.nccl(
                    rank + 1, "ncclAllReduce", begin, begin + 100, communicator=5, size=size
                )
            job.export.nccl(rank + 1, "ncclGroupEnd", at + 1000, at + 9000)
            for number in range(2):
                start = 200_000 + 10 * at + 100_000 * number
                job.kernel(rank, ALL_REDUCE, start, start + 50_000, at + 2000 + 3000 * number)
    collectives = job.read(tmp_path).ranks[0].collectives
    assert collectives.payload_bytes.tolist() == [512, 512, -1, -1]
    assert collectives.groups == ("communicator 0000000000000005",)


def hybrid(*, payloads: bool) -> Job:
    """Four ranks: one all-reduce in pairs of neighbours, one in the pairs across; kernels of
    different pairs end 3 ms apart. Rank 3 is 40 µs late to the second."""
    job = Job(4)
    for step in range(STEPS):
        origin = step * STEP_NS
        for rank in job.ranks:
            inner, across = 100 + rank // 2, 200 + rank % 2
            for at, communicator, end in (
                (10_000, inner, 300_000),
                (40_000, across, 600_000 + 200_000 * (rank % 2)),
            ):
                known = communicator if payloads else None
                job.export.nccl(
                    rank + 1,
                    "ncclAllReduce",
                    origin + at,
                    origin + at + 9000,
                    communicator=known,
                    size=4096,
                )
                late = 40_000 if rank == 3 and at == 40_000 else 0
                job.kernel(
                    rank,
                    ALL_REDUCE,
                    origin + end - 100_000 + late,
                    origin + end,
                    origin + at + 1000,
                )
    return job


def test_groups_of_a_hybrid_are_paired_by_communicator(tmp_path: Path) -> None:
    analysis = analyze_trace(hybrid(payloads=True).read(tmp_path))
    assert sum(item.count for item in analysis.collectives) == 4 * (STEPS - 1)
    waits = {item.group[-3:]: item.wait_seconds for item in analysis.collectives}
    assert waits == {
        f"{100:03x}": 0, f"{101:03x}": 0, f"{200:03x}": 0, f"{201:03x}": pytest.approx(20e-6)
    }  # fmt: skip
    assert analysis.per_rank[1].sync_stall_seconds == pytest.approx(40e-6 * (STEPS - 1))
    assert analysis.window.reasons == ()


def test_without_communicators_those_that_do_not_end_together_are_left_out(tmp_path: Path) -> None:
    analysis = analyze_trace(hybrid(payloads=False).read(tmp_path, without=["NVTX_EVENTS"]))
    assert any(
        "do not end together" in reason or "steps" in reason for reason in analysis.window.reasons
    )
    assert all(finding.rank is None for finding in analysis.findings)


def test_a_launch_that_was_not_recorded_is_compared_with_nothing_where_groups_are_known(
    tmp_path: Path,
) -> None:
    job = hybrid(payloads=True)
    job.export.kernel(1, ALL_REDUCE, 5_000, 9_000, 888_888)
    trace = job.read(tmp_path)
    assert "(launched before the recording)" in trace.ranks[0].collectives.groups
    assert analyze_trace(trace).window.reasons == ()


def test_kernels_of_a_cuda_graph_are_paired_by_their_order(tmp_path: Path) -> None:
    job = Job(2)
    for step in range(STEPS):
        origin = step * STEP_NS
        for rank in job.ranks:
            job.link += 1
            job.export.call(
                rank + 1, "cudaGraphLaunch_v10000", origin + 3000, origin + 5000, job.link
            )
            start = origin + 200_000 + 30_000 * rank
            job.export.kernel(rank + 1, ALL_REDUCE, start, origin + 400_000, job.link)
    analysis = analyze_trace(job.read(tmp_path))
    assert analysis.per_rank[0].sync_stall_seconds == pytest.approx(30e-6 * (STEPS - 1))


def copy_engine_gathers() -> Job:
    """All-gathers that NCCL makes of two copies each, and one copy of the program's own a step."""
    job = Job(2)
    for step in range(STEPS):
        origin = step * STEP_NS
        for rank in job.ranks:
            job.export.nccl(
                rank + 1,
                "ncclAllGather",
                origin + 10_000,
                origin + 30_000,
                communicator=5,
                size=1000,
            )
            for called, start in ((12_000, 200_000), (14_000, 250_000), (40_000, 500_000)):
                job.link += 1
                job.export.call(
                    rank + 1,
                    "cudaMemcpyAsync_v3020",
                    origin + called,
                    origin + called + 1000,
                    job.link,
                )
                begin = origin + start + 10_000 * rank
                job.export.copy(rank + 1, begin, begin + 40_000, 1000, (8, 2, 2), job.link)
    return job


def test_collectives_by_the_copy_engine_are_communication(tmp_path: Path) -> None:
    trace = copy_engine_gathers().read(tmp_path)
    collectives = trace.ranks[0].collectives
    assert (collectives.ops, len(collectives), set(collectives.payload_bytes.tolist())) == (
        ("all_gather",),
        STEPS,
        {2000},
    )
    assert (collectives.end - collectives.start).tolist() == [90_000] * STEPS
    assert trace.ranks[0].spans.of(SpanKind.COPY).sum() == STEPS
    analysis = analyze_trace(trace)
    assert analysis.per_rank[0].sync_stall_seconds == pytest.approx(10e-6 * (STEPS - 1))
    assert analysis.per_rank[0].copy_seconds == pytest.approx(40e-6 * (STEPS - 1))


@pytest.mark.parametrize(
    "blob",
    [
        b"",
        b"\x01\x02",
        struct.pack("<IIIIQQ", 1, 0, 16777225, 0, 24, 999) + bytes(24),
        struct.pack("<IIIIQQ", 1, 0, 16777225, 0, 24, 56) + bytes(3),
        struct.pack("<IIIIQQ", 1, 0, 99, 0, 24, 56) + bytes(24),
        struct.pack("<IIIIQQ", 1, 0, 16777225, 0, 2**63, 2**63 + 32),
    ],
    ids=["empty", "two bytes", "wrong length", "cut off", "unknown schema", "huge"],
)
def test_a_payload_of_another_form_is_not_known(blob: bytes, tmp_path: Path) -> None:
    job = all_to_alls("nccl:all_to_all", communicator=5)
    for row in job.export.rows["NVTX_EVENTS"]:
        if "binaryData" in row:
            row["binaryData"] = blob
    (summary,) = analyze_trace(job.read(tmp_path)).collectives
    assert (summary.op, summary.group, summary.payload_bytes) == ("all_to_all", "", None)


def test_schemas_that_contradict_each_other_are_not_used(tmp_path: Path) -> None:
    job = all_to_alls("nccl:all_to_all", communicator=5)
    first = job.export.rows["NVTX_PAYLOAD_SCHEMA_ENTRIES"][0]
    job.export.add("NVTX_PAYLOAD_SCHEMA_ENTRIES", **{**first, "name": "something else"})
    (summary,) = analyze_trace(job.read(tmp_path)).collectives
    assert (summary.group, summary.payload_bytes) == ("", None)


def test_payloads_that_were_not_exported_are_asked_for(tmp_path: Path) -> None:
    job = all_to_alls("nccl:all_to_all", communicator=5)
    for row in job.export.rows["NVTX_EVENTS"]:
        row.pop("binaryData", None)
    trace = job.read(tmp_path)
    assert any("--include-blobs=true" in note for note in trace.notes)
    plain = tmp_path / "plain"
    plain.mkdir()
    assert not any(
        "--include-blobs" in note for note in all_to_alls("nccl:all_to_all").read(plain).notes
    )
