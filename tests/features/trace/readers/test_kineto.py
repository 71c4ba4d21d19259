"""Kineto traces: whole, in pieces, compressed, damaged."""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.features.trace.readers.builders import BASE_NS, host, kernel, kineto, read_rank, step
from torchscale.errors import TraceError
from torchscale.features.trace.readers import files
from torchscale.features.trace.readers.kineto import events as event_columns
from torchscale.features.trace.readers.kineto import stream
from torchscale.features.trace.readers.recordings import find_recordings, read_recordings
from torchscale.features.trace.span import RankTrace, SpanCopyKind, SpanKind

NASTY = 'void f<{lambda(int)#1}>(x)::{"a"}, {"ph": "X"},{'


def read(text: str, source: str = "rank0.json") -> RankTrace:
    return read_rank(io.BytesIO(text.encode()), source)


def events() -> list[dict[str, Any]]:
    found = [step(3, 0.0, 1000.0), step(4, 1000.5, 900.0)]
    found += [
        kernel(NASTY if number % 3 else "gemm", 10.0 * number, 5.125, link=number + 1)
        for number in range(60)
    ]
    found += [
        host("cuda_runtime", "cudaLaunchKernel", 10.0 * n - 4, 2.0, correlation=n + 1)
        for n in range(60)
    ]
    arguments: dict[str, Any] = {
        "Collective name": "allreduce",
        "In msg nelems": 1000,
        "Out msg nelems": 1000,
        "dtype": "BFloat16",
    }
    arguments |= {"Process Group Name": "0", "Seq": 17, "Group size": 2}
    found.append(kernel("ncclDevKernel_Generic(x)", 700.0, 50.0, stream=9, **arguments))
    found.append(
        {"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "ts": 0, "args": {"name": "python"}}
    )
    found.append(
        {"ph": "s", "cat": "ac2g", "id": 3, "pid": 10, "tid": 1, "ts": 1.0, "name": "ac2g"}
    )
    for allocated in (100, 900, 300):
        memory = {"Total Allocated": allocated, "Device Type": 1, "Device Id": 0, "Bytes": 8}
        found.append(
            {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "ts": 5.0, "args": memory}
        )
    copy = kernel("Memcpy HtoD (Pageable -> Device)", 800.0, 3.0)
    return [
        *found,
        {**copy, "cat": "gpu_memcpy"},
        host("cpu_op", "aten::_local_scalar_dense", 850.0, 2.0),
    ]


def test_what_it_tells() -> None:
    trace = read(kineto(events(), rank=1))
    assert (trace.rank, trace.world_size, trace.host, trace.backend, trace.on_device) == (
        1,
        2,
        "node-1",
        "nccl",
        True,
    )
    assert trace.steps.number.tolist() == [3, 4]
    assert trace.steps.start.tolist() == [BASE_NS, BASE_NS + 1_000_500]
    compute = trace.spans.of(SpanKind.COMPUTE)
    assert compute.sum() == 60
    assert set((trace.spans.end - trace.spans.start)[compute].tolist()) == {5125}
    assert trace.spans.of(SpanKind.LAUNCH).sum() == 60
    assert trace.spans.of(SpanKind.READBACK).sum() == 1
    assert SpanCopyKind.HOST_TO_DEVICE_PAGEABLE in trace.spans.detail.tolist()
    one = trace.collectives
    assert (len(one), one.ops[one.op[0]], one.payload_bytes[0], one.sequence[0]) == (
        1,
        "all_reduce",
        2000,
        17,
    )
    assert one.start[0] == BASE_NS + 700_000
    assert trace.peak_bytes == 900


@pytest.mark.parametrize("piece", [300, 400, 777, 4096])
def test_pieces_make_the_same_as_the_whole(piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = read(kineto(events()))
    monkeypatch.setattr(stream, "_PIECE_BYTES", piece)
    cut = read(kineto(events()))
    assert cut.names == whole.names
    for column in ("start", "end", "kind", "name", "lane", "link", "detail"):
        assert np.array_equal(getattr(cut.spans, column), getattr(whole.spans, column))


def test_epoch_microseconds_of_old_traces_lose_nothing() -> None:
    origin = 1_694_128_201_429_795
    text = kineto([kernel("gemm", origin + 3, 5)], baseTimeNanoseconds=0)
    assert read(text).spans.start.tolist() == [(origin + 3) * 1000]


def test_other_keys_may_follow_the_events_and_a_bare_list_is_read_too() -> None:
    content = json.loads(kineto(events(), rank=3))
    moved = {"traceEvents": content.pop("traceEvents"), **content, "more": [{"a": "]}"}, {"b": 1}]}
    assert read(json.dumps(moved)).rank == 3
    bare = read(json.dumps(events()), "worker5.json")
    assert bare.rank == 5
    assert len(bare.steps) == 2


def test_gloo_runs_from_the_call_to_its_completion() -> None:
    found = [
        step(0, 0, 100),
        host("user_annotation", "gloo:all_reduce", -5, 3, thread=2),
    ]  # began before the recording
    for number in range(3):
        call = host("cpu_op", "c10d::allreduce_", 10 + 20 * number, 1)
        done = host(
            "user_annotation", "gloo:all_reduce", 12 + 20 * number, 9, thread=2 + number % 2
        )
        found += [call, {**done, "args": {"Input Dims": [[256, 4]], "Input type": ["float"]}}]
    trace = read(kineto(found, backend="gloo"))
    assert not trace.on_device
    assert (trace.collectives.start - BASE_NS).tolist() == [10_000, 30_000, 50_000]
    assert (trace.collectives.end - BASE_NS).tolist() == [21_000, 41_000, 61_000]
    assert trace.collectives.payload_bytes.tolist() == [4096] * 3


def test_gloo_reduces_and_scatters_by_an_all_reduce() -> None:
    """Its completion is named after what gloo does; with an all-reduce beside it, each call gets
    its own."""
    found = [step(0, 0, 100)]
    for number, name in enumerate(("_reduce_scatter_base_", "allreduce_", "_reduce_scatter_base_")):
        found.append(host("cpu_op", f"c10d::{name}", 10 + 20 * number, 1))
        found.append(host("user_annotation", "gloo:all_reduce", 12 + 20 * number, 9, thread=2))
    collectives = read(kineto(found, backend="gloo")).collectives
    order = collectives.start.argsort()
    assert [collectives.ops[collectives.op[place]] for place in order] == [
        "reduce_scatter",
        "all_reduce",
        "reduce_scatter",
    ]
    assert (collectives.end[order] - BASE_NS).tolist() == [21_000, 41_000, 61_000]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (kineto(events())[:-400], "cut off"),
        ("{}", "no traceEvents"),
        ("not json", "no traceEvents"),
        (kineto(events()).replace('"ts": 700.0', '"ts": "soon"'), "is no number"),
        (kineto(events()).replace('"ts": 700.0', '"ts": NaN'), "is no number"),
    ],
)
def test_what_cannot_be_read_is_said(text: str, said: str) -> None:
    with pytest.raises(TraceError, match=said):
        read(text, "trace.json")


def test_files_directories_and_archives(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    plain = tmp_path / "a" / "one.pt.trace.json"
    plain.write_text(kineto(events(), rank=0))
    packed = tmp_path / "a" / "two.pt.trace.json.gz"
    packed.write_bytes(gzip.compress(kineto(events(), rank=1).encode()))
    (tmp_path / "a" / "settings.json").write_text('{"no": "trace"}')
    (tmp_path / "a" / "timeline.perfetto.json.gz").write_bytes(
        gzip.compress(kineto(events()).encode())
    )
    found = find_recordings([tmp_path])
    assert found == [plain, packed]
    assert [rank.rank for rank in read_recordings(found).ranks] == [0, 1]

    archive = tmp_path / "both.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(plain, "deep/one.json")
        tar.add(packed, "deep/two.json.gz")
        tar.add(tmp_path / "a", "deep/dir", recursive=False)
    assert [rank.rank for rank in read_recordings([archive]).ranks] == [0, 1]

    with pytest.raises(TraceError, match="rank 0 is there more than once"):
        read_recordings([plain, plain])
    notes = read_recordings([packed]).notes
    assert notes == ("1 of 2 ranks are here; missing: 0",)


def test_a_header_may_claim_any_number_of_ranks(tmp_path: Path) -> None:
    path = tmp_path / "rank0.json"
    path.write_text(kineto(events(), world_size=10**9))
    (note,) = read_recordings([path]).notes
    assert (
        note == f"1 of 1,000,000,000 ranks are here; missing: {', '.join(map(str, range(1, 17)))}"
    )


def test_a_header_of_megabytes_lists_process_groups(tmp_path: Path) -> None:
    path = tmp_path / "rank0.json"
    groups = [{"ranks": list(range(64))}] * 2000
    path.write_text(kineto(events(), world_size=1, groups=groups))
    assert path.read_text().index("traceEvents") > 1 << 20
    assert [rank.rank for rank in read_recordings(find_recordings([tmp_path])).ranks] == [0]


def test_a_pipe_and_a_device_are_no_recordings(tmp_path: Path) -> None:
    pipe = tmp_path / "rank0.json"
    os.mkfifo(pipe)
    for path in (pipe, Path("/dev/null")):
        with pytest.raises(TraceError, match="neither a regular file nor a directory"):
            find_recordings([path])


def test_of_many_files_of_one_rank_some_are_named(tmp_path: Path) -> None:
    files = [tmp_path / f"{number}.json" for number in range(40)]
    for path in files:
        path.write_text(kineto(events(), rank=3, world_size=8))
    said = r"rank 3 is there more than once: 0\.json, .* and 24 more$"
    with pytest.raises(TraceError, match=said):
        read_recordings(files)


def test_what_unpacks_to_more_than_any_recording_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blanks = " " * (4 << 20)
    plain = tmp_path / "rank0.json.gz"
    plain.write_bytes(gzip.compress(kineto(events()).replace("[", f"[{blanks}", 1).encode(), 9))
    inside, outside = tmp_path / "inside.tar.gz", tmp_path / "outside.tar.gz"
    with tarfile.open(inside, "w:gz") as tar:
        tar.add(plain, "rank0.json.gz")
    with tarfile.open(outside, "w:gz") as tar:
        member = tarfile.TarInfo("rank0.json")
        member.size = len(blanks)
        tar.addfile(member, io.BytesIO(blanks.encode()))
    monkeypatch.setattr(files, "_MAX_UNPACKED_BYTES", 1 << 20)
    for path in (plain, inside, outside):
        with pytest.raises(TraceError, match="which no recording does"):
            read_recordings([path])


@pytest.mark.parametrize(
    ("limit", "value", "said"),
    [
        ("_MAX_KEPT", 2, "collectives and steps"),
        ("_MAX_NAMES", 5, "different names"),
        ("_MAX_NAME_CHARACTERS", 60, "names of more than 60 characters"),
        ("_MAX_LANES", 1, "names of threads"),
    ],
)
def test_more_than_a_recording_holds_is_refused(
    limit: str, value: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = [{**kernel("gemm", 10.0, 5.0), "tid": name} for name in ("a", "b")]
    read(kineto([*events(), *threads]))
    monkeypatch.setattr(event_columns, limit, value)
    with pytest.raises(TraceError, match=said):
        read(kineto([*events(), *threads]))


def test_damaged_files_are_named(tmp_path: Path) -> None:
    cut = tmp_path / "cut.json.gz"
    cut.write_bytes(gzip.compress(kineto(events()).encode())[:-50])
    with pytest.raises(TraceError, match=r"cut\.json\.gz"):
        read_recordings([cut])
    empty = tmp_path / "empty.tar.gz"
    with tarfile.open(empty, "w:gz"):
        pass
    with pytest.raises(TraceError, match=r"no \.json"):
        read_recordings([empty])
    with pytest.raises(TraceError, match="no such file"):
        find_recordings([tmp_path / "absent"])
    (tmp_path / "void").mkdir()
    with pytest.raises(TraceError, match="no recording in this directory"):
        find_recordings([tmp_path / "void"])
    other = tmp_path / "other.bin"
    other.write_bytes(b"\x7fELF")
    with pytest.raises(TraceError, match="neither"):
        read_recordings([other])


def test_a_single_recording_needs_no_rank(tmp_path: Path) -> None:
    """Programs with one process, and exporters that write no distributedInfo, do not name a
    rank."""
    alone = tmp_path / "trace.json"
    alone.write_text(
        kineto([event for event in events() if "nccl" not in event["name"]], rank=None)
    )
    trace = read_recordings([alone])
    assert [(rank.rank, rank.world_size) for rank in trace.ranks] == [(0, 1)]
    assert trace.notes == ("the recording names no rank; it is taken as the only one, rank 0",)
    (tmp_path / "other.json").write_text(kineto(events(), rank=None))
    with pytest.raises(TraceError, match="which of several ranks"):
        read_recordings(find_recordings([tmp_path]))
